//! Snapshots of Machines for tests of verbs.

use serde_json::json;

use crate::{
    snapshot::{
        EtcdMember, EtcdMembers,
        change::{MachineObject, MachineSnapshot},
    },
    testing::change,
};

/// One of three Machines `m1`, `m2` and `m3` with nothing to do, the oldest first.
pub fn snapshot(machine: &str) -> MachineSnapshot {
    let object = json!({"metadata": {"name": machine, "namespace": "d", "uid": "u", "resourceVersion": "7",
        "labels": {"cluster.x-k8s.io/control-plane": ""}}});
    MachineSnapshot {
        object: MachineObject::decode(&object.to_string()).expect("a Machine"),
        json_at_start: object.to_string(),
        control_plane_snapshot: change::snapshot(),
        health_checks: Vec::new(),
    }
}

/// Sets a condition of a Machine, by its number, to False.
pub fn fail(machine: &mut MachineSnapshot, number: usize, kind: &str, message: &str) {
    change::fail(&mut machine.control_plane_snapshot, number, kind, message);
}

/// Lets etcd report its members. The members of `machines` do not respond.
pub fn dead(machine: &mut MachineSnapshot, machines: &[&str]) {
    let member = |name: &str| EtcdMember {
        name: format!("node-{name}"),
        fault: machines
            .contains(&name)
            .then(|| "does not respond: no answer within 2s".to_owned()),
        ..EtcdMember::default()
    };
    machine.control_plane_snapshot.observed.etcd_members =
        EtcdMembers::Read(["m1", "m2", "m3"].map(member).to_vec());
}
