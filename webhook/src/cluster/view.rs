//! Fills the view that rules asked for, by live reads.

use std::fmt::Display;

use kcp_rules::view::{
    self, Part, View, Wanted,
    object::{ClusterObject, DeploymentObject, LeaseObject, MachineObject, Object, PoolObject},
};
use serde::{Deserialize, de::DeserializeOwned};
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
        let cluster = subject.cluster()?;
        let selector = format!("cluster.x-k8s.io/cluster-name={cluster},{CONTROL_PLANE}");
        let path = format!("{}/machines", self.cluster_api_path(&subject.namespace).await?);
        let machines: Vec<MachineObject> = self.list(&path, &selector).await?;
        let own = machines
            .into_iter()
            .filter(|machine| machine.belongs_to(Some(&subject.name), Some(cluster)));
        Ok(own.map(view::Machine::from).collect())
    }

    async fn cluster(&self, subject: &Subject) -> Result<Option<view::Cluster>, ReadError> {
        let name = subject.cluster()?;
        let path = format!(
            "{}/clusters/{name}",
            self.cluster_api_path(&subject.namespace).await?
        );
        let cluster = optional(self.object::<ClusterObject>(&path, Projection::Whole).await)?;
        Ok(cluster.map(view::Cluster::from))
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
        let path = format!("/apis/{HIVE}/namespaces/{namespace}/clusterpools");
        let pools: Vec<PoolObject> = self.list(&path, "").await?;
        let others = pools.into_iter().filter(|pool| pool.metadata.name != this);
        Ok(others.map(view::Pool::from).collect())
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
        let deployments = self
            .list::<DeploymentObject>(&format!("/apis/{HIVE}/clusterdeployments"), "")
            .await;
        let concerned = optional(deployments)?
            .into_iter()
            .flatten()
            .filter(|deployment| deployment.concerns(namespace, name));
        Ok(concerned.map(view::ClusterDeployment::from).collect())
    }

    async fn lease(&self, namespace: &str, customization: &str) -> Result<Option<view::Lease>, ReadError> {
        let path =
            format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/kcp-pool-{customization}");
        let lease = optional(self.object::<LeaseObject>(&path, Projection::Whole).await)?;
        Ok(lease.and_then(LeaseObject::held))
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
