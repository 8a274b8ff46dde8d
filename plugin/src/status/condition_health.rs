//! What the conditions of a control plane say of its health.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    finding::{Finding, Severity},
    machine_health::{STARTING_LIMIT, age},
};
use crate::control_plane::{ConditionStatus, ControlPlane};

/// How long a condition that sums up the Machines may lag behind what the Machines themselves say.
const TURN_LIMIT: Duration = Duration::from_secs(60);

struct MustHold {
    kind: &'static str,
    /// Of the finding when it does not hold.
    id: &'static str,
    /// Whether it sums up the Machines. Cluster API counts a Machine that has yet to join, a learner, or a member whose
    /// Machine has just gone as a fault of the whole: while Machines come and go such a condition has to last before
    /// it counts. What is wrong with a Machine that has settled is a finding by itself.
    of_machines: bool,
}

const fn must_hold(kind: &'static str, id: &'static str, of_machines: bool) -> MustHold {
    MustHold {
        kind,
        id,
        of_machines,
    }
}

/// Conditions of the control plane that must hold.
const MUST_HOLD: &[MustHold] = &[
    must_hold("Available", "not-available", false),
    must_hold("CertificatesAvailable", "certificates-missing", false),
    must_hold("EtcdClusterHealthy", "etcd-unhealthy", true),
    must_hold("ControlPlaneComponentsHealthy", "components-unhealthy", true),
];

/// What the conditions say. `is_changing` is whether Machines come or go.
pub(super) fn findings(control_plane: &ControlPlane, is_changing: bool, now: Timestamp) -> Vec<Finding> {
    let tolerance = if is_changing { STARTING_LIMIT } else { TURN_LIMIT };
    // Without this one nobody has judged the whole. What has reported nothing at all is a finding already.
    let is_judged = control_plane.conditions.is_empty() || control_plane.condition("Available").is_some();
    let unjudged = (!is_judged).then(|| {
        let message = "no controller has reported whether it is available";
        Finding::of_control_plane("not-available", Severity::Unknown, &control_plane.name, message)
    });
    let faults = MUST_HOLD.iter().filter_map(
        |MustHold {
             kind,
             id,
             of_machines,
         }| {
            let condition = control_plane.condition(kind)?;
            let severity = match condition.status {
                ConditionStatus::True => return None,
                ConditionStatus::False => Severity::Fail,
                ConditionStatus::Unknown => Severity::Unknown,
            };
            // An external etcd is looked at by others: Cluster API may leave what it said before it knew.
            let is_foreign = *kind == "EtcdClusterHealthy" && control_plane.external_etcd;
            let is_fresh = condition
                .last_transition_time
                .is_some_and(|since| age(since, now) < tolerance);
            if is_foreign || (*of_machines && is_fresh) {
                return None;
            }
            let message = format!(
                "{kind} is {}: {}",
                condition.status.as_str(),
                condition.one_line()
            );
            Some(Finding::of_control_plane(
                id,
                severity,
                &control_plane.name,
                message,
            ))
        },
    );
    unjudged.into_iter().chain(faults).collect()
}
