//! What a command decides about an object: leave it unchanged, refuse the change, or write; and the Event that records
//! the write.

use jiff::Timestamp;
use kcp_api::{Kind, KubeadmControlPlane, Object};
use serde_json::{Value, json};

use crate::{problem::Problem, snapshot::Snapshot};

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The object already has the requested state. The text says so, such as `replicas is already 3`.
    Unchanged(String),
    Refused(Refusal),
    Write(Proposal),
}

/// A write that a command may send, with its messages for the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    pub write: ObjectWrite,
    /// What the write does, printed after the object's name, such as `scaled from 3 to 5`.
    pub outcome: String,
    /// Problems that do not prevent the write: one line for each.
    pub warnings: Vec<String>,
    /// One line for each effect of the change.
    pub consequences: Vec<String>,
    pub event: ChangeEvent,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ObjectWrite {
    Patch {
        patch: Value,
        /// The subresource to patch. `None` for the object itself.
        subresource: Option<&'static str>,
    },
    Delete,
}

impl ObjectWrite {
    /// Returns a write that merge-patches the object itself.
    pub const fn patch(patch: Value) -> Self {
        Self::Patch {
            patch,
            subresource: None,
        }
    }

    /// The fields that the write sets or removes. Null for a deletion.
    pub const fn fields(&self) -> &Value {
        match self {
            Self::Patch { patch, .. } => patch,
            Self::Delete => &Value::Null,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why the change is refused: one line for each reason.
    pub why: Vec<String>,
    /// Who refuses the change for the first of these reasons.
    pub refused_by: RefusedBy,
    /// What the user can do: one line for each remedy. Empty if only waiting helps.
    pub remedies: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    /// The admission rules refuse the change. The webhook's configuration can turn a rule off.
    Rules,
    /// The preflight refuses the change. `--force` overrides this refusal.
    Preflight,
    /// The command itself refuses the change. No flag overrides this refusal.
    Command,
}

impl Refusal {
    pub const fn new(by: RefusedBy, why: Vec<String>) -> Self {
        Self {
            why,
            refused_by: by,
            remedies: Vec::new(),
        }
    }

    /// The refusal of a change while the control plane or its Cluster is paused. If neither is paused, it has no reasons.
    pub fn while_paused(observed: &Snapshot, is_cluster_paused: bool) -> Self {
        let control_plane = &observed.control_plane;
        let own = control_plane.is_paused().then_some(Problem::Paused);
        let of_cluster =
            is_cluster_paused.then(|| Problem::cluster_paused(control_plane, observed.cluster_paused_by()));
        let pauses: Vec<Problem> = own.into_iter().chain(of_cluster).collect();
        Self::because_of(&pauses, RefusedBy::Command, control_plane)
    }

    pub fn because_of(
        problems: &[Problem],
        refused_by: RefusedBy,
        control_plane: &KubeadmControlPlane,
    ) -> Self {
        let (name, namespace) = (control_plane.name(), control_plane.namespace());
        Self {
            why: problems.iter().map(Problem::message).collect(),
            refused_by,
            remedies: problems
                .iter()
                .filter_map(|problem| problem.hint(namespace, name))
                .collect(),
        }
    }

    /// The refusal if the user did not confirm the change.
    pub fn unconfirmed() -> Self {
        Self::new(
            RefusedBy::Command,
            vec!["you did not confirm the change".to_owned()],
        )
    }

    /// How the error message names who refuses the change. `is_configured` says whether the user passed the
    /// webhook's configuration.
    pub const fn refused_by_text(&self, is_configured: bool) -> &'static str {
        match (self.refused_by, is_configured) {
            (RefusedBy::Rules, false) => "the admission rules in their default configuration",
            (RefusedBy::Rules, true) => "the admission rules",
            (RefusedBy::Preflight, _) => "the preflight",
            (RefusedBy::Command, _) => "kubectl kcp",
        }
    }

    /// The remedies, and a hint about the flag that may help. `forced` describes what `--force` does. A refusal by the
    /// rules mentions their configuration only if nothing else helps.
    pub fn hints<'r>(&'r self, is_configured: bool, forced: Option<&'r str>) -> Vec<&'r str> {
        let other = match (self.refused_by, is_configured) {
            (RefusedBy::Rules, false) if self.remedies.is_empty() => Some(
                "if the webhook runs with a different configuration, pass its configuration file with --configuration",
            ),
            (RefusedBy::Preflight, _) => forced,
            (RefusedBy::Rules | RefusedBy::Command, _) => None,
        };
        self.remedies.iter().map(String::as_str).chain(other).collect()
    }
}

/// The obstacles to a write, one line for each.
#[derive(Debug, Default)]
pub struct WriteObstacles {
    /// Obstacles that remain until someone acts. `--force` does not override them.
    pub lasting: Vec<String>,
    /// Obstacles that clear on their own. `--force` overrides them, and the controller then waits.
    pub temporary: Vec<String>,
}

impl WriteObstacles {
    /// Returns the warnings to print if the change is written despite the obstacles.
    pub fn warnings(self, force: bool) -> Result<Vec<String>, Refusal> {
        let Self { lasting, temporary } = self;
        if lasting.is_empty() && (force || temporary.is_empty()) {
            return Ok(temporary);
        }
        let refused_by = if lasting.is_empty() {
            RefusedBy::Preflight
        } else {
            RefusedBy::Command
        };
        Err(Refusal::new(refused_by, [lasting, temporary].concat()))
    }
}

/// The name of this program in Events. The Events API requires a qualified name.
const REPORTING_CONTROLLER: &str = "kubectl-kcp.dev/kubectl-kcp";

/// The maximum length of an Event's note in the Events API.
const MAX_NOTE_BYTES: usize = 1024;

/// The maximum length of the object's name in the name of an Event. The name of an Event has at most 253 bytes: the
/// name of the object and a unique suffix.
const MAX_NAME_PREFIX_BYTES: usize = 180;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeEvent {
    /// The reason of the Event, such as `Scaled`.
    pub reason: &'static str,
    /// The action of the Event, such as `Scale`.
    pub action: &'static str,
    /// How the Event's note begins, such as `scaled`. The note continues with `by USER`.
    pub note_verb: &'static str,
    /// How the Event's note ends, such as `from 3 to 5`.
    pub detail: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

impl ObjectReference {
    pub fn new(object: &impl Object, kind: &Kind, api_version: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.kind.to_owned(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            resource_version: object.resource_version().to_owned(),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        })
    }
}

impl ChangeEvent {
    /// The note of the Event, such as `scaled by alice from 3 to 5`.
    pub fn note(&self, who: &str) -> String {
        let note = format!("{} by {who} {}", self.note_verb, self.detail);
        truncate(note.trim_end(), MAX_NOTE_BYTES).to_owned()
    }

