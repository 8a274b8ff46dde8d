//! Reads the Events about a control plane and about the Machines of its namespace.

use k8s_openapi::api::{core::v1::ObjectReference, events::v1::Event};
use kcp_api::{
    KubeadmControlPlane, Object as _, PartialObjectMetadata,
    kind::{CLUSTER, EVENT, KUBEADM_CONTROL_PLANE, MACHINE},
};
use kcp_control_plane::{
    ownership::{FieldWriter, field_writers},
    rollout_events::{EventObject, ExistingMachine, ReportedEvent, RolloutEvents, select},
    snapshot::{Failure, Reading, Snapshot},
    timeline::EventReach,
};
use serde_json::Value;

use crate::{
    Action, Error,
    reads::{failed_writes::times, failure, planned::Reads},
};

/// The fields with the template for the names of Machines, in v1beta2 and in v1beta1.
const NAMING: [&str; 2] = [
    "/spec/machineNaming/template",
    "/spec/machineNamingStrategy/template",
];

/// The maximum number of pages, with 500 Events each, that are counted.
const MAX_COUNTED_PAGES: usize = 20;

impl Reads<'_> {
    /// Reads the Events about a control plane and its Machines. `object` is the JSON of the control plane.
    pub async fn read_rollout_events(
        &self,
        control_plane: &KubeadmControlPlane,
        object: &str,
    ) -> Reading<RolloutEvents> {
        match self.reported_events(control_plane).await {
            Ok((events, machines)) => {
                let object: Value = serde_json::from_str(object).unwrap_or_default();
                let template = NAMING.iter().find_map(|field| object.pointer(field)?.as_str());
                let has_own_names = template.is_some_and(|template| !template.is_empty());
                Reading::Read(select(control_plane, has_own_names, &machines, events))
            }
            Err(error) => Reading::Failed(failure::of_kind(&EVENT, &error)),
        }
    }

    /// Reads who has written the Cluster of a control plane, if it has a topology.
    pub async fn read_topology_writers(&self, observed: &Snapshot) -> Reading<Vec<FieldWriter>> {
        let cluster = observed.cluster.value();
        let Some(cluster) = cluster.filter(|cluster| cluster.spec.topology.is_some()) else {
            return Reading::NotYet;
        };
        let resource = &self.reader.cluster_resource;
        let action = Action::new("get", resource)
            .in_namespace(self.namespace)
            .with_name(cluster.name());
        let connection = self.reader.connection;
        let read = connection.get_text(resource, self.namespace, cluster.name());
        let read = connection.run_with_limit(self.limit, &action, read).await;
        match read.map(|object| field_writers(&object)) {
            Ok(Ok(writers)) => Reading::Read(writers),
            Ok(Err(error)) => Reading::Failed(Failure {
                object: format!("{}/{}", CLUSTER.kind, cluster.name()),
                message: error.to_string(),
                ..Failure::default()
            }),
            Err(error) => Reading::Failed(failure::of_kind(&CLUSTER, &error)),
        }
    }

    /// Counts the Events of the namespace, of at most [`MAX_COUNTED_PAGES`] pages.
    pub async fn read_event_reach(&self) -> Reading<EventReach> {
        let resource = EVENT.api_resource("v1");
        let action = Action::new("list", &resource).in_namespace(self.namespace);
        let connection = self.reader.connection;
        let count = async {
            let mut pages = connection.pages(&resource, Some(self.namespace), None);
            let mut reach = EventReach::default();
            for _ in 0..MAX_COUNTED_PAGES {
                let Some(page) = pages.next::<Event>().await? else {
                    break;
                };
                let reported = page.iter().filter_map(times).map(|(_, last)| last);
                reach.count += page.len();
                reach.oldest = reported.chain(reach.oldest).min();
            }
            reach.has_more = !pages.is_complete();
            Ok(reach)
        };
        match connection.run_with_limit(self.limit, &action, count).await {
            Ok(reach) => Reading::Read(reach),
            Err(error) => Reading::Failed(failure::of_kind(&EVENT, &error)),
        }
    }

    /// Reads the Events, and then all Machines of the namespace. Because of this order, a Machine that has an
    /// Event, but is not in the list of Machines, no longer exists.
    async fn reported_events(
        &self,
        control_plane: &KubeadmControlPlane,
    ) -> Result<(Vec<ReportedEvent>, Vec<ExistingMachine>), Error> {
        let of_control_plane = format!(
            "regarding.kind={},regarding.name={}",
            KUBEADM_CONTROL_PLANE.kind,
            control_plane.name()
        );
        let of_machines = format!("regarding.kind={}", MACHINE.kind);
        let (own, machines) = tokio::join!(
            Box::pin(self.events(&of_control_plane)),
            Box::pin(self.events(&of_machines))
        );
        let events = own?.into_iter().chain(machines?).filter_map(reported).collect();
        let connection = self.reader.connection;
        let resource = &self.reader.machine_resource;
        let action = Action::new("list", resource).in_namespace(self.namespace);
        let list = connection.list_metadata::<PartialObjectMetadata>(resource, Some(self.namespace), None);
        let machines = connection.run_with_limit(self.limit, &action, list).await?;
        let existing = machines.iter().map(|machine| ExistingMachine {
            name: machine.name().to_owned(),
            uid: machine.uid().to_owned(),
            is_owned: machine.owner(KUBEADM_CONTROL_PLANE.kind) == Some(control_plane.name()),
        });
        Ok((events, existing.collect()))
    }

    pub(super) async fn events(&self, fields: &str) -> Result<Vec<Event>, Error> {
        let resource = EVENT.api_resource("v1");
        let action = Action::new("list", &resource).in_namespace(self.namespace);
        let connection = self.reader.connection;
        let list = connection.list_by_fields::<Event>(&resource, self.namespace, fields);
        connection.run_with_limit(self.limit, &action, list).await
    }
}

