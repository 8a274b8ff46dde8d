//! What is left of a control plane whose etcd has lost its quorum: the hosts that may have its data.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _, snapshot_record::SnapshotRecord};

use crate::{
    change::decision::Refusal,
    checks::machine_grace::are_machines_read,
    snapshot::Snapshot,
    verbs::etcd::members::{EtcdCluster, no_such_member, refusal},
};

/// The hosts that may have etcd's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    /// The hosts of all Machines that have joined, by the names of their Machines.
    pub hosts: Vec<ControlPlaneHost>,
    /// The Node of the host on which etcd continues. `None` if the user must compare the hosts first.
    pub survivor: Option<String>,
    /// What may be lost, one line each.
    pub losses: Vec<String>,
    /// Why it is unknown whether etcd has a quorum. `None` if a member reports that it has no leader, and no member reports a
    /// leader.
    pub doubt: Option<String>,
}

/// A host of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlaneHost {
    pub machine: String,
    /// The name of the Node, which is the name of its etcd member.
    pub node: String,
    /// The address to which a person connects. `None` if Cluster API does not know it.
    pub address: Option<String>,
    pub is_deleting: bool,
    /// What is known about its etcd member, as the end of a sentence about the host.
    pub known: String,
}

/// Finds the hosts that may have etcd's data. `requested` is the name of the Machine or Node of the host on which etcd continues.
/// Fails if etcd has a quorum, or no host can bring it back.
pub fn find(observed: &Snapshot, requested: Option<&str>, now: Timestamp) -> Result<Remains, Refusal> {
    refuse_unsuitable(observed)?;
    let doubt = refuse_quorum(observed)?;
    let hosts = hosts(observed);
    let survivor = choose(observed, &hosts, requested)?;
    Ok(Remains {
        survivor: survivor.map(|host| host.node.clone()),
        losses: losses(observed, now),
        hosts,
        doubt,
    })
}

/// Fails if no host of the control plane can have etcd's data, because etcd is external.
pub(super) fn refuse_external(observed: &Snapshot) -> Result<(), Refusal> {
    if observed.has_external_etcd() {
        return Err(refusal(
            "etcd is external: Cluster API does not manage its members, and no host of the control plane has its data".to_owned(),
        ));
    }
    Ok(())
}

/// Fails if no host of the control plane can have etcd's data, or it is unknown which.
pub(super) fn refuse_unsuitable(observed: &Snapshot) -> Result<(), Refusal> {
    refuse_external(observed)?;
    if observed.control_plane.deletion_timestamp().is_some() {
        return Err(refusal("the control plane is being deleted".to_owned()));
    }
    if !are_machines_read(observed) {
        return Err(refusal(
            "it is unknown which hosts have etcd's data: could not read the Machines".to_owned(),
        ));
    }
    Ok(())
}

/// The hosts of all Machines that have joined, by the names of their Machines.
pub(super) fn hosts(observed: &Snapshot) -> Vec<ControlPlaneHost> {
    let joined = observed.machines.iter();
    let mut hosts: Vec<ControlPlaneHost> = joined.filter_map(|machine| describe(observed, machine)).collect();
    hosts.sort_by(|one, other| one.machine.cmp(&other.machine));
    hosts
}

