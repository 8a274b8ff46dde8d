//! Reads and writes ClusterPools, their entries and clusters on the API server.

pub use kcp_api::kind::{
    CLUSTER_CLAIM, CLUSTER_DEPLOYMENT, CLUSTER_DEPLOYMENT_CUSTOMIZATION as CUSTOMIZATION, CLUSTER_POOL, LEASE,
};
use kcp_api::{
    ClusterClaim, ClusterDeployment, ClusterPool, Kind,
    kind::{NAMESPACE, SECRET},
    metadata::{Object as _, ObjectMeta, PartialObjectMetadata},
    names::{annotation, label},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kcp_client::{
    Action, Connection, CreateRequest, CreateResult, DeleteRequest, Error, PatchRequest, ServerTime, Written,
    clock::time_since_boot, retry_while_busy,
};
use kube::Api;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

pub use crate::lease::access::LeaseStore;
use crate::{
    hive::{Hive, HiveMode, read_hive},
    lease::{
        queue::{QUEUE_LABEL, Queue, new_queue, queue_name},
        reuse::Reuse,
        usage::Clusters,
    },
    objects::{Holder, claim::lifetime_text, cluster_deployment::ClusterDeployments, entry::Entry},
};

/// The kind and the namespace of an object that this program creates for a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectTarget<'m> {
    Namespace,
    Claim(&'m str),
    Secret(&'m str),
    Customization(&'m str),
    ClusterDeployment(&'m str),
    /// The queue of a pool.
    Queue(&'m str),
}

impl<'m> ObjectTarget<'m> {
    pub const fn kind(self) -> &'static str {
        self.place().0.kind
    }

    const fn place(self) -> (&'static Kind, Option<&'m str>) {
        match self {
            Self::Namespace => (&NAMESPACE, None),
            Self::Claim(namespace) => (&CLUSTER_CLAIM, Some(namespace)),
            Self::Secret(namespace) => (&SECRET, Some(namespace)),
            Self::Customization(namespace) => (&CUSTOMIZATION, Some(namespace)),
            Self::ClusterDeployment(namespace) => (&CLUSTER_DEPLOYMENT, Some(namespace)),
            Self::Queue(namespace) => (&LEASE, Some(namespace)),
        }
    }
}

/// Sends the requests of this crate to the API server, for the pools of one namespace.
pub struct Store<'c> {
    connection: &'c Connection,
    field_manager: &'c str,
}

/// A ClusterClaim to create.
#[derive(Clone, Copy, Debug)]
pub struct NewClaim<'c> {
    pub holder: Holder<'c>,
    /// Identifies the command that creates the claim.
    pub id: &'c str,
    /// The user who creates the claim; `None` if unknown.
    pub user: Option<&'c str>,
    /// How long Hive keeps the claim after it has assigned a cluster.
    pub lifetime: Duration,
    /// The RBAC subjects that Hive allows to use the cluster.
    pub subjects: &'c [Value],
}

#[derive(Clone, Copy)]
struct ObjectPath<'p> {
    kind: &'p Kind,
    namespace: &'p str,
    name: &'p str,
}

impl<'c> Store<'c> {
    pub fn new(connection: &'c Connection, field_manager: &'c str) -> Self {
        Self {
            connection,
            field_manager,
        }
    }

    /// The connection to the API server, for requests that have no method in this type.
    pub fn connection(&self) -> &'c Connection {
        self.connection
    }

    pub fn field_manager(&self) -> &'c str {
        self.field_manager
    }

    pub fn namespace(&self) -> &'c str {
        &self.connection.namespace
    }

    pub async fn read_pool(&self, name: &str) -> Result<ClusterPool, Error> {
        self.get_at(self.in_pool_namespace(&CLUSTER_POOL, name)).await
    }

    /// Lists the ClusterPools of a namespace, or of all namespaces.
    pub async fn list_pools(&self, namespace: Option<&str>) -> Result<Vec<ClusterPool>, Error> {
        self.list_of(&CLUSTER_POOL, namespace, None).await
    }

    /// The names of the ClusterPools of a namespace, or of all namespaces, by namespace. With a label selector, only those of the
    /// pools that match it.
    pub async fn pool_names(
        &self,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
        let resource = CLUSTER_POOL.api_resource("v1");
        let listed = self.connection.list_metadata(&resource, namespace, selector);
        let pools: Vec<PartialObjectMetadata> =
            listed.await.map_err(|error| with_product(&CLUSTER_POOL, error))?;
        let mut names = BTreeMap::<String, BTreeSet<String>>::new();
        for pool in pools {
            let of_namespace = names.entry(pool.namespace().to_owned()).or_default();
            of_namespace.insert(pool.name().to_owned());
        }
        Ok(names)
    }

    /// Writes a pool's status, without another attempt after a conflict. The merge patch must contain a
    /// resourceVersion. Returns [`Written::Changed`] if another client has changed or deleted the pool.
    pub async fn write_pool_status(&self, name: &str, patch: &Value) -> Result<Written, Error> {
        self.patch_object(self.in_pool_namespace(&CLUSTER_POOL, name), Some("status"), patch)
            .await
    }

    /// Writes a pool's metadata, without another attempt after a conflict. The merge patch must contain a
    /// resourceVersion. Returns [`Written::Changed`] if another client has changed or deleted the pool.
    pub async fn write_pool(&self, name: &str, patch: &Value) -> Result<Written, Error> {
        self.patch_object(self.in_pool_namespace(&CLUSTER_POOL, name), None, patch)
            .await
    }

    /// Sends one request to create an object.
    pub async fn create_once(&self, target: ObjectTarget<'_>, object: &Value) -> Result<CreateResult, Error> {
        let (kind, namespace) = target.place();
        let create = CreateRequest {
            resource: &kind.api_resource("v1"),
            namespace,
            object,
            field_manager: self.field_manager,
            dry_run: false,
        };
        let created = retry_while_busy(|| self.connection.create_or_find(&create)).await;
        created.map_err(|error| with_product(kind, error))
    }

    /// Reads the object that has this name; `None` if there is none.
    pub async fn read_object(&self, target: ObjectTarget<'_>, name: &str) -> Result<Option<Value>, Error> {
        let (kind, namespace) = target.place();
        let namespace = namespace.unwrap_or_default();
        self.find_at(ObjectPath {
            kind,
            namespace,
            name,
        })
        .await
    }

    /// Patches an object, without another attempt after a conflict. The merge patch must contain a resourceVersion. Returns
    /// [`Written::Changed`] if another client has changed or deleted the object.
    pub async fn patch_object_once(
        &self,
        target: ObjectTarget<'_>,
        name: &str,
        patch: &Value,
    ) -> Result<Written, Error> {
        let (kind, namespace) = target.place();
        let namespace = namespace.unwrap_or_default();
        self.patch_object(
            ObjectPath {
                kind,
                namespace,
                name,
            },
            None,
            patch,
        )
        .await
    }

    /// The labels of a namespace; `None` if the namespace does not exist.
    pub async fn read_namespace_labels(
        &self,
        namespace: &str,
    ) -> Result<Option<BTreeMap<String, String>>, Error> {
        let action = Action::new("get", &NAMESPACE.api_resource("v1")).with_name(namespace);
        let namespaces: Api<Namespace> = Api::all(self.connection.client.clone());
        let found = self
            .connection
            .read(&action, || namespaces.get_metadata(namespace))
            .await;
        match found {
            Ok(found) => Ok(Some(found.metadata.labels.unwrap_or_default())),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Fails if the namespace does not exist. Succeeds if the client is not allowed to read namespaces.
    pub async fn check_namespace_exists(&self) -> Result<(), Error> {
        let (resource, name) = (NAMESPACE.api_resource("v1"), self.namespace());
        let action = Action::new("get", &resource).with_name(name);
        let namespaces: Api<Namespace> = Api::all(self.connection.client.clone());
        match self
            .connection
            .read(&action, || namespaces.get_metadata(name))
            .await
        {
            Ok(_) | Err(Error::Forbidden { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The names of the entries that match a label selector.
    pub async fn list_labelled_entries(&self, selector: &str) -> Result<Vec<String>, Error> {
        let resource = CUSTOMIZATION.api_resource("v1");
        let found: Vec<PartialObjectMetadata> = self
            .connection
            .list_metadata(&resource, Some(self.namespace()), Some(selector))
            .await?;
        Ok(found.iter().map(|entry| entry.name().to_owned()).collect())
    }

    pub async fn list_claims(&self) -> Result<Vec<ClusterClaim>, Error> {
        self.list_of(&CLUSTER_CLAIM, Some(self.namespace()), None).await
    }

    /// Reads a ClusterClaim; `None` if it does not exist.
    pub async fn read_claim(&self, name: &str) -> Result<Option<ClusterClaim>, Error> {
        self.find_at(self.in_pool_namespace(&CLUSTER_CLAIM, name)).await
    }

    /// Sends one request to create a ClusterClaim with the holder's name, so that Hive assigns a cluster to it.
    pub async fn create_claim(&self, claim: NewClaim<'_>) -> Result<CreateResult, Error> {
        let mut spec =
            json!({"clusterPoolName": claim.holder.pool, "lifetime": lifetime_text(claim.lifetime)});
        if let (false, Value::Object(fields)) = (claim.subjects.is_empty(), &mut spec) {
            fields.insert("subjects".to_owned(), claim.subjects.into());
        }
        let claim = json!({
            "apiVersion": "hive.openshift.io/v1",
            "kind": "ClusterClaim",
            "metadata": {
                "name": claim.holder.cluster_deployment,
                "annotations": {annotation::LEASE_ID: claim.id, annotation::LEASE_USER: claim.user},
            },
            "spec": spec,
        });
        self.create_once(ObjectTarget::Claim(self.namespace()), &claim)
            .await
    }

    /// Sends one request to change the lifetime of a ClusterClaim. The server refuses the request if the claim has changed
    /// since it was read. Returns [`Written::Changed`] if another client has changed or deleted the claim.
    pub async fn write_lifetime(&self, claim: &ClusterClaim, lifetime: Duration) -> Result<Written, Error> {
        let patch = json!({
            "metadata": {"uid": claim.uid(), "resourceVersion": claim.resource_version()},
            "spec": {"lifetime": lifetime_text(lifetime)},
        });
        self.patch_object(self.in_pool_namespace(&CLUSTER_CLAIM, claim.name()), None, &patch)
            .await
    }

    /// Sends one request to delete a ClusterClaim, if it has this version. Without a version, deletes the claim even if it has
    /// changed since it was read, but never a later claim with the same name.
    pub async fn delete_claim(&self, claim: &ClusterClaim, version: Option<&str>) -> Result<Written, Error> {
        let place = self.in_pool_namespace(&CLUSTER_CLAIM, claim.name());
        self.delete_at(place, claim.uid(), version).await
    }

    /// Sends one request to delete a customization, in any namespace. The server refuses the request if the
    /// customization has changed since it was read.
    pub async fn delete_customization(&self, customization: &ObjectMeta) -> Result<Written, Error> {
        let place = ObjectPath {
            kind: &CUSTOMIZATION,
            namespace: customization.namespace(),
            name: customization.name(),
        };
        self.delete_at(place, customization.uid(), Some(customization.resource_version()))
            .await
    }

    /// Lists the ClusterDeployments of all namespaces. The list is empty if the server does not serve the kind.
    pub async fn list_cluster_deployments(&self) -> Result<ClusterDeployments, Error> {
        let deployments = match self.list_of(&CLUSTER_DEPLOYMENT, None, None).await {
            Err(Error::NotServed { .. }) => Vec::new(),
            deployments => deployments?,
        };
        Ok(ClusterDeployments::new(self.namespace(), deployments))
    }

    /// Reads which of Hive's own objects exist in the cluster.
    pub async fn read_hive(&self, mode: HiveMode) -> Result<Hive, Error> {
        read_hive(self.connection, mode).await
    }

    /// The name of this client's user, as the server reports it; `None` if the server does not report it.
    pub async fn read_user(&self) -> Option<String> {
        const REVIEW: Kind = Kind {
            group: "authentication.k8s.io",
            kind: "SelfSubjectReview",
            plural: "selfsubjectreviews",
            versions: &["v1"],
            product: "Kubernetes",
        };
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let resource = REVIEW.api_resource("v1");
        let review = self
            .connection
            .create::<Value>(&resource, None, &review, self.field_manager);
        let review = review.await.ok()?;
        let user = review
            .pointer("/status/userInfo/username")
            .and_then(Value::as_str);
        user.filter(|user| !user.is_empty()).map(str::to_owned)
    }

    /// Lists the queues of pools, and the Leases (`coordination.k8s.io`) in which version 0.1 stored its records.
    pub async fn list_leases(&self) -> Result<Vec<PartialObjectMetadata>, Error> {
        self.list_labelled_leases(label::POOL_LEASE).await
    }

    async fn list_labelled_leases(&self, labelled: &str) -> Result<Vec<PartialObjectMetadata>, Error> {
        let resource = LEASE.api_resource("v1");
        self.connection
            .list_metadata(&resource, Some(self.namespace()), Some(labelled))
            .await
    }

    /// Reads a ClusterDeployment; `None` if it does not exist.
    pub async fn read_cluster(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ClusterDeployment>, Error> {
        self.find_at(cluster_at(namespace, name)).await
    }

    /// Changes a ClusterDeployment, without another attempt after a conflict. The merge patch must contain a
    /// resourceVersion. Returns [`Written::Changed`] if another client has changed or deleted the ClusterDeployment.
    pub async fn write_cluster(&self, namespace: &str, name: &str, patch: &Value) -> Result<Written, Error> {
        self.patch_object(cluster_at(namespace, name), None, patch).await
    }
}

const fn cluster_at<'p>(namespace: &'p str, name: &'p str) -> ObjectPath<'p> {
    ObjectPath {
        kind: &CLUSTER_DEPLOYMENT,
        namespace,
        name,
    }
}

impl Store<'_> {
    fn in_pool_namespace<'p>(&'p self, kind: &'p Kind, name: &'p str) -> ObjectPath<'p> {
        ObjectPath {
            kind,
            namespace: self.namespace(),
            name,
        }
    }

    async fn get_at<K: DeserializeOwned>(&self, place: ObjectPath<'_>) -> Result<K, Error> {
        let found = self
            .connection
            .get(&place.kind.api_resource("v1"), place.namespace, place.name)
            .await;
        found.map_err(|error| with_product(place.kind, error))
    }

    async fn find_at<K: DeserializeOwned>(&self, place: ObjectPath<'_>) -> Result<Option<K>, Error> {
        match self.get_at(place).await {
            Err(Error::NotFound { .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    async fn list_of<K: DeserializeOwned>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        labelled: Option<&str>,
    ) -> Result<Vec<K>, Error> {
        let found = self
            .connection
            .list(&kind.api_resource("v1"), namespace, labelled)
            .await;
        found.map_err(|error| with_product(kind, error))
    }

    /// Patches one object. Returns [`Written::Changed`] if another client has changed or deleted the object.
    async fn patch_object(
        &self,
        place: ObjectPath<'_>,
        subresource: Option<&'static str>,
        patch: &Value,
    ) -> Result<Written, Error> {
        let write = PatchRequest {
            resource: &place.kind.api_resource("v1"),
            namespace: Some(place.namespace),
            name: place.name,
            subresource,
            patch,
            field_manager: self.field_manager,
            dry_run: false,
        };
        match retry_while_busy(|| self.connection.patch(&write)).await {
            Err(Error::NotFound { .. }) => Ok(Written::Changed),
            written => written.map_err(|error| with_product(place.kind, error)),
        }
    }

    /// Deletes one object. Also returns [`Written::Stored`] if the object no longer exists.
    async fn delete_at(
        &self,
        place: ObjectPath<'_>,
        uid: &str,
        resource_version: Option<&str>,
    ) -> Result<Written, Error> {
        let delete = DeleteRequest {
            resource: &place.kind.api_resource("v1"),
            namespace: Some(place.namespace),
            name: place.name,
            uid,
            resource_version,
            dry_run: false,
        };
        match retry_while_busy(|| self.connection.delete(&delete)).await {
            Err(Error::NotFound { .. }) => Ok(Written::Stored),
            written => written.map_err(|error| with_product(place.kind, error)),
        }
    }
}

impl LeaseStore for Store<'_> {
    async fn list(&self) -> Result<Vec<Entry>, Error> {
        self.list_of(&CUSTOMIZATION, Some(self.namespace()), None).await
    }

    async fn get(&self, name: &str) -> Result<Option<Entry>, Error> {
        self.find_at(self.in_pool_namespace(&CUSTOMIZATION, name)).await
    }

    async fn write_status(&self, name: &str, patch: &Value) -> Result<Written, Error> {
        self.patch_object(
            self.in_pool_namespace(&CUSTOMIZATION, name),
            Some("status"),
            patch,
        )
        .await
    }

    async fn write_entry(&self, name: &str, patch: &Value) -> Result<Written, Error> {
        self.patch_object(self.in_pool_namespace(&CUSTOMIZATION, name), None, patch)
            .await
    }

    async fn reuse(&self, entry: &Entry) -> Result<Reuse, Error> {
        let Some(pool) = entry.status.pool() else {
            return Ok(Reuse::Free);
        };
        match self.read_pool(pool).await {
            Ok(pool) => Ok(Reuse::decide(Some(&pool), pool.is_managed_by_hive())),
            Err(Error::NotFound { .. }) => Ok(Reuse::decide(None, false)),
            Err(Error::Forbidden { .. }) => Ok(Reuse::Unknown),
            Err(error) => Err(error),
        }
    }

    async fn queue(&self, pool: &str) -> Result<Queue, Error> {
        let labelled = format!("{}={QUEUE_LABEL}", label::POOL_LEASE);
        let leases = self.list_labelled_leases(&labelled).await?;
        Ok(Queue::new(pool, leases.iter().map(|lease| &lease.metadata)))
    }

    async fn write_queue(&self, pool: &str, part: usize, patch: &Value) -> Result<Written, Error> {
        let target = ObjectTarget::Queue(self.namespace());
        self.patch_object_once(target, &queue_name(pool, part), patch)
            .await
    }

    async fn create_queue(
        &self,
        pool: &str,
        part: usize,
        annotations: &Map<String, Value>,
    ) -> Result<CreateResult, Error> {
        let pool = self.read_pool(pool).await?;
        let target = ObjectTarget::Queue(self.namespace());
        self.create_once(target, &new_queue(&pool, part, annotations))
            .await
    }

    async fn clusters(&self) -> Result<Clusters, Error> {
        let requested = time_since_boot();
        match self.list_cluster_deployments().await {
            // The client may have permissions in the pool's namespace only, but clusters are in namespaces of their own.
            Err(error @ Error::Forbidden { .. }) => Ok(Clusters::Unknown(error)),
            deployments => {
                let passed = time_since_boot().saturating_sub(requested);
                let now = self.now().earliest;
                let requested = now.checked_sub(passed).unwrap_or(Timestamp::MIN);
                Ok(Clusters::All(deployments?.with_request_time(requested)))
            }
        }
    }

    fn now(&self) -> ServerTime {
        self.connection.clock.now().unwrap_or_else(|| {
            // No response had a `Date`, and the local clock must not be used to end a lease.
            let now = Timestamp::now();
            ServerTime {
                earliest: now,
                latest: now,
                is_certain: false,
            }
        })
    }
}

/// If the server does not serve the kind, adds to the error which product to install.
fn with_product(kind: &Kind, error: Error) -> Error {
    match error {
        Error::NotServed { resource, server, .. } => Error::NotServed {
            resource,
            product: kind.product,
            server,
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use kcp_client::{Connection, Error, Written, testing::failure};
    use serde_json::json;

    use super::{LeaseStore as _, Store};
    use crate::lease::usage::Clusters;

    /// Sends a status write that the server rejects this number of times. Returns the result, and how often
    /// the write was sent.
    async fn sent(code: u16, turned_away: u32) -> (Result<Written, Error>, u32) {
        let sent = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&sent);
        let connection = Connection::canned(move |_, _| {
            if count.fetch_add(1, Ordering::Relaxed) < turned_away {
                failure(code, "Reason", "too many requests")
            } else {
                (200, json!({}))
            }
        });
        let written = Store::new(&connection, "m").write_status("a", &json!({})).await;
        (written, sent.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_write_that_the_server_throttles_is_sent_again() {
        assert!(matches!(sent(429, 2).await, (Ok(Written::Stored), 3)));
        assert!(matches!(sent(429, 9).await, (Err(Error::Busy { .. }), 3)));
        assert!(
            matches!(sent(503, 1).await, (Ok(Written::Unknown(_)), 1)),
            "it may be stored"
        );
    }

    #[tokio::test]
    async fn the_clusters_are_unknown_if_a_page_of_their_list_is_forbidden() {
        for forbidden in [1, 2] {
            let page = Arc::new(AtomicU32::new(0));
            let connection = Connection::canned(move |_, _| {
                if page.fetch_add(1, Ordering::Relaxed) + 1 == forbidden {
                    failure(403, "Forbidden", "clusterdeployments is forbidden")
                } else {
                    (200, json!({"metadata": {"continue": "next"}, "items": []}))
                }
            });
            let clusters = Store::new(&connection, "m").clusters().await;
            assert!(
                matches!(clusters, Ok(Clusters::Unknown(Error::Forbidden { .. }))),
                "{clusters:?}"
            );
        }
    }
}