    /// The Event as JSON. Its name contains the resourceVersion of the changed object, so that a repeated write of the same
    /// change does not create a second Event.
    pub fn to_event_json(
        &self,
        regarding: &ObjectReference,
        related: Option<&ObjectReference>,
        who: &str,
        now: Timestamp,
    ) -> Value {
        let changed = related.unwrap_or(regarding);
        let prefix = truncate(&regarding.name, MAX_NAME_PREFIX_BYTES);
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": format!("{prefix}.{}.{}", self.reason.to_lowercase(), changed.resource_version),
                "namespace": regarding.namespace,
            },
            // The API requires microseconds.
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
            "reportingController": REPORTING_CONTROLLER,
            "reportingInstance": "kubectl-kcp",
            "action": self.action,
            "reason": self.reason,
            "regarding": regarding.to_json(),
            "related": related.map(ObjectReference::to_json),
            "note": self.note(who),
            "type": "Normal",
        })
    }
}

/// The Event for an action on a control plane that does not write the control plane object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionEvent(pub ChangeEvent);

impl ActionEvent {
    /// The Event as JSON. Its name contains the time, because the object has the same resourceVersion at the next action.
    pub fn to_event_json(&self, regarding: &ObjectReference, who: &str, now: Timestamp) -> Value {
        let mut event = self.0.to_event_json(regarding, None, who, now);
        let prefix = truncate(&regarding.name, MAX_NAME_PREFIX_BYTES);
        let name = format!(
            "{prefix}.{}.{:x}",
            self.0.reason.to_lowercase(),
            now.as_microsecond()
        );
        if let Some(stored) = event.pointer_mut("/metadata/name") {
            *stored = name.into();
        }
        event
    }
}

