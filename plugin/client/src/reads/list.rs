//! The management cluster, about all control planes of a namespace, or of all. Four kinds are read, and of each object
//! only what is looked at is kept, so that a thousand control planes are nothing to fear.

use std::collections::BTreeMap;

use kube::core::ApiResource;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::reads::{
    failure,
    management::{linked, unlinked},
    wire::{MachineTies, NamedLink},
};
use crate::{Action, CLUSTER, Error, Kind, MACHINE, MACHINE_HEALTH_CHECK, ReadLimit, reader::Reader};
use kcp_control_plane::{
    control_plane::{MachineHealthCheck, label},
    plan::{
        observed as plan,
        wire::{PlannedControlPlane, PlannedMachine, WireCluster},
    },
    snapshot::{Failure, Management, Reading, management::ClusterLink},
};

/// A control plane without what only a comparison with its Machines' own configurations needs.
#[derive(Deserialize)]
#[serde(try_from = "Box<RawValue>")]
struct ListedControlPlane(PlannedControlPlane);

impl TryFrom<Box<RawValue>> for ListedControlPlane {
    type Error = serde_json::Error;

    fn try_from(object: Box<RawValue>) -> serde_json::Result<Self> {
        let mut planned = PlannedControlPlane::decode(object.get())?;
        planned.spec.forget_config();
        Ok(Self(planned))
    }
}

#[derive(Deserialize)]
#[serde(try_from = "Box<RawValue>")]
struct ListedMachine {
    machine: plan::Machine,
    ties: MachineTies,
}

impl TryFrom<Box<RawValue>> for ListedMachine {
    type Error = serde_json::Error;

    fn try_from(object: Box<RawValue>) -> serde_json::Result<Self> {
        let mut machine = PlannedMachine::decode(object.get())?.machine;
        machine.bootstrap = plan::Bootstrap::Missing;
        Ok(Self {
            machine,
            ties: serde_json::from_str(object.get())?,
        })
    }
}

#[derive(Deserialize)]
#[serde(try_from = "Box<RawValue>")]
struct ListedCluster {
    named: NamedLink,
    cluster: plan::Cluster,
}

impl TryFrom<Box<RawValue>> for ListedCluster {
    type Error = serde_json::Error;

    fn try_from(object: Box<RawValue>) -> serde_json::Result<Self> {
        Ok(Self {
            named: serde_json::from_str(object.get())?,
            cluster: serde_json::from_str::<WireCluster>(object.get())?.into(),
        })
    }
}

/// Reads the control planes of a namespace, or of all, by namespace and name: those with the labels of a selector, or
/// all of them.
///
/// # Errors
/// When the control planes themselves cannot be read.
pub async fn list(
    reader: &Reader<'_>,
    namespace: Option<&str>,
    selector: Option<&str>,
    limit: ReadLimit,
) -> Result<Vec<Management>, Error> {
    let lists = Lists {
        reader,
        namespace,
        limit,
    };
    let health_checks = reader.served.resource(&MACHINE_HEALTH_CHECK);
    let (control_planes, machines, clusters, health_checks) = tokio::join!(
        Box::pin(lists.all(Ok(reader.control_planes.clone()), selector)),
        Box::pin(lists.all(Ok(reader.machines.clone()), Some(label::CONTROL_PLANE))),
        Box::pin(lists.all(Ok(reader.clusters.clone()), None)),
        Box::pin(lists.all(health_checks, None))
    );
    let mut context = ReviewContext {
        machines: by_cluster(&MACHINE, machines, |listed: &ListedMachine| {
            Some((
                listed.machine.machine.namespace.clone(),
                listed.machine.machine.cluster.clone()?,
            ))
        }),
        clusters: by_cluster(&CLUSTER, clusters, |listed: &ListedCluster| {
            Some((listed.named.namespace.clone(), listed.named.link.name.clone()))
        }),
        health_checks: by_cluster(
            &MACHINE_HEALTH_CHECK,
            health_checks,
            |check: &MachineHealthCheck| Some((check.namespace.clone(), check.cluster.clone())),
        ),
    };
    let mut control_planes: Vec<plan::Observed> = control_planes?
        .into_iter()
        .map(|ListedControlPlane(planned)| planned.into())
        .collect();
    control_planes.sort_by(|a, b| {
        let (a, b) = (&a.control_plane, &b.control_plane);
        (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name))
    });
    let missing = |key: &Key| Error::NotFound {
        action: Action::new("get", &reader.clusters)
            .in_namespace(&key.0)
            .named(&key.1),
    };
    Ok(control_planes
        .into_iter()
        .map(|control_plane| context.around(control_plane, missing))
        .collect())
}

