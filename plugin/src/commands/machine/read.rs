//! Reads a Machine, its control plane and what surrounds both, at one time.

use serde_json::value::RawValue;
use thiserror::Error as ThisError;

use crate::terminal::escape;
use kcp_client::{
    Action, Error, MACHINE_HEALTH_CHECK,
    reader::Reader,
    reads::change::{LIMIT, read_situation},
};
use kcp_control_plane::verbs::machine::{object::MachineObject, situation::MachineSituation};
use kcp_control_plane::{
    change::situation::Situation,
    control_plane::{ControlPlane, MachineHealthCheck, label},
    plan::{observed::Machine, wire::PlannedMachine},
};

/// Names of Machines that are told to somebody who has named none of them.
const NAMES: usize = 10;

/// What was found under a name.
#[derive(Debug)]
pub(super) enum Found {
    /// A Machine of a control plane.
    Ours(Box<MachineSituation>),
    /// A Machine that is none, and why.
    NotOurs(String),
}

/// There is no Machine of that name.
#[derive(Debug, ThisError)]
#[error("{cause}")]
pub struct NoSuchMachine {
    cause: Error,
    /// Names of those that there are, the most similar first.
    known: Vec<String>,
    namespace: String,
}

impl NoSuchMachine {
    fn new(cause: Error, mut known: Vec<String>, name: &str, namespace: &str) -> Self {
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

    /// Which Machines there are.
    pub fn hint(&self) -> String {
        let Self { known, namespace, .. } = self;
        let shown: Vec<&str> = known.iter().take(NAMES).map(String::as_str).collect();
        let more = match known.len().saturating_sub(NAMES) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        if shown.is_empty() {
            format!("no control plane in namespace {namespace} has Machines; name another with -n")
        } else {
            let shown = shown.join(", ");
            format!(
                "Machines of control planes in namespace {namespace}: {}{more}",
                escape(&shown)
            )
        }
    }
}

/// Reads it; the `MachineHealthChecks` if they are asked for.
///
/// # Errors
/// [`NoSuchMachine`], and when it, its control plane or the Machines of that cannot be read.
pub(super) async fn read_machine_situation(
    reader: &Reader<'_>,
    name: &str,
    with_health_checks: bool,
) -> anyhow::Result<Found> {
    let connection = reader.connection;
    let namespace = &connection.namespace;
    let text = match connection.get_text(&reader.machines, namespace, name).await {
        Ok(text) => text,
        Err(error @ Error::NotFound { .. }) => {
            return Err(no_such_machine(reader, name, error).await.into());
        }
        Err(error) => return Err(error.into()),
    };
    let object = decoded(reader, name, &text)?;
    let control_plane = match object.control_plane() {
        Ok(control_plane) => control_plane,
        Err(why) => return Ok(Found::NotOurs(why)),
    };
    let read = read_situation(reader, namespace, control_plane, LIMIT);
    let mut situation = Box::pin(read).await?;
    let health_checks = if with_health_checks {
        health_checks(reader, &object, situation.control_plane().cluster.as_deref()).await?
    } else {
        Vec::new()
    };
    // Last, and all at once: etcd takes its time to ask, and nobody else is to delete another meanwhile.
    let text = latest(reader, &mut situation, name).await?;
    let object = decoded(reader, name, &text)?;
    let found = MachineSituation {
        object,
        situation,
        health_checks,
    };
    Ok(if found.machine().is_some() {
        Found::Ours(Box::new(found))
    } else {
        let control_plane = &found.situation.control_plane().name;
        Found::NotOurs(format!(
            "its labels name {control_plane}, which is of another Cluster"
        ))
    })
}

/// What was begun beside its deletion, by somebody who judged the Machines at the same time; a line each. Reads them.
pub(super) async fn begun_beside(of: &MachineSituation, reader: &Reader<'_>) -> Vec<String> {
    let machines = match listed(reader, &of.observed().control_plane).await {
        Ok(machines) => machines.into_iter().map(|(_, machine)| machine),
        Err(error) => {
            return vec![format!(
                "whether another Machine is being deleted too is not known: {error}"
            )];
        }
    };
    let had_begun = |name: &String| {
        let mut before = of.observed().machines.iter().map(|machine| &machine.machine);
        *name == of.object.name
            || before.any(|machine| machine.name == *name && machine.deleting_since.is_some())
    };
    machines
        .map(|machine| machine.machine)
        .filter(|machine| of.observed().control_plane.has(machine))
        .filter(|machine| machine.deleting_since.is_some() && !had_begun(&machine.name))
        .map(|machine| {
            format!(
                "Machine {} is being deleted too, and was not when this was judged: etcd loses the members of both",
                machine.name
            )
        })
        .collect()
}

fn action(reader: &Reader<'_>, verb: &'static str) -> Action {
    Action::new(verb, &reader.machines).in_namespace(&reader.connection.namespace)
}

fn decoded(reader: &Reader<'_>, name: &str, text: &str) -> Result<MachineObject, Error> {
    MachineObject::decode(text).map_err(|source| Error::Malformed {
        action: action(reader, "get").named(name),
        source,
    })
}

async fn no_such_machine(reader: &Reader<'_>, name: &str, error: Error) -> NoSuchMachine {
    let namespace = &reader.connection.namespace;
    let of_control_planes = Some(label::CONTROL_PLANE);
    let listed: Result<Vec<Box<RawValue>>, Error> = reader
        .connection
        .list_metadata(&reader.machines, Some(namespace), of_control_planes)
        .await;
    // What they are called is an extra.
    let names = listed.unwrap_or_default().into_iter();
    let names = names.filter_map(|object| Some(MachineObject::decode(object.get()).ok()?.name));
    NoSuchMachine::new(error, names.collect(), name, namespace)
}

/// Machines of control planes of a Cluster, as the server wrote each, and as it is understood.
async fn listed(
    reader: &Reader<'_>,
    control_plane: &ControlPlane,
) -> Result<Vec<(Box<RawValue>, Machine)>, Error> {
    let namespace = &reader.connection.namespace;
    let cluster = control_plane.cluster.as_deref().unwrap_or_default();
    let selector = format!("{}={cluster},{}", label::CLUSTER_NAME, label::CONTROL_PLANE);
    let objects: Vec<Box<RawValue>> = reader
        .connection
        .list(&reader.machines, Some(namespace), Some(&selector))
        .await?;
    let decoded = objects.into_iter().map(|object| {
        let planned = PlannedMachine::decode(object.get())?;
        Ok((object, planned.machine))
    });
    decoded
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| Error::Malformed {
            action: action(reader, "list"),
            source,
        })
}

