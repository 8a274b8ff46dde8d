//! Writes Kubernetes Events about changed objects.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kcp_api::kind::{EVENT, SELF_SUBJECT_REVIEW};
use serde_json::{Value, json};

use crate::{Action, Connection, Error, ReadLimit};
use kcp_control_plane::change::decision::{ActionEvent, ChangeEvent, ObjectReference};

/// How long a command waits until an Event is written.
const EVENT_LIMIT: ReadLimit = ReadLimit::per_read(Duration::from_secs(5));

#[derive(Clone, Copy)]
pub struct Events<'e> {
    pub connection: &'e Connection,
    pub field_manager: &'e str,
}

impl Events<'_> {
    /// Writes an Event about a change to `related`, or to `regarding` if there is no related object.
    pub async fn write(
        &self,
        event: &ChangeEvent,
        regarding: &ObjectReference,
        related: Option<&ObjectReference>,
    ) -> Result<(), Error> {
        let requester = self.requester().await;
        self.write_as(&requester, event, regarding, related).await
    }

    /// Like [`Self::write`], for callers that know the name of the user who made the change.
    pub async fn write_as(
        &self,
        requester: &str,
        event: &ChangeEvent,
        regarding: &ObjectReference,
        related: Option<&ObjectReference>,
    ) -> Result<(), Error> {
        let event = event.to_event_json(regarding, related, requester, self.connection.now());
        self.create(&event, regarding).await
    }

    /// Writes an Event about an action that did not change `regarding` itself.
    pub async fn write_action(&self, event: &ActionEvent, regarding: &ObjectReference) -> Result<(), Error> {
        let requester = self.requester().await;
        let event = event.to_event_json(regarding, &requester, self.connection.now());
        self.create(&event, regarding).await
    }

    async fn create(&self, event: &Value, regarding: &ObjectReference) -> Result<(), Error> {
        let resource = EVENT.api_resource("v1");
        let action = Action::new("create", &resource).in_namespace(&regarding.namespace);
        let write =
            self.connection
                .create::<Value>(&resource, Some(&regarding.namespace), event, self.field_manager);
        match self.connection.run_with_limit(EVENT_LIMIT, &action, write).await {
            // Conflict: the Event already exists.
            Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The user name that the API server has authenticated, or the field manager if that name is unknown.
    async fn requester(&self) -> String {
        let resource = SELF_SUBJECT_REVIEW.api_resource("v1");
        let action = Action::new("create", &resource);
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let ask = self
            .connection
            .create::<SelfSubjectReview>(&resource, None, &review, self.field_manager);
        let review = self.connection.run_with_limit(EVENT_LIMIT, &action, ask).await;
        let user = review.ok().and_then(|review| review.status?.user_info?.username);
        user.filter(|user| !user.is_empty())
            .unwrap_or_else(|| self.field_manager.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::Method;
    use serde_json::json;

    use super::{ChangeEvent, Events, ObjectReference};
    use crate::{Connection, testing::failure};

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

    /// The note that is written if the server responds like this to the requests for the user and for the Event.
    async fn written(requester: (u16, serde_json::Value), answer: u16) -> Vec<String> {
        let paths = Arc::new(Mutex::new(Vec::new()));
        let seen = paths.clone();
        let connection = Connection::canned(move |method, path| {
            assert_eq!(*method, Method::POST);
            seen.lock().expect("a lock").push(path.to_owned());
            match path {
                "/apis/authentication.k8s.io/v1/selfsubjectreviews" => requester.clone(),
                _ if answer == 201 => (201, json!({})),
                _ => failure(answer, "AlreadyExists", "no"),
            }
        });
        let events = Events {
            connection: &connection,
            field_manager: "kubectl-kcp",
        };
        let requester = events.requester().await;
        let result = events
            .write(&event("from 3 to 5"), &subject("K", "edge", "12"), None)
            .await;
        let result = result.map_or_else(|error| error.to_string(), |()| "written".to_owned());
        let last = paths.lock().expect("a lock").last().cloned().unwrap_or_default();
        vec![requester, last, result]
    }

    #[tokio::test]
    async fn an_event_that_is_there_is_written() {
        const PATH: &str = "/apis/events.k8s.io/v1/namespaces/d/events";
        let alice = || (201, json!({"status": {"userInfo": {"username": "alice"}}}));
        let denied = || failure(403, "Forbidden", "no");
        assert_eq!(written(alice(), 201).await, ["alice", PATH, "written"]);
        assert_eq!(written(alice(), 409).await, ["alice", PATH, "written"]);
        assert_eq!(written(denied(), 201).await, ["kubectl-kcp", PATH, "written"]);
        let [requester, _, result] = <[String; 3]>::try_from(written(denied(), 500).await).expect("three");
        assert_eq!(requester, "kubectl-kcp");
        assert_eq!(
            result,
            "cannot create events in namespace \"d\": the server responded with 500: no"
        );
    }
}
