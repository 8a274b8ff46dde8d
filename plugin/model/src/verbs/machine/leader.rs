//! Who leads etcd.

use crate::plan::observed::{Etcd, Observed};

/// What there is to say of a Machine that goes while its member leads; none where another leads, or nobody is known to.
pub fn leads(observed: &Observed, machine: &str) -> Option<String> {
    let Etcd::Members(members) = &observed.etcd else {
        return None;
    };
    let mut machines = observed.machines.iter();
    let node = machines
        .find(|other| other.machine.name == machine)?
        .machine
        .node
        .as_ref()?;
    let leads = members
        .iter()
        .any(|member| member.is_leader && member.name == *node);
    leads.then(|| {
        format!(
            "etcd member {node} of Machine {machine} leads: Cluster API moves the leadership before it removes the \
             member, and writes wait for the moment of that"
        )
    })
}
