//! The pool and its customizations on the API server.

use std::time::Duration;

use jiff::Timestamp;
use kcp_rules::api::hive::InventoryEntry;
use serde::Deserialize;
use serde_json::Value;

use super::{
    deployments::{Deployments, WireDeployment},
    entry::Entry,
};
use crate::cluster::{Connection, Error, Kind, Write, Written};

/// Hive's finalizer on each pool that it runs.
const HIVE_FINALIZER: &str = "hive.openshift.io/clusters";

const HIVE: &str = "Hive (or its kinds alone, manifests/dev/crds)";

pub(super) const CLUSTER_POOL: Kind = hive("ClusterPool", "clusterpools");
pub(super) const CUSTOMIZATION: Kind = hive(
    "ClusterDeploymentCustomization",
    "clusterdeploymentcustomizations",
);
pub(super) const CLUSTER_DEPLOYMENT: Kind = hive("ClusterDeployment", "clusterdeployments");

const fn hive(kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group: "hive.openshift.io",
        kind,
        plural,
        versions: &["v1"],
        product: HIVE,
    }
}

/// A `ClusterPool`, as far as leases need it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pool {
    metadata: PoolMetadata,
    spec: PoolSpec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolMetadata {
    #[serde(default)]
    finalizers: Vec<String>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct PoolSpec {
    #[serde(default)]
    inventory: Option<Vec<InventoryEntry>>,
}

impl Pool {
    /// Whether Hive's controller looks after the pool.
    pub(super) fn is_run_by_hive(&self) -> bool {
        self.metadata
            .finalizers
            .iter()
            .any(|finalizer| finalizer == HIVE_FINALIZER)
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The customizations named, each once, in the pool's order.
    pub(super) fn inventory(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for entry in self.spec.inventory.iter().flatten() {
            if !entry.name.is_empty() && !names.contains(&entry.name.as_str()) {
                names.push(entry.name.as_str());
            }
        }
        names
    }
}

/// The customizations of one namespace, as a lease reads and writes them.
#[allow(async_fn_in_trait, reason = "used in this crate, on one thread")]
pub(super) trait Customizations {
    /// All of them, as they are now.
    async fn list(&self) -> Result<Vec<Entry>, Error>;

    /// One of them, as it is now; none when there is no such.
    async fn get(&self, name: &str) -> Result<Option<Entry>, Error>;

    /// Writes a status, once. One that is gone has changed. An error is one that no other entry would escape.
    async fn write_status(&self, name: &str, patch: &Value) -> Result<Written, Error>;

    /// Gives the server time before it is asked again.
    async fn rest(&self, delay: Duration) {
        tokio::time::sleep(delay).await;
    }

    /// The time.
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The real ones.
pub(super) struct Store<'c> {
    connection: &'c Connection,
    field_manager: &'c str,
}

impl<'c> Store<'c> {
    pub(super) fn new(connection: &'c Connection, field_manager: &'c str) -> Self {
        Self {
            connection,
            field_manager,
        }
    }

    /// The pool.
    pub(super) async fn pool(&self, name: &str) -> Result<Pool, Error> {
        self.connection
            .get(&CLUSTER_POOL.at("v1"), &self.connection.namespace, name)
            .await
            .map_err(of_hive)
    }

    /// The clusters that were made for pools of this namespace. Where there is no such kind, none were.
    pub(super) async fn deployments(&self) -> Result<Deployments, Error> {
        match self
            .connection
            .list::<WireDeployment>(&CLUSTER_DEPLOYMENT.at("v1"), None, None)
            .await
        {
            Ok(deployments) => Ok(Deployments::of(&self.connection.namespace, deployments)),
            Err(Error::NotServed { .. }) => Ok(Deployments::default()),
            Err(error) => Err(error),
        }
    }

    /// The cluster of this name, if it is there and was made for a pool of this namespace. By Hive's custom its
    /// namespace has its name.
    pub(super) async fn deployment(&self, name: &str) -> Result<Deployments, Error> {
        match self
            .connection
            .get::<WireDeployment>(&CLUSTER_DEPLOYMENT.at("v1"), name, name)
            .await
        {
            Ok(deployment) => Ok(Deployments::of(&self.connection.namespace, vec![deployment])),
            Err(Error::NotFound { .. }) => Ok(Deployments::default()),
            Err(error) => Err(of_hive(error)),
        }
    }
}

impl Customizations for Store<'_> {
    async fn list(&self) -> Result<Vec<Entry>, Error> {
        self.connection
            .list(&CUSTOMIZATION.at("v1"), Some(&self.connection.namespace), None)
            .await
            .map_err(of_hive)
    }

    async fn get(&self, name: &str) -> Result<Option<Entry>, Error> {
        match self
            .connection
            .get(&CUSTOMIZATION.at("v1"), &self.connection.namespace, name)
            .await
        {
            Ok(entry) => Ok(Some(entry)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(of_hive(error)),
        }
    }

    async fn write_status(&self, name: &str, patch: &Value) -> Result<Written, Error> {
        let written = self
            .connection
            .patch(&Write {
                resource: &CUSTOMIZATION.at("v1"),
                namespace: &self.connection.namespace,
                name,
                subresource: Some("status"),
                patch,
                field_manager: self.field_manager,
                dry_run: false,
            })
            .await;
        match written {
            Err(Error::NotFound { .. }) => Ok(Written::Changed),
            other => other.map_err(of_hive),
        }
    }
}

fn of_hive(error: Error) -> Error {
    match error {
        Error::NotServed { resource, server, .. } => Error::NotServed {
            resource,
            product: HIVE,
            server,
        },
        other => other,
    }
}

#[cfg(test)]
mod tests;
