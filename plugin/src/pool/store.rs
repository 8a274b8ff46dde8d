//! Pools, their customizations, the records of who holds them, and the clusters made with them, on the API server.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::{Value, json};

use super::{
    claims::Claim,
    cluster_pool::Pool,
    deployments::{ClusterDeployment, Deployments},
    entry::{Entry, Holder},
    record::{self, Record},
};
use crate::cluster::{Action, Connection, Create, Created, Delete, Error, Kind, SECRET, Write, Written};

const HIVE: &str = "Hive (or its kinds alone, manifests/dev/crds)";

pub(super) const CLUSTER_POOL: Kind = hive("ClusterPool", "clusterpools");
pub(super) const CUSTOMIZATION: Kind = hive(
    "ClusterDeploymentCustomization",
    "clusterdeploymentcustomizations",
);
pub(super) const CLUSTER_DEPLOYMENT: Kind = hive("ClusterDeployment", "clusterdeployments");
pub(super) const CLUSTER_CLAIM: Kind = hive("ClusterClaim", "clusterclaims");

pub(super) const LEASE: Kind = Kind {
    group: "coordination.k8s.io",
    kind: "Lease",
    plural: "leases",
    versions: &["v1"],
    product: "Kubernetes",
};

const fn hive(kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group: "hive.openshift.io",
        kind,
        plural,
        versions: &["v1"],
        product: HIVE,
    }
}

const NAMESPACE: Kind = Kind {
    group: "",
    kind: "Namespace",
    plural: "namespaces",
    versions: &["v1"],
    product: "Kubernetes",
};

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

/// The records of who holds the customizations of one namespace.
#[allow(async_fn_in_trait, reason = "used in this crate, on one thread")]
pub(super) trait Records {
    /// All of them, as they are now.
    async fn records(&self) -> Result<Vec<Record>, Error>;

    /// That of one customization, as it is now; none when there is no such.
    async fn record(&self, customization: &str) -> Result<Option<Record>, Error>;

    /// Makes one, once.
    async fn create_record(&self, record: &Value) -> Result<Created, Error>;

    /// Changes one, once, by a merge patch with a resourceVersion. One that is gone has changed.
    async fn write_record(&self, customization: &str, patch: &Value) -> Result<Written, Error>;

    /// Does away with this version of a record, once.
    async fn delete_record(&self, record: &Record) -> Result<Written, Error>;
}