/// Reads the Machines of a control plane once more, and one of them as the server wrote it.
async fn latest(reader: &Reader<'_>, situation: &mut Situation, name: &str) -> Result<String, Error> {
    let control_plane = &situation.observed.control_plane;
    let machines = listed(reader, control_plane).await?;
    let mut texts = machines.iter();
    let text = texts.find(|(_, machine)| machine.machine.name == name);
    let text = text.map(|(text, _)| text.get().to_owned());
    let own = machines.into_iter().map(|(_, machine)| machine);
    let own: Vec<Machine> = own
        .filter(|machine| control_plane.has(&machine.machine))
        .collect();
    replace(&mut situation.observed.machines, own.into_iter());
    text.ok_or_else(|| Error::NotFound {
        action: action(reader, "get").named(name),
    })
}

/// Takes Machines as they are now, with what they were made from as it was read.
fn replace(machines: &mut Vec<Machine>, now: impl Iterator<Item = Machine>) {
    let before = std::mem::take(machines);
    machines.extend(now.map(|machine| {
        let known = before
            .iter()
            .find(|known| known.machine.name == machine.machine.name);
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
    machines.sort_by(|a, b| a.machine.name.cmp(&b.machine.name));
}

/// The `MachineHealthChecks` of a Cluster that select a Machine.
async fn health_checks(
    reader: &Reader<'_>,
    object: &MachineObject,
    cluster: Option<&str>,
) -> Result<Vec<MachineHealthCheck>, Error> {
    let resource = reader.served.resource(&MACHINE_HEALTH_CHECK)?;
    let namespace = &reader.connection.namespace;
    let mut checks: Vec<MachineHealthCheck> =
        reader.connection.list(&resource, Some(namespace), None).await?;
    checks.retain(|check| Some(check.cluster.as_str()) == cluster && check.selects(&object.labels));
    checks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use super::{NoSuchMachine, replace};
    use kcp_client::{Action, Error, MACHINE};
    use kcp_control_plane::plan::{
        example::{machine, template},
        observed::Infrastructure,
    };

    fn hint(known: &[String]) -> String {
        let action = Action::new("get", &MACHINE.at("v1beta2"))
            .in_namespace("d")
            .named("edge-b");
        let error = NoSuchMachine::new(Error::NotFound { action }, known.to_vec(), "edge-b", "d");
        assert_eq!(
            error.to_string(),
            "cannot get machines \"edge-b\" in namespace \"d\": not found"
        );
        error.hint()
    }

    #[test]
    fn a_name_that_nobody_has_is_answered_with_those_there_are() {
        assert_eq!(
            hint(&[]),
            "no control plane in namespace d has Machines; name another with -n"
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
    fn machines_are_as_they_are_now_and_made_from_what_was_read() {
        let mut machines = vec![machine("m1", "a", 5), machine("m2", "b", 4)];
        let mut now = vec![machine("m3", "c", 0), machine("m2", "b", 4)];
        for machine in &mut now {
            machine.infrastructure = Infrastructure::Missing;
            machine.to_be_deleted = true;
        }
        replace(&mut machines, now.into_iter());
        let found: Vec<_> = machines
            .into_iter()
            .map(|machine| {
                (
                    machine.machine.name,
                    machine.to_be_deleted,
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
