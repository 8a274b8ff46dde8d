//! What Events say about a control plane, its Machines, and the Machines that no longer exist.
//!
//! Cluster API keeps no record of deleted Machines, but the Events about them stay until they expire. Such an
//! Event names the Machine, not its control plane. The Machine belonged to the control plane if an Event
//! about the control plane also names the Machine, or if the controller gives such a name only to Machines of
//! this control plane.

use jiff::Timestamp;
use kcp_api::{
    KubeadmControlPlane, Object as _,
    kind::{KUBEADM_CONTROL_PLANE, MACHINE},
};
use serde::Serialize;

/// The characters at the end of a generated name (`SafeEncodeString` of `k8s.io/apimachinery/pkg/util/rand`).
const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";

/// The number of random characters at the end of a Machine's name.
const RANDOM_LENGTH: usize = 5;

/// The maximum length of a generated name without its random characters. The controller truncates a longer
/// name.
const MAX_BASE_LENGTH: usize = 63 - RANDOM_LENGTH;

/// The reason of the Event that Cluster API writes once a Machine's node has joined. Its note is the name of the node.
pub const JOINED: &str = "SuccessfulSetNodeRef";

/// An Event as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedEvent {
    /// The object that the Event is about.
    pub regarding: EventObject,
    /// Another object that the Event names. `None` if it names none.
    pub related: Option<EventObject>,
    pub reason: String,
    pub note: String,
    /// The controller that reported the Event. `None` if the Event does not name one.
    pub reporter: Option<String>,
    pub is_warning: bool,
    pub first_reported: Timestamp,
    pub last_reported: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventObject {
    pub kind: String,
    pub name: String,
    /// `None` if the Event does not contain a uid.
    pub uid: Option<String>,
}

/// A Machine that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingMachine {
    pub name: String,
    pub uid: String,
    /// Whether the control plane owns the Machine.
    pub is_owned: bool,
}

/// The Events about a control plane and its Machines, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutEvents {
    pub events: Vec<RolloutEvent>,
    /// The Machines that no longer exist, in the order of their first Event.
    pub deleted_machines: Vec<DeletedMachine>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RolloutEvent {
    /// When the Event was reported first.
    pub first: Timestamp,
    /// When the Event was reported last.
    pub last: Timestamp,
    /// The kind of the object, `KubeadmControlPlane` or `Machine`.
    pub kind: String,
    pub name: String,
    /// Whether the object no longer exists.
    pub deleted: bool,
    pub warning: bool,
    pub reason: String,
    pub note: String,
    /// The controller that reported the Event. Absent if the Event does not name one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reporter: Option<String>,
}

impl From<ReportedEvent> for RolloutEvent {
    /// The Event of an object that exists.
    fn from(event: ReportedEvent) -> Self {
        Self {
            first: event.first_reported,
            last: event.last_reported,
            kind: event.regarding.kind,
            name: event.regarding.name,
            deleted: false,
            warning: event.is_warning,
            reason: event.reason,
            note: event.note,
            reporter: event.reporter,
        }
    }
}

/// A Machine that no longer exists, and what its Events say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeletedMachine {
    pub name: String,
    /// How it is known that the Machine belonged to the control plane.
    pub known_by: KnownBy,
    /// The name of the Machine's node. Absent if no Event says that it joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When the node joined. Absent if no Event says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined: Option<Timestamp>,
    /// When an Event about the Machine was last reported. At that time, the Machine still existed.
    pub last_seen: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub enum KnownBy {
    /// An Event about the control plane names the Machine.
    Event,
    /// The Machine's name consists of the control plane's name and five random characters.
    Name,
}

/// Selects and sorts the Events about a control plane and its Machines. `machines` are all Machines of the
/// namespace, read after the Events. `has_own_names` says that the control plane names its Machines with a
/// template of its own (`spec.machineNaming`); a Machine's name then does not prove to which control plane it
/// belonged.
pub fn select(
    control_plane: &KubeadmControlPlane,
    has_own_names: bool,
    machines: &[ExistingMachine],
    mut reported: Vec<ReportedEvent>,
) -> RolloutEvents {
    reported.sort_by(|a, b| {
        (a.first_reported, a.last_reported, &a.reason).cmp(&(b.first_reported, b.last_reported, &b.reason))
    });
    let of_control_plane = |event: &ReportedEvent| {
        let own = control_plane.uid();
        event.regarding.kind == KUBEADM_CONTROL_PLANE.kind
            && event.regarding.name == control_plane.name()
            && event.regarding.uid.as_deref().is_none_or(|uid| uid == own)
    };
    let named: Vec<EventObject> = reported
        .iter()
        .filter(|event| of_control_plane(event))
        .filter_map(|event| event.related.clone())
        .filter(|object| object.kind == MACHINE.kind)
        .collect();
    // An earlier control plane may have had the same name, so Events from before the creation do not count.
    let created = control_plane.creation_timestamp();
    let mut selected = RolloutEvents::default();
    for event in reported {
        let of_machine = event.regarding.kind == MACHINE.kind;
        let deleted = if of_control_plane(&event) {
            None
        } else if !of_machine {
            continue;
        } else if let Some(machine) = existing(machines, &event.regarding) {
            if !machine.is_owned {
                continue;
            }
            None
        } else if named.iter().any(|object| is_same(object, &event.regarding)) {
            Some(KnownBy::Event)
        } else if !has_own_names
            && created.is_none_or(|created| event.first_reported >= created)
            && is_generated_name(&event.regarding.name, control_plane.name())
        {
            Some(KnownBy::Name)
        } else {
            continue;
        };
        if let Some(known_by) = deleted {
            selected.add_deleted(known_by, &event);
        }
        selected.events.push(RolloutEvent {
            deleted: deleted.is_some(),
            ..event.into()
        });
    }
    selected
}