/// An object that is made for a cluster, and the namespace that it is made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made<'m> {
    Namespace,
    Secret(&'m str),
    Customization(&'m str),
    Deployment(&'m str),
}

impl<'m> Made<'m> {
    const fn place(self) -> (Kind, Option<&'m str>) {
        match self {
            Self::Namespace => (NAMESPACE, None),
            Self::Secret(namespace) => (SECRET, Some(namespace)),
            Self::Customization(namespace) => (CUSTOMIZATION, Some(namespace)),
            Self::Deployment(namespace) => (CLUSTER_DEPLOYMENT, Some(namespace)),
        }
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

    /// For requests that there is no method for here.
    pub(super) fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// The pools' namespace.
    pub(super) fn namespace(&self) -> &'c str {
        &self.connection.namespace
    }

    /// The pool.
    pub(super) async fn pool(&self, name: &str) -> Result<Pool, Error> {
        self.connection
            .get(&CLUSTER_POOL.at("v1"), self.namespace(), name)
            .await
            .map_err(of_hive)
    }

    /// The pools of this namespace, or of all of them.
    pub(super) async fn pools(&self, namespace: Option<&str>) -> Result<Vec<Pool>, Error> {
        self.connection
            .list(&CLUSTER_POOL.at("v1"), namespace, None)
            .await
            .map_err(of_hive)
    }

    /// The claims of this namespace.
    pub(super) async fn claims(&self) -> Result<Vec<Claim>, Error> {
        self.connection
            .list(&CLUSTER_CLAIM.at("v1"), Some(self.namespace()), None)
            .await
            .map_err(of_hive)
    }

    /// Writes a pool's status, once, by a merge patch with a resourceVersion.
    pub(super) async fn write_pool_status(&self, name: &str, patch: &Value) -> Result<Written, Error> {
        let write = Write {
            resource: &CLUSTER_POOL.at("v1"),
            namespace: self.namespace(),
            name,
            subresource: Some("status"),
            patch,
            field_manager: self.field_manager,
            dry_run: false,
        };
        self.connection.patch(&write).await.map_err(of_hive)
    }

    /// Makes an object, once.
    pub(super) async fn make(&self, made: Made<'_>, object: &Value) -> Result<Created, Error> {
        let (kind, namespace) = made.place();
        let create = Create {
            resource: &kind.at("v1"),
            namespace,
            object,
            field_manager: self.field_manager,
        };
        self.connection.make(&create).await
    }

    /// Whether a namespace has a label, with whatever value.
    pub(super) async fn has_label(&self, namespace: &str, label: &str) -> Result<bool, Error> {
        let action = Action::new("get", &NAMESPACE.at("v1")).named(namespace);
        let namespaces: Api<Namespace> = Api::all(self.connection.client.clone());
        let found = self
            .connection
            .read(&action, || namespaces.get_metadata(namespace))
            .await?;
        Ok(found
            .metadata
            .labels
            .is_some_and(|labels| labels.contains_key(label)))
    }

    /// One claim; none when there is no such.
    pub(super) async fn claim(&self, name: &str) -> Result<Option<Claim>, Error> {
        match self
            .connection
            .get(&CLUSTER_CLAIM.at("v1"), self.namespace(), name)
            .await
        {
            Ok(claim) => Ok(Some(claim)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(of_hive(error)),
        }
    }

    /// Asks Hive for a cluster, once, by a claim of the holder's name.
    pub(super) async fn create_claim(&self, holder: Holder<'_>) -> Result<Created, Error> {
        let claim = json!({
            "apiVersion": "hive.openshift.io/v1",
            "kind": "ClusterClaim",
            "metadata": {"name": holder.cluster_deployment},
            "spec": {"clusterPoolName": holder.pool},
        });
        let create = Create {
            resource: &CLUSTER_CLAIM.at("v1"),
            namespace: Some(self.namespace()),
            object: &claim,
            field_manager: self.field_manager,
        };
        self.connection.make(&create).await.map_err(of_hive)
    }

    /// Does away with a claim, once, and not with another of its name.
    pub(super) async fn delete_claim(&self, claim: &Claim) -> Result<Written, Error> {
        let delete = Delete {
            resource: &CLUSTER_CLAIM.at("v1"),
            namespace: self.namespace(),
            name: &claim.metadata.name,
            uid: &claim.metadata.uid,
            resource_version: None,
            dry_run: false,
        };
        self.connection.delete(&delete).await.map_err(of_hive)
    }

    /// The clusters of all namespaces. Where there is no such kind, there are none.
    pub(super) async fn deployments(&self) -> Result<Deployments, Error> {
        match self
            .connection
            .list::<ClusterDeployment>(&CLUSTER_DEPLOYMENT.at("v1"), None, None)
            .await
        {
            Ok(deployments) => Ok(Deployments::of(self.namespace(), deployments)),
            Err(Error::NotServed { .. }) => Ok(Deployments::of(self.namespace(), Vec::new())),
            Err(error) => Err(error),
        }
    }

    /// The cluster of this name, if it is there and was made for a pool of this namespace. By Hive's custom its
    /// namespace has its name.
    pub(super) async fn deployment(&self, name: &str) -> Result<Deployments, Error> {
        match self
            .connection
            .get::<ClusterDeployment>(&CLUSTER_DEPLOYMENT.at("v1"), name, name)
            .await
        {
            Ok(deployment) => Ok(Deployments::of(self.namespace(), vec![deployment])),
            Err(Error::NotFound { .. }) => Ok(Deployments::of(self.namespace(), Vec::new())),
            Err(error) => Err(of_hive(error)),
        }
    }
}

impl Store<'_> {
    /// One cluster, as it is now; none when there is no such.
    pub(super) async fn cluster(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ClusterDeployment>, Error> {
        match self
            .connection
            .get(&CLUSTER_DEPLOYMENT.at("v1"), namespace, name)
            .await
        {
            Ok(cluster) => Ok(Some(cluster)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(of_hive(error)),
        }
    }

    /// Changes a cluster, once, by a merge patch with a resourceVersion. One that is gone has changed.
    pub(super) async fn write_cluster(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Written, Error> {
        let written = self
            .connection
            .patch(&Write {
                resource: &CLUSTER_DEPLOYMENT.at("v1"),
                namespace,
                name,
                subresource: None,
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

impl Customizations for Store<'_> {
    async fn list(&self) -> Result<Vec<Entry>, Error> {
        self.connection
            .list(&CUSTOMIZATION.at("v1"), Some(self.namespace()), None)
            .await
            .map_err(of_hive)
    }

    async fn get(&self, name: &str) -> Result<Option<Entry>, Error> {
        match self
            .connection
            .get(&CUSTOMIZATION.at("v1"), self.namespace(), name)
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
                namespace: self.namespace(),
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

impl Records for Store<'_> {
    async fn records(&self) -> Result<Vec<Record>, Error> {
        let labelled = format!("{}=true", record::LABEL);
        self.connection
            .list(&LEASE.at("v1"), Some(self.namespace()), Some(&labelled))
            .await
    }

    async fn record(&self, customization: &str) -> Result<Option<Record>, Error> {
        let name = record::name_of(customization);
        match self
            .connection
            .get(&LEASE.at("v1"), self.namespace(), &name)
            .await
        {
            Ok(record) => Ok(Some(record)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create_record(&self, record: &Value) -> Result<Created, Error> {
        let create = Create {
            resource: &LEASE.at("v1"),
            namespace: Some(self.namespace()),
            object: record,
            field_manager: self.field_manager,
        };
        self.connection.make(&create).await
    }

    async fn write_record(&self, customization: &str, patch: &Value) -> Result<Written, Error> {
        let written = self
            .connection
            .patch(&Write {
                resource: &LEASE.at("v1"),
                namespace: self.namespace(),
                name: &record::name_of(customization),
                subresource: None,
                patch,
                field_manager: self.field_manager,
                dry_run: false,
            })
            .await;
        match written {
            Err(Error::NotFound { .. }) => Ok(Written::Changed),
            other => other,
        }
    }

    async fn delete_record(&self, record: &Record) -> Result<Written, Error> {
        let delete = Delete {
            resource: &LEASE.at("v1"),
            namespace: self.namespace(),
            name: &record.metadata.name,
            uid: &record.metadata.uid,
            resource_version: Some(&record.metadata.resource_version),
            dry_run: false,
        };
        self.connection.delete(&delete).await
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