/// Returns why it is unknown whether etcd has a quorum. `None` if a member reports that it has no leader, and no member reports a
/// leader. Fails if etcd has a quorum, or must have one because the API server reads from it.
fn refuse_quorum(observed: &Snapshot) -> Result<Option<String>, Refusal> {
    let why = match EtcdCluster::new(observed) {
        Ok(cluster) if cluster.select_voter().is_ok() => {
            format!("etcd has a quorum: {}", cluster.votes())
        }
        Ok(cluster) => {
            let queried = cluster.survey.queried.iter();
            let statuses: Vec<_> = queried.filter_map(|member| member.status().ok()).collect();
            let why = if statuses.is_empty() {
                "no member responds"
            } else if statuses.iter().any(|status| status.leader.is_some()) {
                "a member has a leader"
            } else {
                return Ok(None);
            };
            return Ok(Some(format!("{why}; {}", cluster.votes())));
        }
        Err(unread) => {
            let nodes = observed.workload.value().map(|workload| &workload.nodes);
            let lacks_etcd = observed
                .etcd
                .value()
                .is_some_and(|survey| survey.api_server_lacks_etcd);
            if lacks_etcd || nodes.is_none_or(|nodes| nodes.value().is_none()) {
                return Ok(Some(unread.why.join("; ")));
            }
            "the workload cluster's API server reads the Nodes from etcd, so etcd has a quorum".to_owned()
        }
    };
    let (name, namespace) = (observed.control_plane.name(), observed.control_plane.namespace());
    let mut refusal = refusal(why);
    refusal.remedies.push(format!(
        "to replace the Machines that have lost their members: kubectl kcp etcd recover {name} -n {namespace} --continue"
    ));
    Err(refusal)
}

fn describe(observed: &Snapshot, machine: &Machine) -> Option<ControlPlaneHost> {
    let node = observed.node_of(machine)?.to_owned();
    let survey = observed.etcd.value();
    let mut queried = survey.into_iter().flat_map(|survey| &survey.queried);
    let status = queried
        .find(|queried| queried.name == node)
        .and_then(|queried| queried.status().ok());
    let known = match status {
        Some(status) => format!("its etcd member responds, with revision {}", status.revision),
        None if observed.is_etcd_reported_down(machine) => {
            "its etcd member was unhealthy when Cluster API last saw it".to_owned()
        }
        None => "unknown: without a quorum, no member can be asked through the API server".to_owned(),
    };
    Some(ControlPlaneHost {
        machine: machine.name().to_owned(),
        node,
        address: machine.status.host_address.clone(),
        is_deleting: machine.is_deleting(),
        known,
    })
}

/// The host on which etcd continues: the requested one, or the only one that there is.
pub(super) fn choose<'h>(
    observed: &Snapshot,
    hosts: &'h [ControlPlaneHost],
    requested: Option<&str>,
) -> Result<Option<&'h ControlPlaneHost>, Refusal> {
    let mut staying = hosts.iter().filter(|host| !host.is_deleting);
    let Some(name) = requested else {
        let first = staying.next();
        if first.is_none() {
            return Err(restore_refusal(
                observed,
                "etcd can continue on no host: no control plane Machine that stays has a Node",
            ));
        }
        return Ok(first.filter(|_| staying.next().is_none()));
    };
    let found = hosts
        .iter()
        .find(|host| host.machine == name || host.node == name)
        .ok_or_else(|| no_such_member(name, hosts.iter().map(|host| host.machine.as_str())))?;
    if found.is_deleting {
        return Err(restore_refusal(
            observed,
            &format!(
                "Machine {} is being deleted: once etcd has a quorum again, Cluster API deletes its host and all data",
                found.machine
            ),
        ));
    }
    Ok(Some(found))
}

fn restore_refusal(observed: &Snapshot, why: &str) -> Refusal {
    let mut refusal = refusal(why.to_owned());
    let mut remedy =
        "restore a snapshot into a new Cluster: https://etcd.io/docs/v3.6/op-guide/recovery/".to_owned();
    if observed.machines.iter().any(Machine::has_node) {
        remedy = format!("save a copy of /var/lib/etcd from each host that is left; then {remedy}");
    }
    refusal.remedies.push(remedy);
    refusal
}

