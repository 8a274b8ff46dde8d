//! The changes of a control plane during which no etcd member may pause: a Machine that is starting or being
//! deleted can fail during the pause, and etcd would then lose quorum.

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::{
    change::{
        decision::{Refusal, RefusedBy},
        replacement::refusal_during_replacement,
    },
    checks::machine_grace::{Phase, are_machines_read},
    snapshot::Snapshot,
    verbs::{etcd::members::EtcdCluster, rollout::progress},
};

/// Fails if a Machine is starting or being deleted, or the controller may create or delete one. The error lists all reasons.
pub fn refuse_during_changes(
    observed: &Snapshot,
    cluster: &EtcdCluster<'_>,
    now: Timestamp,
) -> Result<(), Refusal> {
    // The control plane has no influence on the members of an external etcd.
    if !cluster.survey.stacked {
        return Ok(());
    }
    let (name, namespace) = (observed.control_plane.name(), observed.control_plane.namespace());
    let mut refusal = Refusal::new(RefusedBy::Command, current(observed, cluster, now));
    refusal.remedies.push(format!(
        "wait until the change is complete; watch with: kubectl kcp status {name} -n {namespace} --watch"
    ));
    let is_paused = observed.control_plane.is_paused() || observed.is_cluster_paused();
    if !is_paused {
        let possible = possible(observed, now);
        // With a full database, no change completes, so the user must be able to pause the control plane first.
        if refusal.why.is_empty() && !possible.is_empty() {
            refusal.remedies.push(format!(
                "if the change is stuck, pause the control plane first: kubectl kcp rollout pause {name} -n {namespace}"
            ));
        }
        refusal.why.extend(possible);
    }
    if let Some(of_replacement) = refusal_during_replacement(observed, None, now) {
        refusal.why.extend(of_replacement.why);
    }
    if refusal.why.is_empty() {
        Ok(())
    } else {
        Err(refusal)
    }
}

/// The changes that take place now, whether or not the control plane is paused.
fn current(observed: &Snapshot, cluster: &EtcdCluster<'_>, now: Timestamp) -> Vec<String> {
    let mut why = Vec::new();
    if !are_machines_read(observed) {
        why.push("could not read the Machines".to_owned());
    }
    if observed.control_plane.deletion_timestamp().is_some() {
        why.push("the control plane is being deleted".to_owned());
    }
    let machines = observed.machines.iter();
    why.extend(machines.filter_map(|machine| {
        let what = match Phase::of(observed, machine, now) {
            Phase::Starting => "is starting",
            Phase::Deleting => "is being deleted",
            Phase::Settled => return None,
        };
        Some(format!("Machine {} {what}", machine.name()))
    }));
    let starting = cluster.members.iter().filter(|member| member.is_starting());
    why.extend(starting.map(|member| format!("etcd member {} does not vote yet", member.name)));
    why
}

/// The changes that the controller may begin or continue unless it is paused.
fn possible(observed: &Snapshot, now: Timestamp) -> Vec<String> {
    let control_plane = &observed.control_plane;
    let mut why = Vec::new();
    let settled = observed
        .machines
        .iter()
        .filter(|machine| Phase::of(observed, machine, now) == Phase::Settled);
    why.extend(settled.filter_map(|machine| {
        let what = if machine.deletion_timestamp().is_some() {
            "is still being deleted"
        } else if !machine.has_node() {
            "still has no node"
        } else {
            return None;
        };
        Some(format!("Machine {} {what}", machine.name()))
    }));
    if !control_plane.has_compared_machines() {
        why.push("the controller has not processed the latest change to the spec yet".to_owned());
    }
    let (replicas, desired) = (control_plane.status.replicas, control_plane.desired_replicas());
    if replicas != desired {
        why.push(format!("the control plane has {replicas} of {desired} Machines"));
    }
    why.extend(progress(control_plane));
    why
}

#[cfg(test)]
mod tests {
    use kcp_api::metadata::Time;

    use super::refuse_during_changes;
    use crate::{
        snapshot::Snapshot,
        testing::{
            objects::{minutes_ago, now, pause},
            snapshot::observed,
        },
        verbs::etcd::members::EtcdCluster,
    };

    fn why(observed: &Snapshot) -> Vec<String> {
        let cluster = EtcdCluster::new(observed).expect("the members are known");
        match refuse_during_changes(observed, &cluster, now()) {
            Ok(()) => Vec::new(),
            Err(refusal) => refusal.why,
        }
    }

    #[test]
    fn a_machine_that_comes_or_goes_refuses() {
        type Case = (
            &'static str,
            fn(&mut Snapshot),
            &'static [&'static str],
            &'static [&'static str],
        );
        // The reasons to refuse, and the reasons that remain while the control plane is paused.
        let cases: &[Case] = &[
            ("none", |_| {}, &[], &[]),
            (
                "deleting",
                |o| o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                &["Machine m2 is being deleted"],
                &["Machine m2 is being deleted"],
            ),
            (
                "deleting for too long",
                |o| o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(31))),
                &["Machine m2 is still being deleted"],
                &[],
            ),
            (
                "starting",
                |o| {
                    o.machine(2).metadata.creation_timestamp = Some(Time(minutes_ago(1)));
                    o.machine(2).status.node_name = None;
                },
                &["Machine m2 is starting"],
                &["Machine m2 is starting"],
            ),
            (
                "never joined",
                |o| o.machine(2).status.node_name = None,
                &["Machine m2 still has no node"],
                &[],
            ),
            (
                "a learner",
                |o| o.each_list(|list| list.members[2].is_learner = true),
                &["etcd member node-m3 does not vote yet"],
                &["etcd member node-m3 does not vote yet"],
            ),
            (
                "scaling",
                |o| o.control_plane.spec.replicas = Some(5),
                &["the control plane has 3 of 5 Machines"],
                &[],
            ),
            (
                "rolling out",
                |o| o.control_plane.status.up_to_date_replicas = 1,
                &["a rollout is in progress: 1 of 3 Machines up to date"],
                &[],
            ),
            (
                "unobserved",
                |o| o.control_plane.metadata.generation = Some(99),
                &["the controller has not processed the latest change to the spec yet"],
                &[],
            ),
            (
                "external",
                |o| {
                    o.survey().stacked = false;
                    o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
                },
                &[],
                &[],
            ),
        ];
        for (name, change, running, paused) in cases {
            let mut observed = observed();
            change(&mut observed);
            assert_eq!(why(&observed), *running, "{name}");
            pause(&mut observed.control_plane.metadata);
            assert_eq!(why(&observed), *paused, "{name}, paused");
        }
    }
}