/// `None` if the Event has no time or names no object.
pub(super) fn reported(event: Event) -> Option<ReportedEvent> {
    let (first, last) = times(&event)?;
    Some(ReportedEvent {
        regarding: event.regarding.and_then(event_object)?,
        related: event.related.and_then(event_object),
        reason: event.reason.unwrap_or_default(),
        note: failure::one_line(&event.note.unwrap_or_default()),
        reporter: event
            .reporting_controller
            .filter(|reporter| !reporter.is_empty())
            .or(event.deprecated_source.and_then(|source| source.component)),
        is_warning: event.type_.as_deref() == Some("Warning"),
        first_reported: first,
        last_reported: last,
    })
}

fn event_object(object: ObjectReference) -> Option<EventObject> {
    Some(EventObject {
        kind: object.kind?,
        name: object.name?,
        uid: object.uid,
    })
}

#[cfg(test)]
mod tests {
    use kcp_control_plane::{rollout_events::RolloutEvents, snapshot::Reading, timeline::EventReach};
    use serde_json::{Value, json};

    use super::MAX_COUNTED_PAGES;
    use crate::{
        Connection, ReadLimit,
        reader::Reader,
        reads::{change::LIMIT, planned::Reads},
        testing::{example::groups, failure},
    };

    fn event(kind: &str, name: &str, reason: &str) -> Value {
        json!({"metadata": {"name": format!("{name}.1"), "namespace": "d"}, "type": "Normal", "reason": reason,
            "note": "n1", "regarding": {"kind": kind, "name": name, "uid": name},
            "deprecatedFirstTimestamp": "2026-08-21T11:00:00Z", "deprecatedLastTimestamp": "2026-08-21T11:30:00Z"})
    }

    async fn read(template: &str, denies_events: bool) -> Reading<RolloutEvents> {
        let connection = Connection::canned(move |_, path| match path {
            "/apis" => (200, groups()),
            path if path.ends_with("/events") && denies_events => failure(403, "Forbidden", "no"),
            path if path.ends_with("/events") => {
                let events = [
                    event("Machine", "edge-x2b4c", "SuccessfulSetNodeRef"),
                    event("Machine", "edge-bbbbb", "SuccessfulSetNodeRef"),
                ];
                (200, json!({"items": events}))
            }
            path if path.ends_with("/machines") => {
                let owner = json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
                    "kind": "KubeadmControlPlane", "name": "edge", "uid": "u", "controller": true});
                let metadata = json!({"name": "edge-bbbbb", "namespace": "d", "uid": "edge-bbbbb",
                    "ownerReferences": [owner]});
                (200, json!({"items": [{"metadata": metadata}]}))
            }
            _ => failure(404, "NotFound", "no"),
        });
        let reader = Reader::discover(&connection).await.expect("discovered");
        let reads = Reads {
            reader: &reader,
            namespace: "d",
            limit: ReadLimit::per_read(LIMIT),
        };
        let object = json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
            "metadata": {"name": "edge", "namespace": "d", "uid": "u"},
            "spec": {"version": "v1.34.1", "machineNaming": {"template": template}}});
        let control_plane = kcp_api::decode(&object.to_string()).expect("decodes");
        reads
            .read_rollout_events(&control_plane, &object.to_string())
            .await
    }

    #[tokio::test]
    async fn a_machine_with_an_event_that_is_not_listed_is_deleted() {
        for (template, expected) in [("", vec!["edge-x2b4c"]), ("{{ .random }}", vec![])] {
            let read = read(template, false).await;
            let events = read.value().expect("read");
            let deleted: Vec<&str> = events
                .deleted_machines
                .iter()
                .map(|machine| machine.name.as_str())
                .collect();
            assert_eq!(deleted, expected, "{template}");
        }
    }

    #[tokio::test]
    async fn events_are_counted_up_to_a_limit() {
        let page = |with_next: bool| {
            let event = |last: &str| {
                json!({"metadata": {"name": last, "creationTimestamp": "2026-08-21T06:00:00Z"},
                "deprecatedFirstTimestamp": "2026-08-21T06:00:00Z", "deprecatedLastTimestamp": last})
            };
            let next = if with_next { "more" } else { "" };
            json!({"metadata": {"continue": next},
                "items": [event("2026-08-21T11:30:00Z"), event("2026-08-21T11:00:00Z")]})
        };
        let all = EventReach {
            count: 2,
            has_more: false,
            oldest: Some("2026-08-21T11:00:00Z".parse().expect("a time")),
        };
        let some = EventReach {
            count: 2 * MAX_COUNTED_PAGES,
            has_more: true,
            ..all
        };
        for (answer, expected) in [
            ((200, page(false)), Some(all)),
            ((200, page(true)), Some(some)),
            ((200, json!({"items": []})), Some(EventReach::default())),
            (failure(403, "Forbidden", "no"), None),
        ] {
            let connection = Connection::canned(move |_, path| match path {
                "/apis" => (200, groups()),
                _ => answer.clone(),
            });
            let reader = Reader::discover(&connection).await.expect("discovered");
            let reads = Reads {
                reader: &reader,
                namespace: "d",
                limit: ReadLimit::per_read(LIMIT),
            };
            assert_eq!(reads.read_event_reach().await.value().copied(), expected);
        }
    }

    #[tokio::test]
    async fn events_that_may_not_be_listed_are_a_failure() {
        let read = read("", true).await;
        let failure = read.failure().expect("a failure");
        assert!(failure.forbidden.is_some(), "{failure:?}");
    }
}
