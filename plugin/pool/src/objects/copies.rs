//! The copy of a customization in the namespace of the cluster that was made with it.

use serde::Deserialize;

use crate::objects::metadata::Metadata;

/// Hive's labels of what was made for a pool.
const POOL_NAMESPACE: &str = "hive.openshift.io/clusterpool-namespace";
const POOL: &str = "hive.openshift.io/clusterpool-name";

/// A copy that bears our label. Hive's own bear none, and go with their namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Copy {
    pub metadata: Metadata,
}

impl Copy {
    /// The namespace of the pool whose customization it is.
    pub fn pool_namespace(&self) -> Option<&str> {
        self.label(POOL_NAMESPACE)
    }

    pub fn pool(&self) -> Option<&str> {
        self.label(POOL)
    }

    /// The cluster that it was made for has the name of its namespace.
    pub fn cluster_deployment(&self) -> &str {
        &self.metadata.namespace
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.metadata.labels.get(name).map(String::as_str)
    }
}