fn losses(observed: &Snapshot, now: Timestamp) -> Vec<String> {
    let control_plane = &observed.control_plane;
    let mut losses = vec![
        "the writes that the surviving member does not have: run the script without arguments on each host that is left, to see \
         the member's newest revision, and a time after which the member has no writes"
            .to_owned(),
    ];
    let seen = control_plane.condition("EtcdClusterHealthy");
    if let Some(since) = seen
        .filter(|condition| !condition.is_true())
        .and_then(|condition| condition.last_transition_time)
    {
        losses.push(format!("Cluster API has not seen etcd healthy since {since}"));
    }
    losses.push(match SnapshotRecord::from_control_plane(control_plane, now) {
        Some(record) => format!(
            "the last recorded snapshot of etcd is from {}, of member {}{}",
            record.completed,
            record.member,
            record
                .place
                .map_or_else(String::new, |place| format!(", at {place}"))
        ),
        None => "no snapshot of etcd is recorded".to_owned(),
    });
    losses
}

#[cfg(test)]
mod tests {
    use kcp_api::{
        ConditionStatus::{False, True},
        metadata::Time,
    };

    use super::find;
    use crate::{
        snapshot::Snapshot,
        testing::{
            objects::{condition, minutes_ago, now, set, use_external_etcd},
            snapshot::{failure, lost, observed},
        },
    };

    /// The Nodes on which etcd may continue and the chosen one, or why there is none.
    type Found = Result<(Vec<String>, Option<String>), String>;

    fn found(observed: &Snapshot, requested: Option<&str>) -> Found {
        match find(observed, requested, now()) {
            Ok(remains) => {
                let staying = remains.hosts.into_iter().filter(|host| !host.is_deleting);
                Ok((staying.map(|host| host.node).collect(), remains.survivor))
            }
            Err(refusal) => Err([refusal.why, refusal.remedies].concat().join("; ")),
        }
    }

    fn delete(observed: &mut Snapshot, number: usize) {
        observed.machine(number).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
    }

    #[test]
    fn etcd_continues_on_a_host_that_stays() {
        type Case = (&'static str, fn(&mut Snapshot), Option<&'static str>, Found);
        let chosen = |nodes: &[&str], survivor: Option<&str>| {
            let nodes = nodes.iter().map(ToString::to_string).collect();
            Ok((nodes, survivor.map(str::to_owned)))
        };
        let all = ["node-m1", "node-m2", "node-m3"];
        let copy = "save a copy of /var/lib/etcd from each host that is left; then restore a snapshot into a new Cluster: \
            https://etcd.io/docs/v3.6/op-guide/recovery/";
        let cases: Vec<Case> = vec![
            ("several hosts", |_| {}, None, chosen(&all, None)),
            ("by its Machine", |_| {}, Some("m2"), chosen(&all, Some("node-m2"))),
            ("by its Node", |_| {}, Some("node-m2"), chosen(&all, Some("node-m2"))),
            (
                "an unknown name",
                |_| {},
                Some("m9"),
                Err("etcd has no member m9; the members are m1, m2, m3".to_owned()),
            ),
            (
                "only one host stays",
                |o| {
                    delete(o, 1);
                    delete(o, 3);
                },
                None,
                chosen(&["node-m2"], Some("node-m2")),
            ),
            (
                "the chosen host is being deleted",
                |o| delete(o, 1),
                Some("m1"),
                Err(format!(
                    "Machine m1 is being deleted: once etcd has a quorum again, Cluster API deletes its host and all data; {copy}"
                )),
            ),
            (
                "no host stays",
                |o| (1..=3).for_each(|number| delete(o, number)),
                None,
                Err(format!(
                    "etcd can continue on no host: no control plane Machine that stays has a Node; {copy}"
                )),
            ),
            (
                "no Machine has joined",
                |o| o.machines.clear(),
                None,
                Err(
                    "etcd can continue on no host: no control plane Machine that stays has a Node; restore a snapshot into a new \
                     Cluster: https://etcd.io/docs/v3.6/op-guide/recovery/"
                        .to_owned(),
                ),
            ),
            (
                "the Machines could not be read",
                |o| o.failed_reads.push(failure("Machine", "forbidden")),
                None,
                Err("it is unknown which hosts have etcd's data: could not read the Machines".to_owned()),
            ),
            (
                "external etcd",
                |o| use_external_etcd(&mut o.control_plane.spec),
                None,
                Err(
                    "etcd is external: Cluster API does not manage its members, and no host of the control plane has its data"
                        .to_owned(),
                ),
            ),
            (
                "the control plane is being deleted",
                |o| o.control_plane.metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                None,
                Err("the control plane is being deleted".to_owned()),
            ),
        ];
        for (name, change, requested, expected) in cases {
            let mut observed = lost();
            change(&mut observed);
            assert_eq!(found(&observed, requested), expected, "{name}");
        }
    }