impl RolloutEvents {
    fn add_deleted(&mut self, known_by: KnownBy, event: &ReportedEvent) {
        let name = &event.regarding.name;
        let index = self.deleted_machines.iter().position(|known| known.name == *name);
        let new = || DeletedMachine {
            name: name.clone(),
            known_by,
            node: None,
            joined: None,
            last_seen: event.last_reported,
        };
        if index.is_none() {
            self.deleted_machines.push(new());
        }
        let known = match index {
            Some(index) => self.deleted_machines.get_mut(index),
            None => self.deleted_machines.last_mut(),
        };
        let Some(known) = known else {
            return;
        };
        known.last_seen = known.last_seen.max(event.last_reported);
        if event.reason == JOINED {
            known.node = Some(event.note.clone());
            known.joined = Some(
                known
                    .joined
                    .map_or(event.first_reported, |joined| joined.min(event.first_reported)),
            );
        }
    }
}

fn existing<'m>(machines: &'m [ExistingMachine], object: &EventObject) -> Option<&'m ExistingMachine> {
    machines.iter().find(|machine| {
        machine.name == object.name && object.uid.as_ref().is_none_or(|uid| *uid == machine.uid)
    })
}

fn is_same(one: &EventObject, other: &EventObject) -> bool {
    one.name == other.name && (one.uid == other.uid || one.uid.is_none() || other.uid.is_none())
}

/// Whether the controller gives this name to a Machine of the control plane, by its default template
/// `{{ .kubeadmControlPlane.name }}-{{ .random }}`.
fn is_generated_name(machine: &str, control_plane: &str) -> bool {
    let base = format!("{control_plane}-");
    let base = base.get(..MAX_BASE_LENGTH.min(base.len())).unwrap_or(&base);
    machine.strip_prefix(base).is_some_and(|random| {
        random.len() == RANDOM_LENGTH && random.chars().all(|character| RANDOM.contains(character))
    })
}

#[cfg(test)]
mod tests {
    use kcp_api::KubeadmControlPlane;

    use super::{
        DeletedMachine, EventObject, ExistingMachine, KnownBy, ReportedEvent, RolloutEvents,
        is_generated_name, select,
    };
    use crate::testing::objects::{healthy, minutes_ago};

    fn control_plane() -> KubeadmControlPlane {
        healthy(1).control_plane
    }

    fn object(kind: &str, name: &str, uid: &str) -> EventObject {
        EventObject {
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: Some(uid.to_owned()),
        }
    }

    fn event(regarding: EventObject, reason: &str, note: &str, minutes: i64) -> ReportedEvent {
        ReportedEvent {
            regarding,
            related: None,
            reason: reason.to_owned(),
            note: note.to_owned(),
            reporter: None,
            is_warning: false,
            first_reported: minutes_ago(minutes),
            last_reported: minutes_ago(minutes),
        }
    }

    fn of_machine(name: &str, reason: &str, note: &str, minutes: i64) -> ReportedEvent {
        event(object("Machine", name, name), reason, note, minutes)
    }

    fn machines() -> [ExistingMachine; 2] {
        [("c1-cp-bbbbb", true), ("c1-cp-wwwww", false)].map(|(name, is_own)| ExistingMachine {
            name: name.to_owned(),
            uid: name.to_owned(),
            is_owned: is_own,
        })
    }

    fn selected(has_own_names: bool, events: &[ReportedEvent]) -> RolloutEvents {
        select(&control_plane(), has_own_names, &machines(), events.to_vec())
    }

