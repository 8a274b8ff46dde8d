//! The Machine on which an etcd member runs.

use kcp_api::{Machine, Object as _};

use crate::{
    change::decision::Refusal,
    checks::{
        left_behind::{unlisted_hint, unlisted_machine, unlisted_message},
        machine_grace::are_machines_read,
    },
    snapshot::{Snapshot, etcd::peer::may_run_on, management::describe_owner},
    verbs::etcd::members::{ClusterMember, EtcdCluster, refusal},
};

/// The Machine on which an etcd member runs, as far as it decides what may happen to the member.
pub enum Owner<'o> {
    Unowned,
    Deleting(&'o Machine),
    Living(&'o Machine),
    /// The Machine has no node yet, and may own the member.
    Joining(&'o Machine),
}

/// Fails if it is unknown whether a Machine owns the member, or a Machine of another owner does.
pub fn owner<'o>(
    observed: &'o Snapshot,
    cluster: &EtcdCluster<'_>,
    member: &ClusterMember<'_>,
) -> Result<Owner<'o>, Refusal> {
    if !are_machines_read(observed) {
        return Err(refusal(
            "it is unknown whether a Machine owns the member: could not read the Machines".to_owned(),
        ));
    }
    let owns = |machine: &&Machine| observed.node_of(machine) == Some(member.name.as_str());
    if let Some(machine) = observed.machines.iter().find(owns) {
        return Ok(if machine.is_deleting() {
            Owner::Deleting(machine)
        } else {
            Owner::Living(machine)
        });
    }
    if let Some(machine) = observed.machines_of_other_owners.iter().find(owns) {
        return Err(refusal(format!(
            "etcd member {} runs on Machine {}, which {} controls",
            member.name,
            machine.name(),
            describe_owner(machine)
        )));
    }
    let nodes = observed.workload.value().map(|workload| &workload.nodes);
    if nodes.is_none_or(|nodes| nodes.value().is_none()) {
        return Err(refusal(
            "it is unknown whether a Machine owns the member: could not read the Nodes".to_owned(),
        ));
    }
    if let Some(machine) = unlisted_machine(observed, &member.name) {
        let mut refusal = refusal(format!(
            "etcd member {} {}",
            member.name,
            unlisted_message(machine)
        ));
        refusal.remedies.push(unlisted_hint(observed, machine));
        return Err(refusal);
    }
    let joining = joining_owner(observed, cluster, member);
    Ok(joining.map_or(Owner::Unowned, Owner::Joining))
}

/// A Machine without a node may own the member, unless its addresses show that it does not.
fn joining_owner<'o>(
    observed: &'o Snapshot,
    cluster: &EtcdCluster<'_>,
    member: &ClusterMember<'_>,
) -> Option<&'o Machine> {
    let list = cluster.survey.agreed_members();
    let mut listed = list.into_iter().flat_map(|list| &list.members);
    let listed = listed.find(|listed| listed.id == member.id);
    let peer_urls = listed.map_or_else(Vec::new, |listed| listed.peer_urls.clone());
    let may_own = |machine: &&Machine| {
        !machine.is_deleting() && observed.node_of(machine).is_none() && may_run_on(machine, &peer_urls)
    };
    observed.machines.iter().find(may_own)
}
