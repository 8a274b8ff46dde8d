//! The Event on a changed object: who did what.

use jiff::Timestamp;
use kcp_api::{Kind, Object};
use serde_json::{Value, json};

/// The API requires a qualified name.
const REPORTING_CONTROLLER: &str = "kubectl-kcp.dev/kubectl-kcp";

/// The API's limit, in bytes.
const LONGEST_NOTE: usize = 1024;

/// In bytes: an Event's name is the object's name and a suffix that makes it unique, 253 bytes at most.
const LONGEST_PREFIX: usize = 180;

/// What a change did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeEvent {
    /// One word: `Scaled`.
    pub reason: &'static str,
    /// The verb: `Scale`.
    pub action: &'static str,
    /// `scaled`, followed by `by` and the user.
    pub done: &'static str,
    /// `from 3 to 5`
    pub detail: String,
}

/// The object of an Event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The version that was changed.
    pub resource_version: String,
}

impl ObjectReference {
    pub fn of(object: &impl Object, kind: &Kind, api_version: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.kind.to_owned(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            resource_version: object.resource_version().to_owned(),
        }
    }

    fn reference(&self) -> Value {
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
    /// `scaled by alice from 3 to 5`
    pub fn note(&self, who: &str) -> String {
        let note = format!("{} by {who} {}", self.done, self.detail);
        cut(note.trim_end(), LONGEST_NOTE).to_owned()
    }

    /// The Event. Its name contains the version that was changed: each change has its own, and writing it twice creates
    /// one.
    pub fn object(
        &self,
        regarding: &ObjectReference,
        related: Option<&ObjectReference>,
        who: &str,
        now: Timestamp,
    ) -> Value {
        let changed = related.unwrap_or(regarding);
        let prefix = cut(&regarding.name, LONGEST_PREFIX);
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": format!("{prefix}.{}.{}", self.reason.to_lowercase(), changed.resource_version),
                "namespace": regarding.namespace,
            },
            // The API's type has microseconds.
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
            "reportingController": REPORTING_CONTROLLER,
            "reportingInstance": "kubectl-kcp",
            "action": self.action,
            "reason": self.reason,
            "regarding": regarding.reference(),
            "related": related.map(ObjectReference::reference),
            "note": self.note(who),
            "type": "Normal",
        })
    }
}

/// The beginning of a text, of at most so many bytes.
fn cut(text: &str, longest: usize) -> &str {
    let end = text
        .char_indices()
        .map(|(at, character)| at + character.len_utf8());
    let end = end.take_while(|end| *end <= longest).last();
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ChangeEvent, ObjectReference};
    use crate::testing::objects::now;

    fn event(detail: &str) -> ChangeEvent {
        ChangeEvent {
            reason: "Scaled",
            action: "Scale",
            done: "scaled",
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
        let reference = |kind: &str, name: &str, version: &str| {
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
            "regarding": reference("KubeadmControlPlane", "edge", "12"),
            "related": null,
            "note": "scaled by alice from 3 to 5",
            "type": "Normal",
        });
        let event = event("from 3 to 5");
        assert_eq!(event.object(&control_plane, None, "alice", now()), expected);

        let machine = subject("Machine", "edge-x", "7");
        expected["metadata"]["name"] = json!("edge.scaled.7");
        expected["related"] = reference("Machine", "edge-x", "7");
        assert_eq!(
            event.object(&control_plane, Some(&machine), "alice", now()),
            expected
        );
    }

    #[test]
    fn names_and_notes_fit_the_api() {
        let long = "é".repeat(1_000);
        assert_eq!(event(&long).note("alice").len(), 1024);
        assert_eq!(event("").note("alice"), "scaled by alice");
        let event = event("").object(&subject("K", &"a".repeat(253), "12"), None, "alice", now());
        assert_eq!(
            event["metadata"]["name"],
            format!("{}.scaled.12", "a".repeat(180))
        );
    }
}
