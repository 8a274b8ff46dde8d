//! Reads all control planes of one or all namespaces from the management cluster, one namespace after the other. Keeps
//! only the fields that are needed, so that ten thousand control planes take little memory.

use std::collections::{BTreeMap, VecDeque};

use k8s_openapi::api::core::v1::Namespace;
use kcp_api::{
    Cluster, Kind, Machine, MachineHealthCheck, Object,
    control_plane::ControlPlaneWithoutConfig,
    kind::{CLUSTER, MACHINE, MACHINE_HEALTH_CHECK},
    names::label,
};
use kube::{
    Api,
    core::{ApiResource, PartialObjectMeta},
};
use serde::de::DeserializeOwned;

use crate::reads::{failure, management::add_cluster_facts};
use crate::{Action, Connection, Error, ReadLimit, reader::Reader, request::Pages};
use kcp_control_plane::snapshot::{Failure, Reading, Snapshot};

/// Reads control planes with their Machines, Clusters and `MachineHealthChecks`, sorted by namespace and name.
/// `namespace` is none for all namespaces; `selector` is a label selector.
///
/// # Errors
/// The control planes cannot be read, or the pages of a list are not sorted.
pub async fn list(
    reader: &Reader<'_>,
    namespace: Option<&str>,
    selector: Option<&str>,
    limit: ReadLimit,
) -> Result<Vec<Snapshot>, Error> {
    let mut listed = Vec::new();
    for_each(reader, namespace, selector, limit, |snapshot| {
        listed.push(snapshot);
    })
    .await?;
    Ok(listed)
}

/// Like [`list`], but gives each control plane to `visit` as soon as its namespace is read. At any time, only the objects
/// of one namespace and at most one page of each list are in memory.
///
/// # Errors
/// The control planes cannot be read, or the pages of a list are not sorted. Those of earlier namespaces were visited.
pub async fn for_each(
    reader: &Reader<'_>,
    namespace: Option<&str>,
    selector: Option<&str>,
    limit: ReadLimit,
    mut visit: impl FnMut(Snapshot),
) -> Result<(), Error> {
    let lists = Lists {
        reader,
        namespace,
        limit,
    };
    let mut control_planes: Sorted<'_, ControlPlaneWithoutConfig> =
        lists.sorted(Ok(reader.control_planes.clone()), selector);
    let mut machines: Sorted<'_, Machine> =
        lists.sorted(Ok(reader.machines.clone()), Some(label::CONTROL_PLANE));
    let mut clusters: Sorted<'_, Cluster> = lists.sorted(Ok(reader.clusters.clone()), None);
    let mut health_checks: Sorted<'_, MachineHealthCheck> =
        lists.sorted(reader.served.resource(&MACHINE_HEALTH_CHECK), None);
    loop {
        tokio::join!(
            Box::pin(control_planes.fill()),
            Box::pin(machines.fill()),
            Box::pin(clusters.fill()),
            Box::pin(health_checks.fill())
        );
        let disorders = [
            control_planes.disorder.take(),
            machines.disorder.take(),
            clusters.disorder.take(),
            health_checks.disorder.take(),
        ];
        if let Some(error) = disorders.into_iter().flatten().next() {
            return Err(error);
        }
        let Some(namespace) = control_planes.next_namespace().map(str::to_owned) else {
            return control_planes.failure.map_or(Ok(()), Err);
        };
        let (of_namespace, machines, clusters, health_checks) = tokio::join!(
            Box::pin(control_planes.take(&namespace)),
            Box::pin(machines.by_cluster(&MACHINE, &namespace, |machine| machine.spec.cluster_name.clone())),
            Box::pin(clusters.by_cluster(&CLUSTER, &namespace, |cluster| Some(cluster.name().to_owned()))),
            Box::pin(
                health_checks.by_cluster(&MACHINE_HEALTH_CHECK, &namespace, |check| {
                    Some(check.spec.cluster_name.clone())
                })
            )
        );
        let mut related = RelatedObjects {
            machines,
            clusters,
            health_checks,
        };
        let of_namespace = of_namespace.into_iter();
        let mut of_namespace: Vec<Snapshot> = of_namespace
            .map(|ControlPlaneWithoutConfig(control_plane)| control_plane.into())
            .collect();
        of_namespace.sort_by(|a, b| a.control_plane.name().cmp(b.control_plane.name()));
        let missing = |cluster: &str| Error::NotFound {
            action: Action::new("get", &reader.clusters)
                .in_namespace(&namespace)
                .named(cluster),
        };
        for control_plane in of_namespace {
            visit(related.add_to(control_plane, missing));
        }
    }
}

