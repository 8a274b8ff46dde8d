//! Machines to decide about.

use serde_json::json;

use crate::verbs::machine::{object::MachineObject, situation::MachineSituation};
use crate::{
    change::example,
    plan::observed::{Etcd, EtcdMember},
};

/// One of three Machines `m1`, `m2` and `m3` with nothing to do, the oldest first.
pub fn situation(machine: &str) -> MachineSituation {
    let object = json!({"metadata": {"name": machine, "namespace": "d", "uid": "u", "resourceVersion": "7",
        "labels": {"cluster.x-k8s.io/control-plane": ""}}});
    MachineSituation {
        object: MachineObject::decode(&object.to_string()).expect("a Machine"),
        situation: example::situation(),
        health_checks: Vec::new(),
    }
}

/// Gives a Machine, by its number, a condition that does not hold.
pub fn fail(of: &mut MachineSituation, machine: usize, kind: &str, message: &str) {
    example::fail(&mut of.situation, machine, kind, message);
}

/// Has etcd tell of its members, those of some Machines being dead.
pub fn dead(of: &mut MachineSituation, machines: &[&str]) {
    let member = |machine: &str| EtcdMember {
        name: format!("node-{machine}"),
        silence: machines
            .contains(&machine)
            .then(|| "no answer within 2s".to_owned()),
        ..EtcdMember::default()
    };
    of.situation.observed.etcd = Etcd::Members(["m1", "m2", "m3"].map(member).to_vec());
}