    #[test]
    fn nothing_is_recovered_while_a_quorum_exists() {
        type Case = (&'static str, fn(&mut Snapshot), &'static str);
        let cases: &[Case] = &[
            (
                "healthy",
                |o| *o = observed(),
                "etcd has a quorum: 3 of 3 voting members healthy, 2 needed for quorum",
            ),
            (
                "one member is dead",
                |o| {
                    *o = observed();
                    o.kill(3);
                },
                "etcd has a quorum: 2 of 3 voting members healthy, 2 needed for quorum",
            ),
            (
                "etcd cannot be asked, but the API server can",
                |o| o.workload = observed().workload,
                "the workload cluster's API server reads the Nodes from etcd, so etcd has a quorum",
            ),
        ];
        let remedy = "to replace the Machines that have lost their members: kubectl kcp etcd recover c1-cp -n d --continue";
        for (name, change, why) in cases {
            let mut observed = lost();
            change(&mut observed);
            let expected = Err(format!("{why}; {remedy}"));
            assert_eq!(found(&observed, Some("m1")), expected, "{name}");
        }
    }

    #[test]
    fn what_is_unknown_is_said() {
        let mut observed = lost();
        set(
            &mut observed.control_plane.status.conditions,
            condition("EtcdClusterHealthy", True, ""),
        );
        let remains = find(&observed, None, now()).expect("hosts");
        assert_eq!(
            remains.doubt.as_deref(),
            Some("workload cluster: no answer within 5s")
        );
        let unknown = "unknown: without a quorum, no member can be asked through the API server";
        assert!(remains.hosts.iter().all(|host| host.known == unknown));
        assert_eq!(remains.losses.len(), 2, "{:?}", remains.losses);
        assert_eq!(remains.losses[1], "no snapshot of etcd is recorded");

        let mut unhealthy = condition("EtcdClusterHealthy", False, "");
        unhealthy.last_transition_time = Some(minutes_ago(7));
        set(&mut observed.control_plane.status.conditions, unhealthy);
        set(
            &mut observed.machine(2).status.conditions,
            condition("EtcdPodHealthy", False, ""),
        );
        let remains = find(&observed, None, now()).expect("hosts");
        assert_eq!(
            remains.losses[1],
            "Cluster API has not seen etcd healthy since 2026-08-21T11:53:00Z"
        );
        assert_eq!(
            remains.hosts[1].known,
            "its etcd member was unhealthy when Cluster API last saw it"
        );
    }

    #[test]
    fn members_without_a_leader_report_what_they_have() {
        let mut observed = observed();
        observed.kill(2);
        observed.kill(3);
        observed.status(1).leader = None;
        let remains = find(&observed, Some("m1"), now()).expect("hosts");
        assert_eq!(remains.doubt, None);
        let votes = "1 of 3 voting members healthy, 2 needed for quorum";
        observed.status(1).leader = Some(1);
        let remains = find(&observed, Some("m1"), now()).expect("hosts");
        assert_eq!(remains.doubt, Some(format!("a member has a leader; {votes}")));
        observed.status(1).leader = None;
        let remains = find(&observed, Some("m1"), now()).expect("hosts");
        assert_eq!(remains.doubt, None);
        assert_eq!(
            remains.hosts[0].known,
            "its etcd member responds, with revision 100000"
        );
    }
}
