//! An Event on the object that was changed: who did what, for those who look at it later.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Who reports, as the API wants it: a qualified name.
const REPORTING_CONTROLLER: &str = "kubectl-kcp.dev/kubectl-kcp";

/// The longest note that the API takes, in bytes.
const LONGEST_NOTE: usize = 1024;

/// The longest name of an object, in bytes, without what is added to tell Events apart.
const LONGEST_PREFIX: usize = 180;

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// In one word, as Events have it: `Scaled`.
    pub reason: &'static str,
    /// The verb that asked for it: `Scale`.
    pub action: &'static str,
    /// The word for it, with `by` and who did it after it: `scaled`.
    pub done: &'static str,
    /// The rest: `from 3 to 5`.
    pub detail: String,
}

/// An object that an Event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// As its group serves it.
    pub api_version: String,
    /// `KubeadmControlPlane`
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Tells it from a later one of that name.
    pub uid: String,
    /// The version that the change was made under.
    pub resource_version: String,
}

impl Subject {
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

impl Occurrence {
    /// `scaled by alice from 3 to 5`
    pub fn note(&self, who: &str) -> String {
        let note = format!("{} by {who} {}", self.done, self.detail);
        cut(note.trim_end(), LONGEST_NOTE).to_owned()
    }

    /// The Event of it. A change is made under a version once, so that its Event has a name of its own, and is the same
    /// when it is written twice.
    pub fn event(&self, regarding: &Subject, related: Option<&Subject>, who: &str, now: Timestamp) -> Value {
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
            "related": related.map(Subject::reference),
            "note": self.note(who),
            "type": "Normal",
        })
    }
}

/// The beginning of a text that has so many bytes at most.
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

    use super::{Occurrence, Subject};
    use crate::control_plane::example::now;

    fn occurrence(detail: &str) -> Occurrence {
        Occurrence {
            reason: "Scaled",
            action: "Scale",
            done: "scaled",
            detail: detail.to_owned(),
        }
    }

    fn subject(kind: &str, name: &str, resource_version: &str) -> Subject {
        Subject {
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
        let occurrence = occurrence("from 3 to 5");
        assert_eq!(occurrence.event(&control_plane, None, "alice", now()), expected);

        let machine = subject("Machine", "edge-x", "7");
        expected["metadata"]["name"] = json!("edge.scaled.7");
        expected["related"] = reference("Machine", "edge-x", "7");
        assert_eq!(
            occurrence.event(&control_plane, Some(&machine), "alice", now()),
            expected
        );
    }

    #[test]
    fn names_and_notes_are_as_long_as_the_api_takes() {
        let long = "é".repeat(1_000);
        assert_eq!(occurrence(&long).note("alice").len(), 1024);
        assert_eq!(occurrence("").note("alice"), "scaled by alice");
        let event = occurrence("").event(&subject("K", &"a".repeat(253), "12"), None, "alice", now());
        assert_eq!(
            event["metadata"]["name"],
            format!("{}.scaled.12", "a".repeat(180))
        );
    }
}
