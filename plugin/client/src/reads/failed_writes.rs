//! Reads the Events in which the control plane controller reports that it cannot create or delete a Machine.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kcp_api::{KubeadmControlPlane, Object as _, kind::EVENT};
use kcp_control_plane::{
    checks::rollout::reports_pending_change,
    snapshot::{FailedWrite, Reading},
};

use crate::{
    Action,
    reads::{failure, planned::Reads},
};

/// The reasons of these Events. Each flag says whether the failed write is a deletion
/// (`controlplane/kubeadm/reconcilers/kubeadmcontrolplane/scale.go` in Cluster API v1.14).
const REASONS: [(&str, bool); 3] = [
    ("FailedInitialization", false),
    ("FailedScaleUp", false),
    ("FailedScaleDown", true),
];

/// The conditions of a control plane that report a change in progress.
const CHANGES: [&str; 4] = ["RollingOut", "ScalingUp", "ScalingDown", "Remediating"];

impl Reads<'_> {
    /// Reads the Events if a change is pending. Otherwise, the controller neither creates nor deletes
    /// Machines.
    pub(super) async fn read_failed_writes(
        &self,
        control_plane: &KubeadmControlPlane,
    ) -> Reading<Vec<FailedWrite>> {
        if !may_have_pending_change(control_plane) {
            return Reading::NotYet;
        }
        let resource = EVENT.api_resource("v1");
        let fields = format!(
            "regarding.kind=KubeadmControlPlane,regarding.name={},type=Warning",
            control_plane.name()
        );
        let action = Action::new("list", &resource).in_namespace(self.namespace);
        let connection = self.reader.connection;
        let read = connection.list_by_fields::<Event>(&resource, self.namespace, &fields);
        match connection.run_with_limit(self.limit, &action, read).await {
            Ok(events) => Reading::Read(failed_writes(control_plane, events)),
            Err(error) => Reading::Failed(failure::of_kind(&EVENT, &error)),
        }
    }
}

/// Whether a change may be pending. Only the Machines show this exactly, but they are still being read.
fn may_have_pending_change(control_plane: &KubeadmControlPlane) -> bool {
    reports_pending_change(control_plane) || CHANGES.iter().any(|kind| control_plane.is_condition_true(kind))
}

/// Merges the Events that have the same message. The same failure may have several messages, because the API
/// server's error can name a different Machine at each attempt.
fn failed_writes(control_plane: &KubeadmControlPlane, events: Vec<Event>) -> Vec<FailedWrite> {
    let uid = control_plane.metadata.uid.as_deref();
    let mut writes: BTreeMap<(bool, String), FailedWrite> = BTreeMap::new();
    for event in events {
        let regarding = event.regarding.as_ref();
        // Ignore Events about an earlier control plane of the same name.
        if uid.is_some() && regarding.and_then(|object| object.uid.as_deref()) != uid {
            continue;
        }
        let Some((first, last)) = times(&event) else {
            continue;
        };
        let reason = event.reason.as_deref();
        let Some((_, is_deletion)) = REASONS.iter().find(|(known, _)| reason == Some(*known)) else {
            continue;
        };
        let message = failure::one_line(&event.note.unwrap_or_default());
        let write = FailedWrite {
            is_deletion: *is_deletion,
            message: message.clone(),
            first_reported: first,
            last_reported: last,
        };
        writes
            .entry((*is_deletion, message))
            .and_modify(|known| {
                known.first_reported = known.first_reported.min(first);
                known.last_reported = known.last_reported.max(last);
            })
            .or_insert(write);
    }
    writes.into_values().collect()
}

/// When an Event was first and last reported. Cluster API's recorder writes the deprecated fields.
pub(super) fn times(event: &Event) -> Option<(Timestamp, Timestamp)> {
    let created = event.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let reported = event.event_time.as_ref().map(|time| time.0);
    let first = event.deprecated_first_timestamp.as_ref().map(|time| time.0);
    let first = first.or(reported).or(created)?;
    let of_series = event.series.as_ref().map(|series| series.last_observed_time.0);
    let last = event.deprecated_last_timestamp.as_ref().map(|time| time.0);
    Some((first, of_series.or(last).unwrap_or(first)))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::events::v1::Event;
    use kcp_api::KubeadmControlPlane;
    use kcp_control_plane::snapshot::FailedWrite;
    use serde_json::{Value, json};

    use super::{failed_writes, may_have_pending_change};

    fn control_plane(change: &Value) -> KubeadmControlPlane {
        let mut object = json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
            "metadata": {"name": "c1-cp", "uid": "u1", "generation": 2}, "spec": {"replicas": 3, "version": "v1.34.1"},
            "status": {"observedGeneration": 2, "replicas": 3, "upToDateReplicas": 3}});
        for (field, value) in change.as_object().expect("fields") {
            object["status"][field] = value.clone();
        }
        kcp_api::decode(&object.to_string()).expect("decodes")
    }

    #[test]
    fn events_are_read_while_a_change_is_pending() {
        let rolls_out = json!([{"type": "RollingOut", "status": "True"}]);
        for (change, is_read) in [
            (json!({}), false),
            (json!({"observedGeneration": 1}), true),
            (json!({"replicas": 2}), true),
            (json!({"upToDateReplicas": 2}), true),
            (json!({"conditions": rolls_out}), true),
        ] {
            assert_eq!(
                may_have_pending_change(&control_plane(&change)),
                is_read,
                "{change}"
            );
        }
    }

    #[test]
    fn repeated_errors_are_one_failed_write() {
        let event = |reason: &str, uid: &str, note: &str, times: Value| {
            let mut event = json!({"metadata": {"name": "e", "creationTimestamp": "2026-08-21T11:00:00Z"},
                "reason": reason, "type": "Warning", "note": note,
                "regarding": {"kind": "KubeadmControlPlane", "name": "c1-cp", "uid": uid}});
            for (field, value) in times.as_object().expect("fields") {
                event[field] = value.clone();
            }
            serde_json::from_value::<Event>(event).expect("an Event")
        };
        let deprecated = |first: &str, last: &str| {
            json!({"deprecatedFirstTimestamp": format!("2026-08-21T{first}Z"),
                "deprecatedLastTimestamp": format!("2026-08-21T{last}Z")})
        };
        let series = json!({"eventTime": "2026-08-21T11:20:00.000000Z",
            "series": {"count": 2, "lastObservedTime": "2026-08-21T11:40:00.000000Z"}});
        let events = vec![
            event(
                "FailedScaleUp",
                "u1",
                "no\nMachine",
                deprecated("11:10:00", "11:15:00"),
            ),
            event(
                "FailedScaleUp",
                "u1",
                "no\nMachine",
                deprecated("11:05:00", "11:06:00"),
            ),
            event("FailedScaleDown", "u1", "denied", series),
            event("FailedInitialization", "u1", "none", json!({})),
            event("ControlPlaneUnhealthy", "u1", "waits", json!({})),
            event("FailedScaleUp", "u0", "of another", json!({})),
        ];
        let write = |is_deletion, message: &str, first: &str, last: &str| FailedWrite {
            is_deletion,
            message: message.to_owned(),
            first_reported: format!("2026-08-21T{first}Z").parse().expect("a time"),
            last_reported: format!("2026-08-21T{last}Z").parse().expect("a time"),
        };
        assert_eq!(
            failed_writes(&control_plane(&json!({})), events),
            [
                write(false, "no Machine", "11:05:00", "11:15:00"),
                write(false, "none", "11:00:00", "11:00:00"),
                write(true, "denied", "11:20:00", "11:40:00"),
            ]
        );
    }
}