/// Checks that a namespace exists. Succeeds if the user is not allowed to read the namespace.
///
/// # Errors
/// The namespace does not exist.
pub async fn namespace_exists(
    connection: &Connection,
    namespace: &str,
    limit: ReadLimit,
) -> Result<(), Error> {
    match namespace_metadata(connection, namespace, limit).await {
        Err(missing @ Error::NotFound { .. }) => Err(missing),
        Ok(_) | Err(_) => Ok(()),
    }
}

pub(super) async fn namespace_metadata(
    connection: &Connection,
    name: &str,
    limit: ReadLimit,
) -> Result<PartialObjectMeta<Namespace>, Error> {
    let action = Action::new("get", &ApiResource::erase::<Namespace>(&())).named(name);
    let namespaces: Api<Namespace> = Api::all(connection.client.clone());
    let read = connection.read(&action, || namespaces.get_metadata(name));
    connection.run_with_limit(limit, &action, read).await
}

struct Lists<'r> {
    reader: &'r Reader<'r>,
    namespace: Option<&'r str>,
    limit: ReadLimit,
}

impl<'r> Lists<'r> {
    fn sorted<T>(&self, resource: Result<ApiResource, Error>, selector: Option<&str>) -> Sorted<'r, T> {
        let connection = self.reader.connection;
        let (pages, failure) = match resource {
            Ok(resource) => (Some(connection.pages(&resource, self.namespace, selector)), None),
            Err(error) => (None, Some(error)),
        };
        Sorted {
            connection,
            pages,
            limit: self.limit,
            waiting: VecDeque::new(),
            last_namespace: String::new(),
            failure,
            disorder: None,
        }
    }
}

/// A list that is read page by page, and of which one namespace after the other is taken.
struct Sorted<'r, T> {
    connection: &'r Connection,
    /// None if the server does not serve the kind.
    pages: Option<Pages<'r>>,
    limit: ReadLimit,
    /// Objects that have been read and not yet taken.
    waiting: VecDeque<T>,
    /// The last namespace of the pages that have been read.
    last_namespace: String,
    /// Why the list is incomplete.
    failure: Option<Error>,
    /// Set if the pages are not sorted, so that objects of namespaces that were taken before may be missing.
    disorder: Option<Error>,
}

