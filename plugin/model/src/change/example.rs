//! Snapshots to check changes against.

use kcp_rules::case::{Base, V1BETA2};
use serde_json::json;

use crate::change::snapshot::ChangeSnapshot;
use crate::{
    control_plane::{
        Condition, ConditionStatus,
        example::{condition, set},
    },
    plan::{
        example,
        observed::{Bootstrap, Infrastructure, Machine},
        wire::PlannedControlPlane,
    },
    snapshot::Reading,
};

/// Three Machines `m1`, `m2` and `m3`, the oldest first, without failure domains and with nothing to do.
pub fn snapshot() -> ChangeSnapshot {
    let mut object = Base::ControlPlane(V1BETA2).object();
    object["spec"]["replicas"] = json!(3);
    let object = object.to_string();
    let planned = PlannedControlPlane::decode(&object).expect("a control plane");
    let mut observed = example::observed();
    observed.cluster.failure_domains.clear();
    observed.control_plane.desired_version = Some(planned.spec.version.clone());
    for machine in &mut observed.machines {
        machine.machine.failure_domain = None;
        machine.machine.version = Some(planned.spec.version.clone());
        machine.infrastructure = Infrastructure::ClonedFrom(planned.spec.infrastructure.clone());
        machine.bootstrap = Bootstrap::Missing;
    }
    observed.spec = planned.spec;
    ChangeSnapshot {
        object_at_first: object.clone(),
        object,
        cluster_object: None,
        observed,
        machines_read: true,
        unread: Vec::new(),
        workload: Reading::NotYet,
        etcd_unread: None,
    }
}

/// Sets a condition of a Machine, by its number, to False.
pub fn fail(snapshot: &mut ChangeSnapshot, machine: usize, kind: &str, message: &str) {
    let Machine { machine, .. } = &mut snapshot.observed.machines[machine - 1];
    let failed: Condition = condition(kind, ConditionStatus::False, message);
    set(&mut machine.conditions, failed);
}
