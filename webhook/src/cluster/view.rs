//! Reads the objects that rules need, from the caches and the API server.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use kcp_api::{
    Cluster, ClusterDeploymentCustomization, KubeadmConfig, List, Machine, Object as _,
    PartialObjectMetadata,
    kind::{self, Kind},
    names::label,
};
use kcp_rules::{
    topics::leader_migration_change::migration_of_kubeadm_config,
    view::{
        self, MissingParts, Part, View,
        object::{PoolFragment, belongs_to},
    },
};
use serde::de::DeserializeOwned;
use tokio::time;

use super::{
    events::Named,
    kinds::Caches,
    live_reads::{LiveReads, Projection},
    read_error::ReadError,
    subject::Subject,
};

/// The maximum number of workers that the webhook reads. One is enough to deny a deletion, and the message names a few.
const NAMED_WORKERS: usize = 3;

/// The source from which a view is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The caches, and live reads of all kinds that are not cached. The caches lag slightly behind the API server.
    Caches,
    LiveReads,
}

/// The result of reading a view.
#[derive(Debug)]
pub(crate) struct FilledView {
    pub(crate) view: View,
    /// Whether any part comes from a cache.
    pub(crate) has_cached_parts: bool,
}

/// Collects results while the parts of a view are read at the same time.
#[derive(Default)]
struct Progress {
    from_caches: AtomicBool,
    /// What could not be read, and whether a permission is missing.
    unread: Mutex<Vec<(String, bool)>>,
}

