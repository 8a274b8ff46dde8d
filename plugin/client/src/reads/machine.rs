//! Reads the facts that decide whether a Machine may be changed.

use kcp_api::{
    KubeadmControlPlane, Machine, MachineHealthCheck, Object as _, PartialObjectMetadata, decode,
    kind::MACHINE_HEALTH_CHECK, names::label,
};
use serde_json::value::RawValue;
use thiserror::Error as ThisError;

use crate::{
    Action, Error,
    reader::Reader,
    reads::change::{LIMIT, read_everything},
    update::ReadObject,
};
use kcp_control_plane::snapshot::{
    change::{ChangeSnapshot, MachineObject, MachineSnapshot},
    management::selects,
};

const MAX_HINT_NAMES: usize = 10;

#[derive(Debug)]
pub enum FoundMachine {
    OfControlPlane(Box<MachineSnapshot>),
    /// The Machine does not belong to a `KubeadmControlPlane`.
    Other {
        object: String,
        why: String,
    },
}

impl ReadObject for FoundMachine {
    fn object(&self) -> &str {
        match self {
            Self::OfControlPlane(machine) => machine.object(),
            Self::Other { object, .. } => object,
        }
    }

    fn object_at_start(&self) -> &str {
        match self {
            Self::OfControlPlane(machine) => machine.object_at_start(),
            Self::Other { object, .. } => object,
        }
    }
}

