//! Fills the view that rules asked for, from what is kept and by live reads.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use kcp_rules::view::{
    self, MissingParts, Part, View,
    object::{ClusterObject, DeploymentObject, LeaseObject, MachineObject, Object, PoolObject},
};
use serde::de::DeserializeOwned;
use tokio::time;

use super::{
    LiveReads, Projection, ReadError,
    list::List,
    subject::Subject,
    versions::{CLUSTER_API, CONTROL_PLANES, HIVE},
};

/// Of workers one is enough to refuse, and a few to name.
const A_FEW: usize = 3;

const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";

/// Where a view comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// What is kept, and a live read of each part that is not. A little behind.
    Caches,
    /// Live reads alone.
    LiveReads,
}

/// A view that was filled.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) view: View,
    /// Whether any of it was kept.
    pub(crate) from_caches: bool,
    /// What could not be read, each with the reason.
    pub(crate) unread: Vec<String>,
}

/// Collects, beside the parts, what is said of them.
#[derive(Default)]
struct Parts {
    from_caches: AtomicBool,
    unread: Mutex<Vec<String>>,
}

impl LiveReads<'_> {
    /// Fills what is wanted, all at once. What cannot be read stays unknown.
    pub(crate) async fn view(&self, wanted: MissingParts, subject: &Subject, source: Source) -> Filled {
        let Subject { namespace, name, .. } = subject;
        let caches = (source == Source::Caches).then_some(&*self.cluster.caches);
        let parts = Parts::default();
        let in_cluster = subject.cluster.as_deref();
        let cluster = caches.and_then(|caches| caches.clusters.get(namespace, in_cluster?));
        let control_planes = caches.and_then(|caches| caches.control_planes.names(namespace));
        let pools = caches.and_then(|caches| caches.pools.all(namespace));
        let customizations = caches.and_then(|caches| caches.customizations.names(namespace));
        let (machines, cluster, workers, terminating, planes, pools, customizations, deployments, lease) = tokio::join!(
            self.part(
                wanted.machines,
                None,
                "its Machines",
                or_none(self.machines(subject)),
                &parts
            ),
            self.part(
                wanted.cluster,
                cluster,
                "its Cluster",
                or_none(self.cluster(subject)),
                &parts
            ),
            self.part(
                wanted.worker_machines,
                None,
                "the workers of its Cluster",
                or_none(self.worker_machines(subject)),
                &parts
            ),
            self.part(
                wanted.namespace_terminating,
                None,
                "its namespace",
                self.namespace_terminating(namespace),
                &parts
            ),
            self.part(
                wanted.control_planes,
                control_planes,
                "the control planes of its namespace",
                or_none(self.control_planes(namespace)),
                &parts
            ),
            self.part(
                wanted.pools,
                pools.map(|pools| others(pools, name)),
                "other ClusterPools",
                or_none(self.pools(namespace, name)),
                &parts
            ),
            self.part(
                wanted.customizations,
                customizations,
                "the customizations of its namespace",
                or_none(self.customizations(namespace)),
                &parts
            ),
            self.part(
                wanted.cluster_deployments,
                None,
                "ClusterDeployments",
                or_none(self.cluster_deployments(namespace, name)),
                &parts
            ),
            self.part(
                wanted.lease,
                None,
                "its Lease",
                self.lease(namespace, name),
                &parts
            ),
        );
        let mut unread = parts.unread.into_inner().unwrap_or_else(PoisonError::into_inner);
        // In an order of their own, and not that of the answers.
        unread.sort();
        Filled {
            view: View {
                machines,
                cluster,
                worker_machines: workers,
                namespace_terminating: terminating,
                control_planes: planes,
                pools,
                customizations,
                cluster_deployments: deployments,
                lease,
            },
            from_caches: parts.from_caches.into_inner(),
            unread,
        }
    }

    async fn machines(&self, subject: &Subject) -> Result<Vec<view::Machine>, ReadError> {
        let cluster = subject.cluster()?;
        let selector = format!("cluster.x-k8s.io/cluster-name={cluster},{CONTROL_PLANE}");
        let path = self.path(CLUSTER_API, &subject.namespace, "machines").await?;
        let machines: Vec<MachineObject> = self.list(&path, &selector).await?;
        let own = machines
            .into_iter()
            .filter(|machine| machine.belongs_to(Some(&subject.name), Some(cluster)));
        Ok(own.map(view::Machine::from).collect())
    }

    async fn cluster(&self, subject: &Subject) -> Result<Option<view::Cluster>, ReadError> {
        let name = subject.cluster()?;
        let clusters = self.path(CLUSTER_API, &subject.namespace, "clusters").await?;
        let path = format!("{clusters}/{name}");
        let cluster = optional(self.object::<ClusterObject>(&path, Projection::Whole).await)?;
        Ok(cluster.map(view::Cluster::from))
    }

    /// Machines of the Cluster that are not its control plane's, and `MachinePool`s; where those are not served
    /// there are none.
    async fn worker_machines(&self, subject: &Subject) -> Result<Vec<String>, ReadError> {
        let cluster = subject.cluster()?;
        let [machines, pools] = [
            self.path(CLUSTER_API, &subject.namespace, "machines").await?,
            self.path(CLUSTER_API, &subject.namespace, "machinepools").await?,
        ];
        let few = |path: &str, selector: &str| {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("labelSelector", selector)
                .append_pair("limit", &A_FEW.to_string())
                .finish();
            format!("{path}?{query}")
        };
        let of_cluster = format!("cluster.x-k8s.io/cluster-name={cluster}");
        let machines = few(&machines, &format!("{of_cluster},!{CONTROL_PLANE}"));
        let machines: List<Object> = self.metadata(&machines).await?;
        let pools = self.metadata::<List<Object>>(&few(&pools, &of_cluster)).await;
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
        let path = self
            .path(CONTROL_PLANES, namespace, "kubeadmcontrolplanes")
            .await?;
        self.names(&path).await
    }

    async fn pools(&self, namespace: &str, this: &str) -> Result<Vec<view::Pool>, ReadError> {
        let path = self.path(HIVE, namespace, "clusterpools").await?;
        let pools: Vec<PoolObject> = self.list(&path, "").await?;
        Ok(others(pools.into_iter().map(view::Pool::from).collect(), this))
    }

    async fn customizations(&self, namespace: &str) -> Result<Vec<String>, ReadError> {
        let path = self
            .path(HIVE, namespace, "clusterdeploymentcustomizations")
            .await?;
        self.names(&path).await
    }

    /// Those that name the pool, or the customization, that is judged.
    async fn cluster_deployments(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<view::ClusterDeployment>, ReadError> {
        let version = self.version(HIVE).await?;
        let deployments: Vec<DeploymentObject> = self
            .list(&format!("/apis/{HIVE}/{version}/clusterdeployments"), "")
            .await?;
        let concerned = deployments
            .into_iter()
            .filter(|deployment| deployment.concerns(namespace, name));
        Ok(concerned.map(view::ClusterDeployment::from).collect())
    }

    async fn lease(&self, namespace: &str, customization: &str) -> Result<Option<view::Lease>, ReadError> {
        let path =
            format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/kcp-pool-{customization}");
        let lease = optional(self.object::<LeaseObject>(&path, Projection::Whole).await)?;
        Ok(lease.and_then(LeaseObject::held))
    }

    async fn path(&self, group: &'static str, namespace: &str, plural: &str) -> Result<String, ReadError> {
        let version = self.version(group).await?;
        Ok(format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}"))
    }

    async fn metadata<T: DeserializeOwned>(&self, path: &str) -> Result<T, ReadError> {
        self.object(path, Projection::Metadata).await
    }
}

