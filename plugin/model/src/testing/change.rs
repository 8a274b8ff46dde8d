//! Snapshots for tests of changes.

use kcp_api::{
    ConditionStatus, KubeadmControlPlane, decode,
    machine::{Bootstrap, Infrastructure},
};
use kcp_rules::testing::case::{Base, V1BETA2};
use serde_json::json;

use crate::{
    snapshot::change::ChangeSnapshot,
    testing::{
        objects::{condition, set},
        plan,
    },
};

/// Three Machines `m1`, `m2` and `m3`, the oldest first, without failure domains and with nothing to do.
pub fn snapshot() -> ChangeSnapshot {
    let mut object = Base::ControlPlane(V1BETA2).object();
    object["spec"]["replicas"] = json!(3);
    let object = object.to_string();
    let decoded: KubeadmControlPlane = decode(&object).expect("a control plane");
    let mut observed = plan::observed();
    observed.set_failure_domains("");
    for machine in &mut observed.machines {
        machine.spec.failure_domain = None;
        machine.spec.version.clone_from(&decoded.spec.version);
        machine.infrastructure = Infrastructure::ClonedFrom(decoded.spec.infrastructure_ref.clone());
        machine.bootstrap = Bootstrap::Missing;
    }
    observed.control_plane.spec = decoded.spec;
    ChangeSnapshot {
        json_at_start: object.clone(),
        json: object,
        observed,
        are_machines_read: true,
        unread: Vec::new(),
        etcd_failure: None,
    }
}

/// Sets a condition of a Machine, by its number, to False.
pub fn fail(snapshot: &mut ChangeSnapshot, machine: usize, kind: &str, message: &str) {
    let machine = &mut snapshot.observed.machines[machine - 1];
    set(
        &mut machine.status.conditions,
        condition(kind, ConditionStatus::False, message),
    );
}
