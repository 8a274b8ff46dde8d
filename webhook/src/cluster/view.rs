//! Fills the view that rules asked for, by live reads.

use std::fmt::Display;

use jiff::{SignedDuration, Timestamp};
use kcp_rules::view::{self, Part, View, Wanted};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use tokio::time;

use super::{
    LiveReads, Projection, ReadError, is_path_segment,
    versions::{CLUSTER_API, CONTROL_PLANES},
};

/// A longer list is not read at all: what a rule says of half a list would be wrong, and memory is bounded.
const LIST_LIMIT: usize = 500;

/// Of workers one is enough to refuse, and a few to name.
const A_FEW: usize = 3;

const HIVE: &str = "hive.openshift.io/v1";
const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";

/// The object that is judged. Its names are put into paths and selectors, and are what Kubernetes allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    namespace: String,
    name: String,
    /// The Cluster it belongs to, for Cluster API's kinds.
    cluster: Option<String>,
}

impl Subject {
    /// None when a name is none that Kubernetes allows: the review's body says what it likes.
    pub(crate) fn new(namespace: &str, name: &str, cluster: Option<&str>) -> Option<Self> {
        // A name that is yet to be generated is empty, and no rule looks for what goes with it.
        let name_given = Some(name).filter(|name| !name.is_empty());
        let allowed = [Some(namespace), name_given, cluster]
            .into_iter()
            .flatten()
            .all(is_path_segment);
        allowed.then(|| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            cluster: cluster.map(str::to_owned),
        })
    }

    fn cluster(&self) -> Result<&str, ReadError> {
        self.cluster.as_deref().ok_or(ReadError::ClusterUnknown)
    }
}

#[derive(Deserialize)]
struct List<T> {
    #[serde(default)]
    metadata: ListMetadata,
    /// Go writes an empty list of metadata as null.
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(rename = "continue")]
    more: Option<String>,
}

impl<T> List<T> {
    /// The members, if these are all of them.
    fn complete(self) -> Result<Vec<T>, ReadError> {
        match self.metadata.more {
            Some(more) if !more.is_empty() => Err(ReadError::TooMany(LIST_LIMIT)),
            _ => Ok(self.items.unwrap_or_default()),
        }
    }
}

#[derive(Deserialize)]
struct Object<S = IgnoredAny, T = IgnoredAny> {
    metadata: Metadata,
    spec: Option<S>,
    status: Option<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
}

impl<S, T> Object<S, T> {
    fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl LiveReads<'_> {
    /// Reads what is wanted, all at once. What cannot be read stays unknown.
    pub(crate) async fn view(&self, wanted: Wanted, subject: &Subject) -> View {
        let Subject { namespace, name, .. } = subject;
        let (machines, cluster, workers, terminating, planes, pools, customizations, deployments, lease) = tokio::join!(
            self.part(wanted.machines, self.machines(subject)),
            self.part(wanted.cluster, self.cluster(subject)),
            self.part(wanted.worker_machines, self.worker_machines(subject)),
            self.part(
                wanted.namespace_terminating,
                self.namespace_terminating(namespace)
            ),
            self.part(wanted.control_planes, self.control_planes(namespace)),
            self.part(wanted.pools, self.pools(namespace, name)),
            self.part(wanted.customizations, self.customizations(namespace)),
            self.part(
                wanted.cluster_deployments,
                self.cluster_deployments(namespace, name)
            ),
            self.part(wanted.lease, self.lease(namespace, name)),
        );
        View {
            machines,
            cluster,
            worker_machines: workers,
            namespace_terminating: terminating,
            control_planes: planes,
            pools,
            customizations,
            cluster_deployments: deployments,
            lease,
        }
    }