impl LiveReads<'_> {
    /// What is kept, else what `read` gives.
    async fn part<T>(
        &self,
        wanted: bool,
        kept: Option<T>,
        what: &str,
        read: impl Future<Output = Result<T, ReadError>>,
        parts: &Parts,
    ) -> Part<T> {
        if !wanted {
            return Part::default();
        }
        if let Some(kept) = kept {
            parts.from_caches.store(true, Relaxed);
            return kept.into();
        }
        let read = time::timeout_at(self.deadline, read);
        match read.await.unwrap_or(Err(ReadError::TooSlow)) {
            Ok(value) => value.into(),
            // So it is with every control plane that is new.
            Err(ReadError::ClusterUnknown) => Part::default(),

            Err(error) => {
                tracing::warn!(%error, what, "what a rule looks at cannot be read");
                let reason = error.label();
                let mut unread = parts.unread.lock().unwrap_or_else(PoisonError::into_inner);
                unread.push(format!("{what} could not be checked: {reason}"));
                Part::default()
            }
        }
    }
}

/// Of a kind that is not served there are no objects.
async fn or_none<T: Default>(read: impl Future<Output = Result<T, ReadError>>) -> Result<T, ReadError> {
    optional(read.await).map(Option::unwrap_or_default)
}

fn optional<T>(read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(ReadError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

fn others(pools: Vec<view::Pool>, this: &str) -> Vec<view::Pool> {
    pools.into_iter().filter(|pool| pool.name != this).collect()
}

#[cfg(test)]
mod tests;
