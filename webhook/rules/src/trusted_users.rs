//! Users whose writes rules exempt.

use serde::{Deserialize, Serialize};

/// The names of the users that controllers authenticate as. No other client can use these names, because the API
/// server authenticates users. The defaults are those of Cluster API's and Hive's own manifests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct TrustedUsers {
    /// Cluster API's core controllers. Among them is the topology controller, which writes whole control planes.
    pub cluster_api: Vec<String>,
    /// Hive's controllers, which copy customizations.
    pub hive: Vec<String>,
}

/// The service account of Cluster API's core controllers.
pub const CLUSTER_API: &str = "system:serviceaccount:capi-system:capi-manager";
/// The service account of Hive's controllers.
pub const HIVE: &str = "system:serviceaccount:hive:hive-controllers";

impl Default for TrustedUsers {
    fn default() -> Self {
        Self {
            cluster_api: vec![CLUSTER_API.to_owned()],
            hive: vec![HIVE.to_owned()],
        }
    }
}