impl<T: Object + DeserializeOwned> Sorted<'_, T> {
    /// Reads pages until an object is waiting, unless the list is complete or a read fails.
    async fn fill(&mut self) {
        while self.waiting.is_empty() && self.failure.is_none() && self.disorder.is_none() {
            match self.next_page().await {
                Ok(Some(page)) => self.waiting.extend(page),
                Ok(None) => return,
                Err(error) => self.failure = Some(error),
            }
        }
    }

    async fn next_page(&mut self) -> Result<Option<Vec<T>>, Error> {
        let Some(pages) = &mut self.pages else {
            return Ok(None);
        };
        let action = pages.action().clone();
        let read = self.connection.run_with_limit(self.limit, &action, pages.next());
        let Some(mut page): Option<Vec<T>> = read.await? else {
            return Ok(None);
        };
        page.sort_by(|a, b| a.namespace().cmp(b.namespace()));
        if page
            .first()
            .is_some_and(|first| *first.namespace() < *self.last_namespace)
        {
            let cause = "the API server did not sort the pages of the list by namespace".to_owned();
            self.disorder = Some(Error::Other { action, cause });
            return Ok(None);
        }
        if let Some(last) = page.last() {
            last.namespace().clone_into(&mut self.last_namespace);
        }
        Ok(Some(page))
    }

    /// The namespace of the first waiting object.
    fn next_namespace(&self) -> Option<&str> {
        self.waiting.front().map(Object::namespace)
    }

    /// Takes the objects of a namespace, and drops those of earlier namespaces.
    async fn take(&mut self, namespace: &str) -> Vec<T> {
        let mut taken = Vec::new();
        loop {
            self.fill().await;
            match self.next_namespace() {
                Some(next) if next <= namespace => taken.extend(self.waiting.pop_front()),
                _ => break,
            }
        }
        taken.retain(|object| object.namespace() == namespace);
        taken
    }

    /// Takes the objects of a namespace, grouped by the name of their Cluster.
    async fn by_cluster(
        &mut self,
        kind: &Kind,
        namespace: &str,
        cluster: impl Fn(&T) -> Option<String>,
    ) -> ByCluster<T> {
        let objects = self.take(namespace).await;
        if let Some(error) = &self.failure {
            return Err(Box::new(failure::of_kind(kind, error)));
        }
        let mut by_cluster: BTreeMap<String, Vec<T>> = BTreeMap::new();
        for object in objects {
            if let Some(cluster) = cluster(&object) {
                by_cluster.entry(cluster).or_default().push(object);
            }
        }
        Ok(by_cluster)
    }
}

/// Objects of one namespace by the name of their Cluster.
type ByCluster<T> = Result<BTreeMap<String, Vec<T>>, Box<Failure>>;

/// Objects that belong to the control planes of a namespace.
struct RelatedObjects {
    machines: ByCluster<Machine>,
    clusters: ByCluster<Cluster>,
    health_checks: ByCluster<MachineHealthCheck>,
}

impl RelatedObjects {
    /// Adds a control plane's related objects to its snapshot. `missing` creates the error for a missing Cluster.
    fn add_to(&mut self, mut snapshot: Snapshot, missing: impl Fn(&str) -> Error) -> Snapshot {
        let itself = &snapshot.control_plane;
        let Some(name) = itself.cluster().map(str::to_owned) else {
            return snapshot;
        };
        match &mut self.machines {
            Ok(machines) => {
                if let Some(of_cluster) = machines.get_mut(&name) {
                    let own = of_cluster.extract_if(.., |machine| itself.has(machine));
                    snapshot.machines = own.collect();
                    snapshot.others.clone_from(of_cluster);
                    // Another control plane of the Cluster has these Machines among its others.
                    if !of_cluster.is_empty() {
                        of_cluster.extend_from_slice(&snapshot.machines);
                    }
                    snapshot.machines.sort_by(|a, b| a.name().cmp(b.name()));
                }
            }
            Err(failure) => snapshot.unread.push((**failure).clone()),
        }
        snapshot.cluster = match &self.clusters {
            Ok(clusters) => {
                let cluster = clusters.get(&name).and_then(|listed| listed.first());
                cluster.cloned().map_or_else(
                    || {
                        let object = failure::object(CLUSTER.kind, Some(&name));
                        Reading::Failed(failure::from_error(object, &missing(&name)))
                    },
                    Reading::Read,
                )
            }
            Err(failure) => Reading::Failed((**failure).clone()),
        };
        let health_checks = match &self.health_checks {
            Ok(all) => Reading::Read(all.get(&name).map(Vec::as_slice).unwrap_or_default()),
            Err(failure) => Reading::Failed((**failure).clone()),
        };
        add_cluster_facts(snapshot, health_checks)
    }
}

#[cfg(test)]
mod tests;