struct Lists<'r> {
    reader: &'r Reader<'r>,
    namespace: Option<&'r str>,
    limit: ReadLimit,
}

impl Lists<'_> {
    async fn all<T: DeserializeOwned>(
        &self,
        resource: Result<ApiResource, Error>,
        selector: Option<&str>,
    ) -> Result<Vec<T>, Error> {
        let resource = resource?;
        let mut action = Action::new("list", &resource);
        action.namespace = self.namespace.map(str::to_owned);
        let connection = self.reader.connection;
        let read = connection.list(&resource, self.namespace, selector);
        connection.within(self.limit, &action, read).await
    }
}

/// Namespace and name of a Cluster.
type Key = (String, String);

/// Objects by the Cluster that they belong to.
type ByCluster<T> = Result<BTreeMap<Key, Vec<T>>, Box<Failure>>;

fn by_cluster<T>(kind: &Kind, read: Result<Vec<T>, Error>, key: impl Fn(&T) -> Option<Key>) -> ByCluster<T> {
    let objects = read.map_err(|error| Box::new(failure::of_all(kind, &error)))?;
    let mut by_cluster: BTreeMap<Key, Vec<T>> = BTreeMap::new();
    for object in objects {
        if let Some(key) = key(&object) {
            by_cluster.entry(key).or_default().push(object);
        }
    }
    Ok(by_cluster)
}

/// What there is beside control planes.
struct ReviewContext {
    machines: ByCluster<ListedMachine>,
    clusters: ByCluster<ListedCluster>,
    health_checks: ByCluster<MachineHealthCheck>,
}

impl ReviewContext {
    /// Gives a control plane what is its own. `missing` makes the error for a Cluster that is not there.
    fn around(&mut self, mut control_plane: plan::Observed, missing: impl Fn(&Key) -> Error) -> Management {
        let itself = &control_plane.control_plane;
        let Some(cluster) = itself.cluster.clone() else {
            return unlinked(control_plane);
        };
        let key = (itself.namespace.clone(), cluster);
        let mut unread = Vec::new();
        let mut ties: Vec<MachineTies> = Vec::new();
        match &mut self.machines {
            Ok(machines) => {
                if let Some(of_cluster) = machines.get_mut(&key) {
                    let own = of_cluster.extract_if(.., |listed| itself.has(&listed.machine.machine));
                    (control_plane.machines, ties) = own.map(|listed| (listed.machine, listed.ties)).unzip();
                    let by_name = |machine: &plan::Machine| machine.machine.name.clone();
                    control_plane.machines.sort_by_cached_key(by_name);
                }
            }
            Err(failure) => unread.push((**failure).clone()),
        }
        let link: Reading<ClusterLink>;
        (link, control_plane.cluster) = match &self.clusters {
            Ok(clusters) => {
                if let Some(listed) = clusters.get(&key).and_then(|listed| listed.first()) {
                    (Reading::Read(listed.named.link.clone()), listed.cluster.clone())
                } else {
                    let object = failure::object(CLUSTER.kind, Some(&key.1));
                    let failure = failure::of(object, &missing(&key));
                    (Reading::Failed(failure), plan::Cluster::unread())
                }
            }
            Err(failure) => (Reading::Failed((**failure).clone()), plan::Cluster::unread()),
        };
        let health_checks = match &self.health_checks {
            Ok(all) => Reading::Read(all.get(&key).map(Vec::as_slice).unwrap_or_default()),
            Err(failure) => Reading::Failed((**failure).clone()),
        };
        linked(control_plane, &ties, link, health_checks, unread)
    }
}

#[cfg(test)]
mod tests;
