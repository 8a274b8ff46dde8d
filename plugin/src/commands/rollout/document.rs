//! The JSON of `rollout status`: `kubectl-kcp.dev/v1alpha1`.

use jiff::Timestamp;
use kcp_api::Object as _;
use serde::Serialize;

use crate::commands::rollout::report::{RolloutProgress, RolloutReport};
use crate::document::{Document, ObjectName};
use kcp_control_plane::{join_times::JoinTimes, staleness::StuckProblem};

/// The progress of a rollout.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus<'r> {
    metadata: ObjectName,
    progress: RolloutProgress,
    /// The desired number of Machines.
    desired_replicas: i64,
    /// The number of existing Machines.
    replicas: i64,
    ready_replicas: i64,
    up_to_date_replicas: i64,
    /// When a planned rollout begins; absent if none is planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    planned: Option<Timestamp>,
    /// How long earlier Machines took to join. Absent unless the rollout is in progress and a Machine's time is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    join_times: Option<JoinTimes>,
    waiting_for: &'r [String],
    obstacles: Vec<StuckDocument<'r>>,
    remarks: &'r [String],
}

impl Document for RolloutStatus<'_> {
    const KIND: &'static str = "RolloutStatus";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StuckDocument<'r> {
    #[serde(flatten)]
    stuck: &'r StuckProblem,
    text: String,
    hint: String,
}

impl<'r> RolloutStatus<'r> {
    /// Creates the JSON document of a report.
    pub fn new(report: &'r RolloutReport) -> Self {
        let control_plane = &report.snapshot.control_plane;
        let (name, namespace) = (control_plane.name(), control_plane.namespace());
        Self {
            metadata: control_plane.into(),
            progress: report.progress,
            desired_replicas: control_plane.desired_replicas(),
            replicas: control_plane.status.replicas,
            ready_replicas: control_plane.status.ready_replicas,
            up_to_date_replicas: control_plane.status.up_to_date_replicas,
            planned: report.planned_start,
            join_times: report.join_times,
            waiting_for: &report.waiting_for,
            obstacles: report
                .obstacles
                .iter()
                .map(|stuck| StuckDocument {
                    stuck,
                    text: stuck.message(report.at),
                    hint: stuck.hint(namespace, name),
                })
                .collect(),
            remarks: &report.remarks,
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::metadata::Time;
    use kcp_control_plane::testing::objects::{healthy, minutes_ago, now};

    use super::RolloutStatus;
    use crate::{
        commands::rollout::report::RolloutReport,
        document::Versioned,
        printer::json,
        testing::{assert_every_format, schema},
    };

    #[test]
    fn the_schema_is_checked_in() {
        schema::checked_in::<RolloutStatus<'_>>("rolloutstatus.json");
    }

    #[test]
    fn a_rollout_that_is_stuck() {
        let mut snapshot = healthy(3);
        snapshot.control_plane.status.up_to_date_replicas = 2;
        for machine in &mut snapshot.machines {
            machine.metadata.creation_timestamp = Some(Time(minutes_ago(600)));
            machine
                .status
                .conditions
                .retain(|condition| condition.type_ != "Ready");
        }
        snapshot.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(41)));
        let report = RolloutReport::from_poll(snapshot, now());
        schema::conforms(&RolloutStatus::new(&report));
        assert_every_format(&report);
        insta::assert_snapshot!(json(&Versioned(RolloutStatus::new(&report))).expect("serializes"));
    }
}