    async fn machines(&self, subject: &Subject) -> Result<Vec<view::Machine>, ReadError> {
        #[derive(Deserialize)]
        struct Spec {
            version: Option<String>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Status {
            node_ref: Option<Reference>,
        }
        let cluster = subject.cluster()?;
        let selector = format!("cluster.x-k8s.io/cluster-name={cluster},{CONTROL_PLANE}");
        let path = format!("{}/machines", self.cluster_api_path(&subject.namespace).await?);
        let machines: Vec<Object<Spec, Status>> = self.list(&path, &selector).await?;
        let machine = |machine: Object<Spec, Status>| view::Machine {
            deleting: machine.is_deleting(),
            version: machine.spec.and_then(|spec| spec.version),
            created: machine.metadata.creation_timestamp,
            has_node: machine.status.is_some_and(|status| status.node_ref.is_some()),
            name: machine.metadata.name,
        };
        Ok(machines.into_iter().map(machine).collect())
    }

    async fn cluster(&self, subject: &Subject) -> Result<Option<view::Cluster>, ReadError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            #[serde(default)]
            paused: bool,
            control_plane_ref: Option<KindReference>,
        }
        let name = subject.cluster()?;
        let path = format!(
            "{}/clusters/{name}",
            self.cluster_api_path(&subject.namespace).await?
        );
        let Some(cluster) = optional(self.object::<Object<Spec>>(&path, Projection::Whole).await)? else {
            return Ok(None);
        };
        let control_plane = cluster
            .spec
            .as_ref()
            .and_then(|spec| spec.control_plane_ref.as_ref());
        Ok(Some(view::Cluster {
            deleting: cluster.is_deleting(),
            paused: cluster.spec.as_ref().is_some_and(|spec| spec.paused),
            control_plane: control_plane
                .filter(|reference| reference.kind == "KubeadmControlPlane")
                .map(|reference| reference.name.clone()),
            name: cluster.metadata.name,
        }))
    }

    /// Machines of the Cluster that are not its control plane's, and `MachinePool`s; where those are not served
    /// there are none.
    async fn worker_machines(&self, subject: &Subject) -> Result<Vec<String>, ReadError> {
        let cluster = subject.cluster()?;
        let path = self.cluster_api_path(&subject.namespace).await?;
        let few = |resource: &str, selector: &str| {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("labelSelector", selector)
                .append_pair("limit", &A_FEW.to_string())
                .finish();
            format!("{path}/{resource}?{query}")
        };
        let of_cluster = format!("cluster.x-k8s.io/cluster-name={cluster}");
        let machines = few("machines", &format!("{of_cluster},!{CONTROL_PLANE}"));
        let machines: List<Object> = self.metadata(&machines).await?;
        let pools = self
            .metadata::<List<Object>>(&few("machinepools", &of_cluster))
            .await;
        let pools = optional(pools)?.and_then(|list| list.items).unwrap_or_default();
        let workers = machines.items.into_iter().flatten().chain(pools);
        Ok(workers.map(|worker| worker.metadata.name).collect())
    }

    async fn namespace_terminating(&self, namespace: &str) -> Result<bool, ReadError> {
        let object: Object = self
            .object(&format!("/api/v1/namespaces/{namespace}"), Projection::Whole)
            .await?;
        Ok(object.is_deleting())
    }

    async fn control_planes(&self, namespace: &str) -> Result<Vec<String>, ReadError> {
        let version = self.version(CONTROL_PLANES).await?;
        let path = format!("/apis/{CONTROL_PLANES}/{version}/namespaces/{namespace}/kubeadmcontrolplanes");
        self.names(&path).await
    }

    async fn pools(&self, namespace: &str, this: &str) -> Result<Vec<view::Pool>, ReadError> {
        #[derive(Deserialize)]
        struct Spec {
            #[serde(default)]
            inventory: Option<Vec<Reference>>,
        }
        let path = format!("/apis/{HIVE}/namespaces/{namespace}/clusterpools");
        let pools: Vec<Object<Spec>> = self.list(&path, "").await?;
        let pool = |pool: Object<Spec>| view::Pool {
            deleting: pool.is_deleting(),
            inventory: pool
                .spec
                .and_then(|spec| spec.inventory)
                .into_iter()
                .flatten()
                .map(|entry| entry.name)
                .collect(),
            name: pool.metadata.name,
        };
        Ok(pools
            .into_iter()
            .filter(|pool| pool.metadata.name != this)
            .map(pool)
            .collect())
    }

    async fn customizations(&self, namespace: &str) -> Result<Vec<String>, ReadError> {
        let path = format!("/apis/{HIVE}/namespaces/{namespace}/clusterdeploymentcustomizations");
        self.names(&path).await
    }

    /// Those that name the pool, or the customization, that is judged; where none are served there are none.
    async fn cluster_deployments(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<view::ClusterDeployment>, ReadError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            cluster_pool_ref: Option<PoolReference>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct PoolReference {
            namespace: String,
            pool_name: String,
            claim_name: Option<String>,
            cluster_deployment_customization: Option<Reference>,
        }
        let deployments = self
            .list::<Object<Spec>>(&format!("/apis/{HIVE}/clusterdeployments"), "")
            .await;
        let deployments = optional(deployments)?.unwrap_or_default();
        let deployments = deployments.into_iter().filter_map(|deployment| {
            let deleting = deployment.is_deleting();
            let reference = deployment.spec?.cluster_pool_ref?;
            let customization = reference
                .cluster_deployment_customization
                .map(|customization| customization.name);
            let concerns = reference.pool_name == name || customization.as_deref() == Some(name);
            (reference.namespace == namespace && concerns).then(|| view::ClusterDeployment {
                name: deployment.metadata.name,
                pool: reference.pool_name,
                claim: reference.claim_name.filter(|claim| !claim.is_empty()),
                customization,
                deleting,
            })
        });
        Ok(deployments.collect())
    }

    async fn lease(&self, namespace: &str, customization: &str) -> Result<Option<view::Lease>, ReadError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            holder_identity: Option<String>,
            renew_time: Option<Timestamp>,
            lease_duration_seconds: Option<i64>,
        }
        let path =
            format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/kcp-pool-{customization}");
        let Some(lease) = optional(self.object::<Object<Spec>>(&path, Projection::Whole).await)? else {
            return Ok(None);
        };
        Ok(lease.spec.and_then(|spec| {
            let duration = spec.lease_duration_seconds.map(SignedDuration::from_secs);
            Some(view::Lease {
                holder: spec.holder_identity.filter(|holder| !holder.is_empty())?,
                expires: spec
                    .renew_time
                    .zip(duration)
                    .and_then(|(at, lasts)| at.checked_add(lasts).ok()),
            })
        }))
    }

    async fn cluster_api_path(&self, namespace: &str) -> Result<String, ReadError> {
        let version = self.version(CLUSTER_API).await?;
        Ok(format!("/apis/{CLUSTER_API}/{version}/namespaces/{namespace}"))
    }

    /// The members of a list, whole.
    async fn list<T: DeserializeOwned>(&self, path: &str, selector: &str) -> Result<Vec<T>, ReadError> {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("labelSelector", selector)
            .append_pair("limit", &LIST_LIMIT.to_string())
            .finish();
        let list: List<T> = self.object(&format!("{path}?{query}"), Projection::Whole).await?;
        list.complete()
    }

    /// The names of the members of a list.
    async fn names(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let list: List<Object> = self.metadata(&format!("{path}?limit={LIST_LIMIT}")).await?;
        Ok(list
            .complete()?
            .into_iter()
            .map(|object| object.metadata.name)
            .collect())
    }

    async fn metadata<T: DeserializeOwned>(&self, path: &str) -> Result<T, ReadError> {
        self.object(path, Projection::Metadata).await
    }
}

#[derive(Deserialize)]
struct Reference {
    name: String,
}

#[derive(Deserialize)]
struct KindReference {
    kind: String,
    name: String,
}

impl LiveReads<'_> {
    async fn part<T>(&self, wanted: bool, read: impl Future<Output = Result<T, ReadError>>) -> Part<T> {
        if !wanted {
            return Part::default();
        }
        let failed = |error: &dyn Display| {
            tracing::warn!(%error, "what a rule looks at cannot be read");
            Part::default()
        };
        match time::timeout_at(self.deadline, read).await {
            Ok(Ok(value)) => value.into(),
            // So it is with every control plane that is new.
            Ok(Err(ReadError::ClusterUnknown)) => Part::default(),
            Ok(Err(error)) => failed(&error),
            Err(_) => failed(&ReadError::TooSlow),
        }
    }
}

fn optional<T>(read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(ReadError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