#[derive(Debug, ThisError)]
pub enum ReadMachineError {
    #[error(transparent)]
    NoSuchMachine(#[from] NoSuchMachine),
    #[error(transparent)]
    Other(#[from] Error),
}

#[derive(Debug, ThisError)]
#[error("{cause}")]
pub struct NoSuchMachine {
    cause: Error,
    /// The names of control plane Machines. Those that are most similar to the requested name come first.
    known: Vec<String>,
    namespace: String,
}

impl NoSuchMachine {
    pub(crate) fn new(cause: Error, mut known: Vec<String>, name: &str, namespace: &str) -> Self {
        let in_common = |known: &String| {
            known
                .bytes()
                .zip(name.bytes())
                .take_while(|(a, b)| a == b)
                .count()
        };
        known.sort();
        known.sort_by_key(|known| std::cmp::Reverse(in_common(known)));
        Self {
            cause,
            known,
            namespace: namespace.to_owned(),
        }
    }

    pub fn hint(&self) -> String {
        let Self { known, namespace, .. } = self;
        let shown: Vec<&str> = known.iter().take(MAX_HINT_NAMES).map(String::as_str).collect();
        let more = match known.len().saturating_sub(MAX_HINT_NAMES) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        if shown.is_empty() {
            format!(
                "no control plane in namespace {namespace} has Machines; choose another namespace with -n"
            )
        } else {
            let shown = shown.join(", ");
            format!("Machines of control planes in namespace {namespace}: {shown}{more}")
        }
    }
}

/// Reads a Machine, its control plane and all related facts.
pub async fn read_machine(
    reader: &Reader<'_>,
    name: &str,
    with_health_checks: bool,
) -> Result<FoundMachine, ReadMachineError> {
    let connection = reader.connection;
    let namespace = &connection.namespace;
    let text = match connection
        .get_text(&reader.machine_resource, namespace, name)
        .await
    {
        Ok(text) => text,
        Err(error @ Error::NotFound { .. }) => {
            return Err(no_such_machine(reader, name, error).await.into());
        }
        Err(error) => return Err(error.into()),
    };
    let object_at_start = text.clone();
    let object = decode_machine(reader, name, &text)?;
    let control_plane = match object.control_plane() {
        Ok(control_plane) => control_plane,
        Err(why) => return Ok(FoundMachine::Other { object: text, why }),
    };
    let read = read_everything(reader, namespace, control_plane, LIMIT);
    let mut context = Box::pin(read).await?;
    if let Some(why) = cluster_mismatch(&object.machine, context.control_plane()) {
        return Ok(FoundMachine::Other { object: text, why });
    }
    let health_checks = if with_health_checks {
        health_checks(reader, &object, context.control_plane().cluster()).await?
    } else {
        Vec::new()
    };
    // Read all Machines again: querying etcd takes seconds, in which another Machine may have been deleted.
    let text = refresh_machines(reader, &mut context, name).await?;
    let object = decode_machine(reader, name, &text)?;
    let machine = MachineSnapshot {
        object,
        json_at_start: object_at_start,
        control_plane_snapshot: context,
        health_checks,
    };
    if machine.machine().is_some() {
        return Ok(FoundMachine::OfControlPlane(Box::new(machine)));
    }
    let control_plane = &machine.control_plane_snapshot.control_plane().name();
    let why = format!(
        "a label of the Machine refers to control plane {control_plane}, which belongs to another \
        Cluster"
    );
    Ok(FoundMachine::Other { object: text, why })
}

/// Why a Machine does not belong to the control plane that its ownerReference or label names; none if it does. The controller
/// finds its Machines by the label with the Cluster's name.
fn cluster_mismatch(machine: &Machine, control_plane: &KubeadmControlPlane) -> Option<String> {
    let cluster = control_plane.cluster()?;
    let label = machine.label(label::CLUSTER_NAME);
    let is_owner = machine.control_plane() == Some(control_plane.name());
    if label == Some(cluster) || !is_owner {
        return None;
    }
    let name = control_plane.name();
    let label = label.map_or_else(
        || format!("the Machine has no label {}", label::CLUSTER_NAME),
        |label| {
            format!(
                "the Machine's label {} names Cluster {label}",
                label::CLUSTER_NAME
            )
        },
    );
    Some(format!(
        "the Machine's ownerReference names control plane {name} of Cluster {cluster}, but {label}, so no controller \
         manages the Machine; correct the label or the ownerReference with: kubectl edit machine {} \
         -n {}",
        machine.name(),
        machine.namespace()
    ))
}

/// Reads the Machines again. Returns a warning for each Machine, other than the deleted one, whose deletion began after
/// the check.
pub async fn read_concurrent_deletions(deleted: &MachineSnapshot, reader: &Reader<'_>) -> Vec<String> {
    let machines = match list_machines(reader, &deleted.observed().control_plane).await {
        Ok(machines) => machines.into_iter().map(|(_, machine)| machine),
        Err(error) => {
            return vec![format!(
                "could not check whether another Machine is being deleted at the same time: {error}"
            )];
        }
    };
    let had_begun = |name: &str| {
        let mut before = deleted.observed().machines.iter();
        name == deleted.object.name()
            || before.any(|machine| machine.name() == name && machine.deletion_timestamp().is_some())
    };
    machines
        .filter(|machine| deleted.observed().control_plane.has_machine(machine))
        .filter(|machine| machine.deletion_timestamp().is_some() && !had_begun(machine.name()))
        .map(|machine| {
            format!(
                "Machine {} is also being deleted; its deletion began after this command's checks, and etcd loses \
                the members of both Machines",
                machine.name()
            )
        })
        .collect()
}

fn action(reader: &Reader<'_>, verb: &'static str) -> Action {
    Action::new(verb, &reader.machine_resource).in_namespace(&reader.connection.namespace)
}

fn decode_machine(reader: &Reader<'_>, name: &str, text: &str) -> Result<MachineObject, Error> {
    MachineObject::decode(text)
        .map_err(|source| Error::malformed(action(reader, "get").with_name(name), source))
}

pub(super) async fn no_such_machine(reader: &Reader<'_>, name: &str, error: Error) -> NoSuchMachine {
    let namespace = &reader.connection.namespace;
    let of_control_planes = Some(label::CONTROL_PLANE);
    let listed: Result<Vec<PartialObjectMetadata>, Error> = reader
        .connection
        .list_metadata(&reader.machine_resource, Some(namespace), of_control_planes)
        .await;
    // Ignore errors: the names are only for the hint.
    let names = listed.unwrap_or_default().into_iter();
    let names = names.map(|object| object.name().to_owned());
    NoSuchMachine::new(error, names.collect(), name, namespace)
}

/// Lists the control plane Machines of a Cluster with their JSON.
async fn list_machines(
    reader: &Reader<'_>,
    control_plane: &KubeadmControlPlane,
) -> Result<Vec<(Box<RawValue>, Machine)>, Error> {
    let namespace = &reader.connection.namespace;
    let cluster = control_plane.cluster().unwrap_or_default();
    let selector = format!("{}={cluster},{}", label::CLUSTER_NAME, label::CONTROL_PLANE);
    let objects: Vec<Box<RawValue>> = reader
        .connection
        .list(&reader.machine_resource, Some(namespace), Some(&selector))
        .await?;
    let decoded = objects.into_iter().map(|object| {
        let machine = decode(object.get())?;
        Ok((object, machine))
    });
    decoded
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| Error::malformed(action(reader, "list"), source))
}

/// Reads the Machines of a control plane again. Returns the JSON of the Machine `name`.
async fn refresh_machines(
    reader: &Reader<'_>,
    context: &mut ChangeSnapshot,
    name: &str,
) -> Result<String, Error> {
    let control_plane = &context.observed.control_plane;
    let machines = list_machines(reader, control_plane).await?;
    let mut texts = machines.iter();
    let text = texts.find(|(_, machine)| machine.name() == name);
    let text = text.map(|(text, _)| text.get().to_owned());
    let own = machines.into_iter().map(|(_, machine)| machine);
    let own: Vec<Machine> = own.filter(|machine| control_plane.has_machine(machine)).collect();
    update_machines(&mut context.observed.machines, own.into_iter());
    text.ok_or_else(|| Error::NotFound {
        action: action(reader, "get").with_name(name),
    })
}

/// Replaces Machines with newer versions, but keeps the infrastructure and bootstrap objects that were read for them.
fn update_machines(machines: &mut Vec<Machine>, now: impl Iterator<Item = Machine>) {
    let before = std::mem::take(machines);
    machines.extend(now.map(|machine| {
        let known = before.iter().find(|known| known.name() == machine.name());
        match known.cloned() {
            Some(Machine {
                infrastructure,
                bootstrap,
                ..
            }) => Machine {
                infrastructure,
                bootstrap,
                ..machine
            },
            None => machine,
        }
    }));
    machines.sort_by(|a, b| a.name().cmp(b.name()));
}

/// Lists the `MachineHealthChecks` that select a Machine.
async fn health_checks(
    reader: &Reader<'_>,
    object: &MachineObject,
    cluster: Option<&str>,
) -> Result<Vec<MachineHealthCheck>, Error> {
    let resource = reader.served.resource(&MACHINE_HEALTH_CHECK)?;
    let namespace = &reader.connection.namespace;
    let mut checks: Vec<MachineHealthCheck> =
        reader.connection.list(&resource, Some(namespace), None).await?;
    checks
        .retain(|check| Some(check.spec.cluster_name.as_str()) == cluster && selects(check, &object.machine));
    checks.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use kcp_api::{
        Object as _,
        kind::MACHINE,
        machine::Infrastructure,
        names::{annotation, label},
    };
    use kcp_control_plane::testing::{
        objects::annotate,
        plan::{machine, observed, template},
    };

    use super::{NoSuchMachine, cluster_mismatch, update_machines};
    use crate::{Action, Error};

    fn hint(known: &[String]) -> String {
        let action = Action::new("get", &MACHINE.api_resource("v1beta2"))
            .in_namespace("d")
            .with_name("edge-b");
        let error = NoSuchMachine::new(Error::NotFound { action }, known.to_vec(), "edge-b", "d");
        assert_eq!(
            error.to_string(),
            "cannot get machines \"edge-b\" in namespace \"d\": not found"
        );
        error.hint()
    }

    #[test]
    fn an_unknown_name_is_answered_with_known_ones() {
        assert_eq!(
            hint(&[]),
            "no control plane in namespace d has Machines; choose another namespace with -n"
        );
        let known = ["core-a", "edge-c", "edge-a"].map(str::to_owned);
        assert_eq!(
            hint(&known),
            "Machines of control planes in namespace d: edge-a, edge-c, core-a"
        );
        let many: Vec<String> = (10..25).map(|number| format!("m{number}")).collect();
        assert_eq!(
            hint(&many),
            "Machines of control planes in namespace d: m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, and 5 more"
        );
    }

    #[test]
    fn a_machine_whose_label_and_owner_name_different_clusters_belongs_to_neither() {
        let observed = observed();
        let control_plane = &observed.control_plane;
        let why = |cluster: Option<&str>| {
            let mut machine = observed.machines[0].clone();
            let labels = machine.metadata.labels.get_or_insert_default();
            match cluster {
                Some(cluster) => labels.insert(label::CLUSTER_NAME.to_owned(), cluster.to_owned()),
                None => labels.remove(label::CLUSTER_NAME),
            };
            cluster_mismatch(&machine, control_plane)
        };
        let (cluster, name) = (control_plane.cluster().expect("a Cluster"), control_plane.name());
        assert_eq!(why(Some(cluster)), None);
        let prefix =
            format!("the Machine's ownerReference names control plane {name} of Cluster {cluster}, but ");
        let machine = &observed.machines[0];
        let rest = format!(
            ", so no controller manages the Machine; correct the label or the ownerReference with: \
             kubectl edit machine {} -n {}",
            machine.name(),
            machine.namespace()
        );
        assert_eq!(
            why(Some("c2")),
            Some(format!(
                "{prefix}the Machine's label cluster.x-k8s.io/cluster-name names Cluster c2{rest}"
            ))
        );
        assert_eq!(
            why(None),
            Some(format!(
                "{prefix}the Machine has no label cluster.x-k8s.io/cluster-name{rest}"
            ))
        );
    }

    #[test]
    fn newer_machines_keep_their_templates() {
        let mut machines = vec![machine("m1", "a", 5), machine("m2", "b", 4)];
        let mut now = vec![machine("m3", "c", 0), machine("m2", "b", 4)];
        for machine in &mut now {
            machine.infrastructure = Infrastructure::Missing;
            annotate(&mut machine.metadata, annotation::DELETE_MACHINE, "");
        }
        update_machines(&mut machines, now.into_iter());
        let found: Vec<_> = machines
            .into_iter()
            .map(|machine| {
                (
                    machine.name().to_owned(),
                    machine.is_deleted_first(),
                    machine.infrastructure,
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("m2".to_owned(), true, Infrastructure::ClonedFrom(template("t1"))),
                ("m3".to_owned(), true, Infrastructure::Missing),
            ]
        );
    }
}