/// Returns the longest prefix of whole characters that has at most `longest` bytes.
fn truncate(text: &str, longest: usize) -> &str {
    let end = text
        .char_indices()
        .map(|(start, character)| start + character.len_utf8());
    let end = end.take_while(|end| *end <= longest).last();
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ActionEvent, ChangeEvent, ObjectReference, Refusal, RefusedBy, WriteObstacles};
    use crate::testing::objects::now;

    #[test]
    fn a_refusal_names_its_source_and_what_helps() {
        let file = Some(
            "if the webhook runs with a different configuration, pass its configuration file with --configuration",
        );
        let force = Some("use --force");
        for (refused_by, is_configured, expected) in [
            (
                RefusedBy::Rules,
                false,
                ("the admission rules in their default configuration", file),
            ),
            (RefusedBy::Rules, true, ("the admission rules", None)),
            (RefusedBy::Preflight, false, ("the preflight", force)),
            (RefusedBy::Preflight, true, ("the preflight", force)),
            (RefusedBy::Command, false, ("kubectl kcp", None)),
            (RefusedBy::Command, true, ("kubectl kcp", None)),
        ] {
            let refusal = Refusal::new(refused_by, Vec::new());
            let hints = refusal.hints(is_configured, force);
            assert_eq!(
                (refusal.refused_by_text(is_configured), hints.first().copied()),
                expected
            );
        }
    }

    #[test]
    fn what_to_do_precedes_what_to_try() {
        let refusal = Refusal {
            remedies: vec!["resume it".to_owned()],
            ..Refusal::new(RefusedBy::Rules, Vec::new())
        };
        assert_eq!(refusal.hints(true, None), ["resume it"]);
        assert_eq!(refusal.hints(false, None), ["resume it"]);
        let refusal = Refusal {
            refused_by: RefusedBy::Preflight,
            ..refusal
        };
        assert_eq!(
            refusal.hints(false, Some("use --force")),
            ["resume it", "use --force"]
        );
    }

    #[test]
    fn force_overrides_temporary_objections_only() {
        let lines = |words: &str| words.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let refused = |refused_by, why| Err(Refusal::new(refused_by, lines(why)));
        for (lasting, temporary, force, expected) in [
            ("", "", false, Ok(Vec::new())),
            ("", "", true, Ok(Vec::new())),
            ("", "busy", false, refused(RefusedBy::Preflight, "busy")),
            ("", "busy", true, Ok(lines("busy"))),
            ("gone", "", true, refused(RefusedBy::Command, "gone")),
            ("gone", "busy", false, refused(RefusedBy::Command, "gone busy")),
            ("gone", "busy", true, refused(RefusedBy::Command, "gone busy")),
        ] {
            let obstacles = WriteObstacles {
                lasting: lines(lasting),
                temporary: lines(temporary),
            };
            assert_eq!(
                obstacles.warnings(force),
                expected,
                "{lasting} {temporary} {force}"
            );
        }
    }

    fn event(detail: &str) -> ChangeEvent {
        ChangeEvent {
            reason: "Scaled",
            action: "Scale",
            note_verb: "scaled",
            detail: detail.to_owned(),
        }
    }

    fn subject(kind: &str, name: &str, resource_version: &str) -> ObjectReference {
        ObjectReference {
            api_version: "g/v1".to_owned(),
            kind: kind.to_owned(),
            namespace: "d".to_owned(),
            name: name.to_owned(),
            uid: "u".to_owned(),
            resource_version: resource_version.to_owned(),
        }
    }

    #[test]
    fn an_event_says_who_did_what() {
        let control_plane = subject("KubeadmControlPlane", "edge", "12");
        let to_json = |kind: &str, name: &str, version: &str| {
            json!({"apiVersion": "g/v1", "kind": kind, "namespace": "d", "name": name, "uid": "u",
                "resourceVersion": version})
        };
        let mut expected = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "edge.scaled.12", "namespace": "d"},
            "eventTime": "2026-08-21T12:00:00.000000Z",
            "reportingController": "kubectl-kcp.dev/kubectl-kcp",
            "reportingInstance": "kubectl-kcp",
            "action": "Scale",
            "reason": "Scaled",
            "regarding": to_json("KubeadmControlPlane", "edge", "12"),
            "related": null,
            "note": "scaled by alice from 3 to 5",
            "type": "Normal",
        });
        let event = event("from 3 to 5");
        assert_eq!(
            event.to_event_json(&control_plane, None, "alice", now()),
            expected
        );

        let machine = subject("Machine", "edge-x", "7");
        expected["metadata"]["name"] = json!("edge.scaled.7");
        expected["related"] = to_json("Machine", "edge-x", "7");
        assert_eq!(
            event.to_event_json(&control_plane, Some(&machine), "alice", now()),
            expected
        );
    }

    #[test]
    fn two_actions_on_the_same_version_have_two_events() {
        let control_plane = subject("KubeadmControlPlane", "edge", "12");
        let action = ActionEvent(event("a"));
        let names = [now(), now() + jiff::SignedDuration::from_micros(1)].map(|time| {
            let object = action.to_event_json(&control_plane, "alice", time);
            assert_eq!(object["note"], "scaled by alice a");
            assert_eq!(object["regarding"]["resourceVersion"], "12");
            object["metadata"]["name"].clone()
        });
        assert_eq!(names, ["edge.scaled.6598d603af000", "edge.scaled.6598d603af001"]);
    }

    #[test]
    fn names_and_notes_fit_the_api() {
        let long = "é".repeat(1_000);
        assert_eq!(event(&long).note("alice").len(), 1024);
        assert_eq!(event("").note("alice"), "scaled by alice");
        let event = event("").to_event_json(&subject("K", &"a".repeat(253), "12"), None, "alice", now());
        assert_eq!(
            event["metadata"]["name"],
            format!("{}.scaled.12", "a".repeat(180))
        );
    }
}
