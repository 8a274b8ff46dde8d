//! Reads the objects that rules need, from the caches and the API server.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use kcp_api::{
    Cluster, ClusterDeploymentCustomization, KubeadmConfig, List, Machine, Object as _,
    PartialObjectMetadata,
    kind::{self, Kind},
    names::label,
};
use kcp_rules::{
    topics::leader_migration_change::migration_of_kubeadm_config,
    view::{
        self, Part, View,
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

impl Caches {
    /// Returns a view with those `parts` that the caches contain. The other parts stay unknown.
    pub(super) fn view(&self, parts: impl IntoIterator<Item = Part>, subject: &Subject) -> View {
        let Subject { namespace, name, .. } = subject;
        let mut view = View::default();
        for part in parts {
            match part {
                Part::Cluster => {
                    let cluster = subject.cluster.as_deref();
                    view.cluster = cluster.and_then(|cluster| self.clusters.get(namespace, cluster));
                }
                Part::ControlPlanes => view.control_planes = self.control_planes.names(namespace),
                Part::Pools => view.pools = self.pools.all(namespace).map(|pools| others(pools, name)),
                Part::Customizations => view.customizations = self.customizations.names(namespace),
                _ => {}
            }
        }
        view
    }
}

impl LiveReads<'_> {
    /// Reads the parts all at the same time, from `source` where possible. A part that cannot be read stays unknown.
    pub(super) async fn read_view(
        &self,
        parts: &BTreeSet<Part>,
        subject: &Subject,
        caches: &Caches,
        source: Source,
    ) -> FilledView {
        let mut view = match source {
            Source::Caches => caches.view(parts.iter().copied(), subject),
            Source::LiveReads => View::default(),
        };
        let unknown: Vec<Part> = parts.iter().copied().filter(|part| !view.knows(*part)).collect();
        let reads = unknown.iter().map(|part| self.read_part(*part, subject, caches));
        let reads = reads.map(|read| time::timeout_at(self.deadline, read));
        let mut failed = Vec::new();
        for (&part, read) in unknown.iter().zip(join_all(reads).await) {
            match read.unwrap_or(Err(ReadError::TooSlow)) {
                Ok(mut read) => view.take(part, &mut read),
                // Return no warning, because this is normal for a new control plane.
                Err(ReadError::ClusterUnknown) => {}
                Err(error) => failed.push((part, error)),
            }
        }
        report(&failed, &mut view);
        FilledView {
            view,
            has_cached_parts: unknown.len() < parts.len(),
        }
    }

    /// A view with only this part.
    async fn read_part(&self, part: Part, subject: &Subject, caches: &Caches) -> Result<View, ReadError> {
        let Subject { namespace, name, .. } = subject;
        let mut view = View::default();
        match part {
            Part::Machines => view.machines = or_none(self.machines(subject)).await?,
            Part::Cluster => view.cluster = or_none(self.cluster(subject)).await?,
            Part::WorkerMachines => view.worker_machines = or_none(self.worker_machines(subject)).await?,
            Part::NamespaceTerminating => {
                view.namespace_terminating = Some(self.namespace_terminating(namespace).await?);
            }
            Part::ControlPlanes => view.control_planes = or_none(self.control_planes(namespace)).await?,
            Part::Pools => view.pools = or_none(self.pools(namespace, name)).await?,
            Part::Customizations => view.customizations = or_none(self.customizations(namespace)).await?,
            Part::ClusterDeployments => {
                let deployments = self.read_cluster_deployments(subject, &caches.cluster_deployments);
                view.cluster_deployments = or_none(deployments).await?;
            }
            Part::Customization => view.customization = or_none(self.customization(subject)).await?,
            Part::Migrations => view.migrations = or_none(self.migrations(subject)).await?,
            Part::MayOverride => view.may_override = Some(self.check_access(&subject.override_access).await?),
        }
        Ok(view)
    }

    /// Lists the objects of a kind that have the label of the control plane's Cluster and the label of control planes. Keeps of
    /// each object what `part` returns.
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

    pub(super) async fn path(&self, kind: Kind, namespace: &str) -> Result<String, ReadError> {
        let Kind { group, plural, .. } = kind;
        let version = self.discover_version(group).await?;
        Ok(format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}"))
    }

    async fn metadata<T: DeserializeOwned>(&self, path: &str) -> Result<T, ReadError> {
        self.read_object(path, Projection::Metadata).await
    }
}

/// Logs the reads that failed, and adds them to the view.
fn report(failed: &[(Part, ReadError)], view: &mut View) {
    for (part, error) in failed {
        tracing::warn!(%error, name = part.objects(), "cannot read objects that rules need");
    }
    // Leave out the permission to override. No rule reads it, so no rule was skipped because of it.
    let of_rules = || failed.iter().filter(|(part, _)| *part != Part::MayOverride);
    let is_forbidden = |(_, error): &(Part, ReadError)| matches!(error, ReadError::Forbidden(_));
    view.failures = of_rules()
        .map(|(part, error)| format!("could not read {}: {}", part.objects(), error.label()))
        .collect();
    view.failures.sort();
    view.lacks_permission = !view.failures.is_empty() && of_rules().all(is_forbidden);
}

/// Returns an empty result if the API server does not serve the kind.
async fn or_none<T: Default>(
    read: impl Future<Output = Result<T, ReadError>>,
) -> Result<Option<T>, ReadError> {
    optional(read.await).map(|read| Some(read.unwrap_or_default()))
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