impl LiveReads<'_> {
    /// Reads the missing parts all at the same time, from `source` where possible. A part that cannot be read stays
    /// missing.
    #[expect(clippy::too_many_lines, reason = "one read for each part")]
    pub(super) async fn read_view(
        &self,
        missing: MissingParts,
        subject: &Subject,
        all_caches: &Caches,
        source: Source,
    ) -> FilledView {
        let Subject { namespace, name, .. } = subject;
        let caches = (source == Source::Caches).then_some(all_caches);
        let progress = Progress::default();
        // No rule needs the answer, so a failure is none of theirs.
        let access = Progress::default();
        let in_cluster = subject.cluster.as_deref();
        let cluster = caches.and_then(|caches| caches.clusters.get(namespace, in_cluster?));
        let control_planes = caches.and_then(|caches| caches.control_planes.names(namespace));
        let pools = caches.and_then(|caches| caches.pools.all(namespace));
        let customizations = caches.and_then(|caches| caches.customizations.names(namespace));
        let (
            machines,
            cluster,
            workers,
            terminating,
            planes,
            pools,
            customizations,
            deployments,
            customization,
            migrations,
            may_override,
        ) = tokio::join!(
            self.part(
                missing.machines,
                None,
                "the Machines",
                or_none(self.machines(subject)),
                &progress
            ),
            self.part(
                missing.cluster,
                cluster,
                "the Cluster",
                or_none(self.cluster(subject)),
                &progress
            ),
            self.part(
                missing.worker_machines,
                None,
                "the worker Machines of the Cluster",
                or_none(self.worker_machines(subject)),
                &progress
            ),
            self.part(
                missing.namespace_terminating,
                None,
                "the namespace",
                self.namespace_terminating(namespace),
                &progress
            ),
            self.part(
                missing.control_planes,
                control_planes,
                "the control planes in the namespace",
                or_none(self.control_planes(namespace)),
                &progress
            ),
            self.part(
                missing.pools,
                pools.map(|pools| others(pools, name)),
                "the other ClusterPools",
                or_none(self.pools(namespace, name)),
                &progress
            ),
            self.part(
                missing.customizations,
                customizations,
                "the customizations in the namespace",
                or_none(self.customizations(namespace)),
                &progress
            ),
            self.part(
                missing.cluster_deployments,
                None,
                "the ClusterDeployments",
                or_none(self.read_cluster_deployments(subject, &all_caches.cluster_deployments)),
                &progress
            ),
            self.part(
                missing.customization,
                None,
                "the customization",
                or_none(self.customization(subject)),
                &progress
            ),
            self.part(
                missing.migrations,
                None,
                "the KubeadmConfigs of the Machines",
                or_none(self.migrations(subject)),
                &progress
            ),
            self.part(
                missing.may_override,
                None,
                "whether the user may override rules",
                self.check_access(&subject.override_access),
                &access
            ),
        );
        let mut unread = progress
            .unread
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        // Sort, so that the result does not depend on the order in which responses arrive.
        unread.sort();
        FilledView {
            view: View {
                machines,
                cluster,
                worker_machines: workers,
                namespace_terminating: terminating,
                control_planes: planes,
                pools,
                customizations,
                cluster_deployments: deployments,
                customization,
                migrations,
                may_override,
                lacks_permission: !unread.is_empty() && unread.iter().all(|(_, is_forbidden)| *is_forbidden),
                failures: unread.into_iter().map(|(failure, _)| failure).collect(),
            },
            has_cached_parts: progress.from_caches.into_inner(),
        }
    }

    /// Lists the parts of the objects of a kind that have the label of the control plane's Cluster and the label of control
    /// planes.
    async fn list_of_control_plane<T: DeserializeOwned, P>(
        &self,
        subject: &Subject,
        kind: Kind,
        part: impl Fn(T) -> Option<P>,
    ) -> Result<Vec<P>, ReadError> {
        let cluster = subject.cluster()?;
        let selector = format!("{}={cluster},{}", label::CLUSTER_NAME, label::CONTROL_PLANE);
        let path = self.path(kind, &subject.namespace).await?;
        self.list(&path, &selector, part).await
    }

    async fn machines(&self, subject: &Subject) -> Result<Vec<view::Machine>, ReadError> {
        let own = |machine: Machine| {
            belongs_to(&machine, Some(&subject.name), subject.cluster.as_deref()).then(|| (&machine).into())
        };
        self.list_of_control_plane(subject, kind::MACHINE, own).await
    }

    async fn migrations(&self, subject: &Subject) -> Result<Vec<view::Migration>, ReadError> {
        let migration = |config: KubeadmConfig| migration_of_kubeadm_config(&config);
        self.list_of_control_plane(subject, kind::KUBEADM_CONFIG, migration)
            .await
    }

    async fn cluster(&self, subject: &Subject) -> Result<Option<view::Cluster>, ReadError> {
        let Some(name) = &subject.cluster else {
            return Ok(None);
        };
        let clusters = self.path(kind::CLUSTER, &subject.namespace).await?;
        let path = format!("{clusters}/{name}");
        let cluster = optional(self.read_object::<Cluster>(&path, Projection::Whole).await)?;
        Ok(cluster.as_ref().map(view::Cluster::from))
    }

    /// The names of worker Machines and `MachinePool`s of the Cluster. If the API server does not serve `MachinePool`s,
    /// there are none.
    async fn worker_machines(&self, subject: &Subject) -> Result<Vec<String>, ReadError> {
        let Some(cluster) = &subject.cluster else {
            return Ok(Vec::new());
        };
        let [machines, pools] = [
            self.path(kind::MACHINE, &subject.namespace).await?,
            self.path(kind::MACHINE_POOL, &subject.namespace).await?,
        ];
        let first = |path: &str, selector: &str| {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("labelSelector", selector)
                .append_pair("limit", &NAMED_WORKERS.to_string())
                .finish();
            format!("{path}?{query}")
        };
        let of_cluster = format!("{}={cluster}", label::CLUSTER_NAME);
        let machines = first(&machines, &format!("{of_cluster},!{}", label::CONTROL_PLANE));
        let machines: List<Named> = self.metadata(&machines).await?;
        let pools = self.metadata::<List<Named>>(&first(&pools, &of_cluster)).await;
        let pools = optional(pools)?.map_or_else(Vec::new, |list| list.items);
        let workers = machines.items.into_iter().chain(pools);
        Ok(workers.map(|worker| worker.metadata.name).collect())
    }

    async fn namespace_terminating(&self, namespace: &str) -> Result<bool, ReadError> {
        let object: PartialObjectMetadata = self
            .read_object(&format!("/api/v1/namespaces/{namespace}"), Projection::Whole)
            .await?;
        Ok(object.is_deleting())
    }

    async fn control_planes(&self, namespace: &str) -> Result<Vec<String>, ReadError> {
        let path = self.path(kind::KUBEADM_CONTROL_PLANE, namespace).await?;
        self.list_names(&path).await
    }

    async fn pools(&self, namespace: &str, this: &str) -> Result<Vec<view::Pool>, ReadError> {
        let path = self.path(kind::CLUSTER_POOL, namespace).await?;
        let other = |pool: PoolFragment| Some(view::Pool::from(pool)).filter(|pool| pool.name != this);
        self.list(&path, "", other).await
    }

    async fn customizations(&self, namespace: &str) -> Result<Vec<String>, ReadError> {
        let path = self
            .path(kind::CLUSTER_DEPLOYMENT_CUSTOMIZATION, namespace)
            .await?;
        self.list_names(&path).await
    }

    /// The customization to which the object under review refers.
    async fn customization(&self, subject: &Subject) -> Result<Option<view::Customization>, ReadError> {
        let Some((namespace, name)) = &subject.customization else {
            return Ok(None);
        };
        let customizations = self
            .path(kind::CLUSTER_DEPLOYMENT_CUSTOMIZATION, namespace)
            .await?;
        let path = format!("{customizations}/{name}");
        let customization: ClusterDeploymentCustomization =
            self.read_object(&path, Projection::Whole).await?;
        Ok(Some(customization.into()))
    }

    async fn path(&self, kind: Kind, namespace: &str) -> Result<String, ReadError> {
        let Kind { group, plural, .. } = kind;
        let version = self.discover_version(group).await?;
        Ok(format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}"))
    }

    async fn metadata<T: DeserializeOwned>(&self, path: &str) -> Result<T, ReadError> {
        self.read_object(path, Projection::Metadata).await
    }
}

impl LiveReads<'_> {
    /// One part of a view: `cached` if it is known, otherwise the result of `read`. An empty part if the view does not
    /// need it, or if `read` fails.
    async fn part<T>(
        &self,
        missing: bool,
        cached: Option<T>,
        name: &str,
        read: impl Future<Output = Result<T, ReadError>>,
        progress: &Progress,
    ) -> Part<T> {
        if !missing {
            return Part::default();
        }
        if let Some(cached) = cached {
            progress.from_caches.store(true, Relaxed);
            return cached.into();
        }
        let read = time::timeout_at(self.deadline, read);
        match read.await.unwrap_or(Err(ReadError::TooSlow)) {
            Ok(value) => value.into(),
            // Return no warning, because this is normal for a new control plane.
            Err(ReadError::ClusterUnknown) => Part::default(),
            Err(error) => {
                tracing::warn!(%error, name, "cannot read objects that rules need");
                let reason = error.label();
                let mut unread = progress.unread.lock().unwrap_or_else(PoisonError::into_inner);
                let is_forbidden = matches!(error, ReadError::Forbidden(_));
                unread.push((format!("could not read {name}: {reason}"), is_forbidden));
                Part::default()
            }
        }
    }
}

/// Returns an empty result if the API server does not serve the kind.
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