    /// The names in the selected Events. The names of deleted Machines have the mark `-`.
    fn names(has_own_names: bool, events: &[ReportedEvent]) -> Vec<String> {
        let events = selected(has_own_names, events).events.into_iter();
        let mark = |deleted: bool| if deleted { "-" } else { "" };
        events
            .map(|event| format!("{}{}", mark(event.deleted), event.name))
            .collect()
    }

    #[test]
    fn selects_the_events_of_the_control_plane_and_its_machines() {
        type Case = (&'static str, bool, Vec<ReportedEvent>, &'static [&'static str]);
        let own = object("KubeadmControlPlane", "c1-cp", "u1");
        let naming = |machine: &str| ReportedEvent {
            related: Some(object("Machine", machine, machine)),
            ..event(own.clone(), "MachineReplaced", "replaced", 9)
        };
        let joined = |name: &str| of_machine(name, "SuccessfulSetNodeRef", "n", 5);
        let cases: Vec<Case> = vec![
            (
                "control_plane",
                false,
                vec![event(own.clone(), "Scaled", "", 3)],
                &["c1-cp"],
            ),
            (
                "earlier_control_plane_of_the_same_name",
                false,
                vec![event(
                    object("KubeadmControlPlane", "c1-cp", "u0"),
                    "Scaled",
                    "",
                    3,
                )],
                &[],
            ),
            (
                "own_machine",
                false,
                vec![joined("c1-cp-bbbbb")],
                &["c1-cp-bbbbb"],
            ),
            (
                "machine_of_another_owner",
                false,
                vec![joined("c1-cp-wwwww")],
                &[],
            ),
            ("deleted", false, vec![joined("c1-cp-xxxxx")], &["-c1-cp-xxxxx"]),
            ("worker", false, vec![joined("c1-md-0-abcde-xxxxx")], &[]),
            ("named_by_a_template", true, vec![joined("c1-cp-xxxxx")], &[]),
            (
                "named_by_a_template_and_by_an_event",
                true,
                vec![joined("master-1"), naming("master-1")],
                &["c1-cp", "-master-1"],
            ),
            (
                "before_the_control_plane_existed",
                false,
                vec![of_machine(
                    "c1-cp-xxxxx",
                    "SuccessfulSetNodeRef",
                    "n",
                    60 * 24 * 4,
                )],
                &[],
            ),
            (
                "same_name_as_an_existing_machine",
                false,
                vec![event(
                    object("Machine", "c1-cp-bbbbb", "earlier"),
                    "SuccessfulSetNodeRef",
                    "n",
                    5,
                )],
                &["-c1-cp-bbbbb"],
            ),
            (
                "another_kind",
                false,
                vec![event(object("Cluster", "c1-cp", "u1"), "Provisioned", "", 3)],
                &[],
            ),
            (
                "sorted",
                false,
                vec![
                    of_machine("c1-cp-xxxxx", "SuccessfulDrainNode", "", 2),
                    event(own, "RolloutStarted", "", 8),
                    joined("c1-cp-bbbbb"),
                ],
                &["c1-cp", "c1-cp-bbbbb", "-c1-cp-xxxxx"],
            ),
        ];
        for (name, has_own_names, events, expected) in cases {
            assert_eq!(names(has_own_names, &events), expected, "{name}");
        }
    }

    #[test]
    fn a_deleted_machine_has_only_what_its_events_say() {
        let drained = of_machine("c1-cp-xxxxx", "SuccessfulDrainNode", "success draining", 2);
        let deleted = |node: Option<&str>, joined: Option<i64>| DeletedMachine {
            name: "c1-cp-xxxxx".to_owned(),
            known_by: KnownBy::Name,
            node: node.map(str::to_owned),
            joined: joined.map(minutes_ago),
            last_seen: minutes_ago(2),
        };
        assert_eq!(
            selected(false, std::slice::from_ref(&drained)).deleted_machines,
            [deleted(None, None)]
        );
        let joined = of_machine("c1-cp-xxxxx", "SuccessfulSetNodeRef", "n1", 40);
        assert_eq!(
            selected(false, &[drained, joined]).deleted_machines,
            [deleted(Some("n1"), Some(40))]
        );
    }

    #[test]
    fn knows_the_names_that_the_controller_generates() {
        let long = "a".repeat(60);
        let cut = format!("{}bcdfg", "a".repeat(58));
        for (machine, control_plane, expected) in [
            ("edge-x2b4c", "edge", true),
            ("edge-x2b4", "edge", false),
            ("edge-x2b4cd", "edge", false),
            ("edge-x2b1c", "edge", false),
            ("edge-md-0-x2b4c", "edge", false),
            ("edge2-x2b4c", "edge", false),
            ("edge", "edge", false),
            (cut.as_str(), long.as_str(), true),
        ] {
            assert_eq!(is_generated_name(machine, control_plane), expected, "{machine}");
        }
    }
}
