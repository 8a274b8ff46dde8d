//! An Event on the object that was changed: who did what, for those who look at it later.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    cluster::{Action, Connection, EVENT, Error, ReadLimit, SELF_SUBJECT_REVIEW},
    terminal::Terminal,
};

/// Events are an extra: a change does not wait for them for long.
const LIMIT: ReadLimit = ReadLimit::each(Duration::from_secs(5));

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

/// Tells of a change that was made.
#[derive(Clone, Copy)]
pub struct Events<'e> {
    /// The management cluster.
    pub connection: &'e Connection,
    /// Under which name the change was made.
    pub field_manager: &'e str,
    /// Where it is said that an Event cannot be written.
    pub terminal: &'e Terminal,
}

impl Events<'_> {
    /// Writes the Event of a change of `related`, or else of `regarding` itself. That it cannot be written is said, and
    /// changes nothing.
    pub async fn tell(&self, occurrence: &Occurrence, regarding: &Subject, related: Option<&Subject>) {
        if let Err(error) = self.write(occurrence, regarding, related).await {
            self.terminal
                .warning(&format!("no Event tells of the change: {error}"));
        }
    }

    async fn write(
        &self,
        occurrence: &Occurrence,
        regarding: &Subject,
        related: Option<&Subject>,
    ) -> Result<(), Error> {
        let who = self.who().await;
        let event = occurrence.event(regarding, related, &who, Timestamp::now());
        let resource = EVENT.at("v1");
        let action = Action::new("create", &resource).in_namespace(&regarding.namespace);
        let write = self.connection.create::<Value>(
            &resource,
            Some(&regarding.namespace),
            &event,
            self.field_manager,
        );
        match self.connection.within(LIMIT, &action, write).await {
            // It is there already.
            Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whom the server takes us for; the field manager where it does not say.
    async fn who(&self) -> String {
        let resource = SELF_SUBJECT_REVIEW.at("v1");
        let action = Action::new("create", &resource);
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let ask = self
            .connection
            .create::<Review>(&resource, None, &review, self.field_manager);
        let review = self.connection.within(LIMIT, &action, ask).await;
        let user = review.ok().map(|review| review.status.user_info.username);
        user.filter(|user| !user.is_empty())
            .unwrap_or_else(|| self.field_manager.to_owned())
    }
}

#[derive(Deserialize)]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewStatus {
    user_info: UserInfo,
}

#[derive(Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::Method;
    use serde_json::json;

    use super::{Events, Occurrence, Subject};
    use crate::{
        arguments::global::ColorWhen,
        cluster::{Connection, canned::failure},
        control_plane::example::now,
        terminal::Terminal,
    };

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

    /// The note that is written where the server says this of who asks, and this of the Event.
    async fn written(who: (u16, serde_json::Value), answer: u16) -> Vec<String> {
        let paths = Arc::new(Mutex::new(Vec::new()));
        let seen = paths.clone();
        let connection = Connection::canned(move |method, path| {
            assert_eq!(*method, Method::POST);
            seen.lock().expect("a lock").push(path.to_owned());
            match path {
                "/apis/authentication.k8s.io/v1/selfsubjectreviews" => who.clone(),
                _ if answer == 201 => (201, json!({})),
                _ => failure(answer, "AlreadyExists", "no"),
            }
        });
        let events = Events {
            connection: &connection,
            field_manager: "kubectl-kcp",
            terminal: &Terminal::new(ColorWhen::Never),
        };
        let who = events.who().await;
        let result = events
            .write(&occurrence("from 3 to 5"), &subject("K", "edge", "12"), None)
            .await;
        let result = result.map_or_else(|error| error.to_string(), |()| "written".to_owned());
        let last = paths.lock().expect("a lock").last().cloned().unwrap_or_default();
        vec![who, last, result]
    }

    #[tokio::test]
    async fn an_event_that_is_there_is_written() {
        const PATH: &str = "/apis/events.k8s.io/v1/namespaces/d/events";
        let alice = || (201, json!({"status": {"userInfo": {"username": "alice"}}}));
        let denied = || failure(403, "Forbidden", "no");
        assert_eq!(written(alice(), 201).await, ["alice", PATH, "written"]);
        assert_eq!(written(alice(), 409).await, ["alice", PATH, "written"]);
        assert_eq!(written(denied(), 201).await, ["kubectl-kcp", PATH, "written"]);
        let [who, _, result] = <[String; 3]>::try_from(written(denied(), 500).await).expect("three");
        assert_eq!(who, "kubectl-kcp");
        assert_eq!(
            result,
            "cannot create events in namespace \"d\": the server answers 500: no"
        );
    }
}
