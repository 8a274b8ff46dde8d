//! What `etcd recover --continue` does once etcd has a quorum again, because a script has made one member the only member.
//!
//! The other members are no longer in etcd's list, so their Machines can never work again, even if their hosts start. The
//! controller creates no Machine while it has one without a member. So each of these Machines is deleted, one after the other, and
//! the controller then creates new ones.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _};

use crate::{
    change::decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
    checks::machine_grace::{Phase, are_machines_changing, are_machines_read},
    problem::{Problem, machine_pauses},
    snapshot::{Snapshot, change::MachineSnapshot, etcd::hexadecimal, workload::Node},
    verbs::etcd::{
        members::{EtcdCluster, refusal},
        remove_member,
    },
};

/// A write that brings the control plane closer to all its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Resume the control plane, because its controller does the rest.
    Resume,
    DeleteMachine {
        name: String,
        uid: String,
        /// Whether its Node is ready: its host still runs, and may have data of etcd. `None` if it is unknown.
        runs: Option<bool>,
    },
    RemoveMember {
        id: u64,
        name: String,
    },
}

impl Step {
    /// What the step does, as a sentence without a subject.
    pub fn describe(&self) -> String {
        match self {
            Self::Resume => "resume the control plane".to_owned(),
            Self::DeleteMachine {
                name,
                runs: Some(false),
                ..
            } => {
                format!("delete Machine {name}, whose member is no longer in etcd")
            }
            Self::DeleteMachine {
                name,
                runs: Some(true),
                ..
            } => format!(
                "delete Machine {name}, whose member is no longer in etcd, with its running host and that host's copy of etcd's \
                 data"
            ),
            Self::DeleteMachine { name, runs: None, .. } => format!(
                "delete Machine {name}, whose member is no longer in etcd; it is unknown whether its host runs"
            ),
            Self::RemoveMember { name, .. } => {
                format!("remove etcd member {name}, which runs on no Machine")
            }
        }
    }
}

/// What is left to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remainder {
    /// The writes that are left, in their order.
    pub steps: Vec<Step>,
    /// The deletions that follow if a host that is not ready yet turns out to be gone.
    pub may_follow: Vec<Step>,
    /// What the controller has not done yet, one line each.
    pub waits_for: Vec<String>,
    /// Whether a Machine is being deleted. The next step waits for it.
    pub is_deleting: bool,
}

impl Remainder {
    /// Whether all members are healthy, and nothing is left to do.
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.waits_for.is_empty()
    }

    /// The writes that are left and those that may follow, one line each.
    pub fn plan(&self) -> Vec<String> {
        let steps = self.steps.iter().map(Step::describe);
        let may_follow = self.may_follow.iter();
        let may_follow =
            may_follow.map(|step| format!("if the host does not come back: {}", step.describe()));
        steps.chain(may_follow).collect()
    }

    /// The step to take now. `None` while the controller works.
    pub fn next_step(&self) -> Option<&Step> {
        self.steps.first().filter(|_| !self.is_deleting)
    }
}

/// Finds what is left to do. Fails if etcd has no quorum, or it is unknown whether etcd has one. The error says what to do first.
pub fn remainder(observed: &Snapshot, now: Timestamp) -> Result<Remainder, Refusal> {
    let control_plane = &observed.control_plane;
    let cluster = judge(observed)?;
    if observed.is_cluster_paused() {
        let paused = Problem::cluster_paused(control_plane, observed.cluster_paused_by());
        return Err(Refusal::because_of(&[paused], RefusedBy::Command, control_plane));
    }
    let resume = control_plane.is_paused().then_some(Step::Resume);
    let memberless = observed.machines.iter().filter(|machine| {
        let node = observed.node_of(machine);
        !machine.is_deleting()
            && cluster
                .members
                .iter()
                .all(|member| Some(member.name.as_str()) != node)
    });
    let (lost, starting): (Vec<_>, Vec<_>) =
        memberless.partition(|machine| is_lost(observed, &cluster, machine, now));
    let delete = |machine: &Machine| Step::DeleteMachine {
        name: machine.name().to_owned(),
        uid: machine.uid().to_owned(),
        runs: runs(observed, machine),
    };
    let starting = starting
        .into_iter()
        .filter(|machine| observed.node_of(machine).is_some());
    let may_follow = starting.map(delete).collect();
    let delete = lost.into_iter().map(delete);
    // The controller removes the members of Machines that it creates or deletes.
    let stray = cluster
        .members
        .iter()
        .filter(|member| member.health.is_err() && !are_machines_changing(observed, now));
    let stray = stray.filter_map(|member| {
        let removable = remove_member::decide(observed, &hexadecimal(member.id), now).ok()?;
        removable.left_machine.is_none().then_some(Step::RemoveMember {
            id: removable.id,
            name: removable.name,
        })
    });
    Ok(Remainder {
        steps: resume.into_iter().chain(delete).chain(stray).collect(),
        may_follow,
        waits_for: waits_for(observed, &cluster),
        is_deleting: observed.machines.iter().any(Machine::is_deleting),
    })
}

/// Decides whether the Machine may be deleted now: its member is not in etcd's list, and etcd has a quorum without it.
pub fn decide_deletion(machine: &MachineSnapshot, uid: &str, now: Timestamp) -> Decision {
    let observed = machine.observed();
    let name = machine.object.name();
    let refuse = |why: String| Decision::Refused(refusal(why));
    if machine.object.is_deleting() {
        return Decision::Unchanged("already being deleted".to_owned());
    }
    if machine.object.uid() != uid {
        return refuse(format!(
            "Machine {name} is newer than the Machine that was to be deleted, and has the same name"
        ));
    }
    let cluster = match judge(observed) {
        Ok(cluster) => cluster,
        Err(refusal) => return Decision::Refused(refusal),
    };
    let mut machines = observed.machines.iter();
    let is_lost = machines
        .find(|other| other.uid() == uid)
        .is_some_and(|own| is_lost(observed, &cluster, own, now));
    if !is_lost {
        return refuse(format!(
            "Machine {name} may have a member of etcd, or may get one: run the command again"
        ));
    }
    let pauses = machine_pauses(machine);
    if !pauses.is_empty() {
        return Decision::Refused(Refusal::because_of(
            &pauses,
            RefusedBy::Command,
            &observed.control_plane,
        ));
    }
    Decision::Write(Proposal {
        write: ObjectWrite::Delete,
        outcome: "deleted; the controller creates a new Machine".to_owned(),
        warnings: Vec::new(),
        consequences: Vec::new(),
        event: ChangeEvent {
            reason: "MachineReplaced",
            action: "EtcdRecover",
            note_verb: "deletion requested",
            detail: format!("of Machine {name}, whose member is no longer in etcd"),
        },
    })
}

/// Fails if etcd is external, has no quorum, or differs between its members; or no Machine that stays has a healthy member.
fn judge(observed: &Snapshot) -> Result<EtcdCluster<'_>, Refusal> {
    if !are_machines_read(observed) {
        return Err(refusal("could not read the Machines".to_owned()));
    }
    if observed.control_plane.deletion_timestamp().is_some() {
        return Err(refusal("the control plane is being deleted".to_owned()));
    }
    let with_first_part = |mut refusal: Refusal| {
        let (name, namespace) = (observed.control_plane.name(), observed.control_plane.namespace());
        refusal.remedies.push(format!(
            "if etcd has lost its quorum for good, first run the script of this command on the surviving host: kubectl kcp etcd \
             recover {name} -n {namespace}"
        ));
        refusal
    };
    let cluster = EtcdCluster::new(observed).map_err(with_first_part)?;
    if !cluster.survey.stacked {
        return Err(refusal(
            "etcd is external: Cluster API does not manage its members".to_owned(),
        ));
    }
    cluster.refuse_corruption()?;
    cluster.select_voter().map_err(with_first_part)?;
    refuse_flag(observed)?;
    let stays = |name: &str| {
        let mut staying = observed.machines.iter().filter(|machine| !machine.is_deleting());
        staying.any(|machine| observed.node_of(machine) == Some(name))
    };
    if !cluster.healthy_voters().any(|(member, _)| stays(&member.name)) {
        return Err(refusal(
            "no healthy member of etcd runs on a Machine that stays, so etcd would lose its data with these Machines: save a snapshot"
                .to_owned(),
        ));
    }
    Ok(cluster)
}

/// Fails if a member would remove the others when it starts again, or it is unknown whether one would.
fn refuse_flag(observed: &Snapshot) -> Result<(), Refusal> {
    let workload = observed.workload.value();
    let Some(pods) = workload.and_then(|workload| workload.static_pods.value()) else {
        return Err(refusal(
            "it is unknown whether a member starts with --force-new-cluster: could not read the Pods of etcd"
                .to_owned(),
        ));
    };
    let Some(pod) = pods.iter().find(|pod| pod.forces_new_cluster) else {
        return Ok(());
    };
    let node = &pod.node;
    let mut refusal = refusal(format!(
        "etcd on Node {node} starts with --force-new-cluster, so its next start would remove every member that has joined: the \
         script has not finished"
    ));
    refusal.remedies.push(format!(
        "run the script again on the host of Node {node}, as before"
    ));
    Err(refusal)
}

/// Whether the Machine can never work again: it has joined or failed to join, but etcd does not list its member.
fn is_lost(observed: &Snapshot, cluster: &EtcdCluster<'_>, machine: &Machine, now: Timestamp) -> bool {
    // A Machine that is still joining is not lost yet, unless its kubelet has stopped.
    let is_done = Phase::of(observed, machine, now) == Phase::Settled
        || node(observed, machine).is_some_and(|node| node.is_unreachable);
    let mut members = cluster.members.iter();
    let node = observed.node_of(machine);
    // A member without a name may be about to start on any Node, and one without a Machine may run on a Machine without a Node.
    let has_no_member = members.all(|member| {
        let name = Some(member.name.as_str());
        let mut machines = observed.machines.iter();
        member.has_started
            && name != node
            && (node.is_some() || machines.any(|other| observed.node_of(other) == name))
    });
    !machine.is_deleting() && is_done && has_no_member
}

fn runs(observed: &Snapshot, machine: &Machine) -> Option<bool> {
    node(observed, machine)?.ready
}

fn node<'o>(observed: &'o Snapshot, machine: &Machine) -> Option<&'o Node> {
    let nodes = observed
        .workload
        .value()
        .and_then(|workload| workload.nodes.value());
    let mut nodes = nodes.into_iter().flatten();
    nodes.find(|node| observed.node_of(machine) == Some(node.name.as_str()))
}

fn waits_for(observed: &Snapshot, cluster: &EtcdCluster<'_>) -> Vec<String> {
    let replicas = observed.control_plane.spec.replica_count();
    let deleting = observed.machines.iter().filter(|machine| machine.is_deleting());
    let mut lines: Vec<String> = deleting
        .map(|machine| format!("Machine {} is being deleted", machine.name()))
        .collect();
    let staying = || observed.machines.iter().filter(|machine| !machine.is_deleting());
    let exist = staying().count();
    if exist != replicas {
        lines.push(format!("{exist} of {replicas} Machines exist"));
    }
    let healthy = |machine: &Machine| {
        let node = observed.node_of(machine);
        cluster
            .healthy_voters()
            .any(|(member, _)| Some(member.name.as_str()) == node)
    };
    let memberless = staying().filter(|machine| !healthy(machine));
    lines
        .extend(memberless.map(|machine| format!("Machine {} has no healthy voting member", machine.name())));
    let runs_on_machine = |name: &str| staying().any(|machine| observed.node_of(machine) == Some(name));
    let stray = cluster
        .members
        .iter()
        .filter(|member| !runs_on_machine(&member.name));
    lines.extend(stray.map(|member| format!("etcd lists member {}, which runs on no Machine", member.name)));
    lines
}

#[cfg(test)]
mod tests {
    use kcp_api::{ConditionStatus::False, Machine, metadata::Time};

    use super::{Remainder, decide_deletion, remainder};
    use crate::{
        change::decision::Decision,
        snapshot::{Reading, Snapshot, workload::Component},
        testing::{
            machine,
            objects::{annotate, condition, minutes_ago, now, pause, set, use_external_etcd},
            snapshot::{failure, member, observed},
        },
    };

    /// `m1` is the only member. The hosts of `m2` and `m3` are gone.
    fn recovered() -> Snapshot {
        let mut observed = observed();
        for number in [2, 3] {
            observed.kill(number);
            observed.nodes()[number - 1].ready = Some(false);
        }
        observed.list(1).members.retain(|member| member.id == 1);
        for (number, machine) in (1..).zip(&mut observed.machines) {
            machine.metadata.uid = Some(format!("u{number}"));
        }
        observed
    }

    fn delete(observed: &mut Snapshot, number: usize) {
        observed.machine(number).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
    }

    /// `m2` and `m3` are gone, and the controller is creating `m4`, which has no node yet.
    fn creates(observed: &mut Snapshot) {
        observed.machines.truncate(1);
        let mut machine = observed.machine(1).clone();
        machine.metadata.name = Some("m4".to_owned());
        machine.metadata.uid = Some("u4".to_owned());
        machine.metadata.creation_timestamp = Some(Time(minutes_ago(1)));
        machine.status.node_name = None;
        set(&mut machine.status.conditions, condition("Ready", False, ""));
        observed.machines.push(machine);
    }

    /// The steps that are left, which one is next, and what the controller has not done; or why nothing may be done.
    type Left = Result<(Vec<String>, Option<String>, Vec<String>), String>;

    fn left(observed: &Snapshot) -> Left {
        match remainder(observed, now()) {
            Ok(left) => Ok((
                left.steps.iter().map(super::Step::describe).collect(),
                left.next_step().map(super::Step::describe),
                left.waits_for,
            )),
            Err(refusal) => Err([refusal.why, refusal.remedies].concat().join("; ")),
        }
    }

    /// How the control plane differs from a recovered one, the steps that are left, the index of the next one, and what the
    /// controller has not done.
    type StepCase = (
        &'static str,
        fn(&mut Snapshot),
        (&'static [&'static str], Option<usize>, &'static [&'static str]),
    );

    const M2: &str = "delete Machine m2, whose member is no longer in etcd";
    const M3: &str = "delete Machine m3, whose member is no longer in etcd";
    const NO_M2: &str = "Machine m2 has no healthy voting member";
    const NO_M3: &str = "Machine m3 has no healthy voting member";

    #[test]
    fn a_host_that_may_be_gone_is_in_the_plan() {
        let mut observed = recovered();
        for number in [2, 3] {
            is_young(observed.machine(number));
        }
        observed.nodes()[1].is_unreachable = true;
        let left = remainder(&observed, now()).expect("a quorum");
        assert_eq!(
            left.plan(),
            [M2.to_owned(), format!("if the host does not come back: {M3}")]
        );
        assert_eq!(left.next_step(), left.steps.first());
    }

    /// The Machine was created a moment ago, and its Node has never been ready.
    fn is_young(machine: &mut Machine) {
        machine.metadata.creation_timestamp = Some(Time(minutes_ago(5)));
        set(&mut machine.status.conditions, condition("Ready", False, ""));
        machine
            .status
            .conditions
            .retain(|other| other.type_ != "NodeKubeadmLabelsAndTaintsSet");
    }

    fn assert_left(cases: &[StepCase]) {
        for (name, change, (steps, next, waits_for)) in cases {
            let mut observed = recovered();
            change(&mut observed);
            let lines = |lines: &[&str]| lines.iter().map(ToString::to_string).collect::<Vec<_>>();
            let next = next.map(|index| steps[index].to_owned());
            assert_eq!(
                left(&observed),
                Ok((lines(steps), next, lines(waits_for))),
                "{name}"
            );
        }
    }

    #[test]
    fn each_lost_machine_is_deleted_until_every_member_is_back() {
        assert_left(&[
            ("recovered", |_| {}, (&[M2, M3], Some(0), &[NO_M2, NO_M3])),
            (
                "a host still runs",
                |o| o.nodes()[1].ready = Some(true),
                (
                    &[
                        "delete Machine m2, whose member is no longer in etcd, with its running host and that host's copy of \
                         etcd's data",
                        M3,
                    ],
                    Some(0),
                    &[NO_M2, NO_M3],
                ),
            ),
            (
                "it is unknown whether a host runs",
                |o| o.nodes()[1].ready = None,
                (
                    &[
                        "delete Machine m2, whose member is no longer in etcd; it is unknown whether its host runs",
                        M3,
                    ],
                    Some(0),
                    &[NO_M2, NO_M3],
                ),
            ),
            (
                "a Machine without a Node, and every member is that of another one",
                |o| o.machine(2).status.node_name = None,
                (
                    &[
                        "delete Machine m2, whose member is no longer in etcd; it is unknown whether its host runs",
                        M3,
                    ],
                    Some(0),
                    &[NO_M2, NO_M3],
                ),
            ),
            (
                "paused",
                |o| pause(&mut o.control_plane.metadata),
                (&["resume the control plane", M2, M3], Some(0), &[NO_M2, NO_M3]),
            ),
            (
                "the first deletion runs",
                |o| delete(o, 2),
                (
                    &[M3],
                    None,
                    &["Machine m2 is being deleted", "2 of 3 Machines exist", NO_M3],
                ),
            ),
            (
                "the first Machine is gone",
                |o| drop(o.machines.remove(1)),
                (&[M3], Some(0), &["2 of 3 Machines exist", NO_M3]),
            ),
            (
                "both are gone",
                |o| o.machines.truncate(1),
                (&[], None, &["1 of 3 Machines exist"]),
            ),
            (
                "the lost Machines are young",
                |o| {
                    for number in [2, 3] {
                        is_young(o.machine(number));
                    }
                    o.nodes()[1].is_unreachable = true;
                },
                (&[M2], Some(0), &[NO_M2, NO_M3]),
            ),
            ("healthy", |o| *o = observed(), (&[], None, &[])),
        ]);
        assert!(remainder(&observed(), now()).is_ok_and(|left| left.is_empty()));
        assert!(Remainder::default().is_empty());
    }

    #[test]
    fn a_machine_that_joins_is_left_alone() {
        assert_left(&[
            (
                "a new Machine joins",
                creates,
                (
                    &[],
                    None,
                    &["2 of 3 Machines exist", "Machine m4 has no healthy voting member"],
                ),
            ),
            (
                "a new Machine joins, and its member is about to start",
                |o| {
                    creates(o);
                    o.list(1).members.push(member(4, ""));
                    o.list(1).members[1].is_learner = true;
                },
                (
                    &[],
                    None,
                    &[
                        "2 of 3 Machines exist",
                        "Machine m4 has no healthy voting member",
                        "etcd lists member 4, which runs on no Machine",
                    ],
                ),
            ),
            (
                "a Machine without a Node, and a member that may be its own",
                |o| {
                    *o = observed();
                    o.machine(2).status.node_name = None;
                },
                (
                    &[],
                    None,
                    &[NO_M2, "etcd lists member node-m2, which runs on no Machine"],
                ),
            ),
            (
                "a member that never started is left of a Machine that is gone",
                |o| {
                    o.machines.truncate(1);
                    o.list(1).members.push(member(4, ""));
                    o.list(1).members[1].is_learner = true;
                },
                (
                    &["remove etcd member 4, which runs on no Machine"],
                    Some(0),
                    &[
                        "1 of 3 Machines exist",
                        "etcd lists member 4, which runs on no Machine",
                    ],
                ),
            ),
        ]);
    }

    #[test]
    fn nothing_is_deleted_without_a_quorum_of_members_that_stay() {
        type Case = (&'static str, fn(&mut Snapshot), &'static str);
        let cases: &[Case] = &[
            (
                "no quorum",
                |o| {
                    o.list(1).members.push(member(2, "node-m2"));
                    o.list(1).members.push(member(3, "node-m3"));
                },
                "etcd has no quorum: 1 of 3 voting members healthy, 2 needed for quorum; etcd member node-m2 does not respond: cannot \
                 connect: connection refused; etcd member node-m3 does not respond: cannot connect: connection refused; if etcd has lost its quorum for good, first run the script of this command on the surviving host: kubectl kcp etcd recover c1-cp -n d",
            ),
            (
                "no member can be asked",
                |o| o.etcd = Reading::Failed(failure("etcd", "no answer")),
                "no answer; if etcd has lost its quorum for good, first run the script of this command on the surviving host: kubectl kcp \
                 etcd recover c1-cp -n d",
            ),
            (
                "the next start of a member removes the others",
                |o| o.pod(Component::Etcd, 1).forces_new_cluster = true,
                "etcd on Node node-m1 starts with --force-new-cluster, so its next start would remove every member that has \
                 joined: the script has not finished; run the script again on the host of Node node-m1, as before",
            ),
            (
                "the Pods could not be read",
                |o| {
                    let failed = Reading::Failed(failure("Pod", "forbidden"));
                    o.workload().static_pods = failed;
                },
                "it is unknown whether a member starts with --force-new-cluster: could not read the Pods of etcd",
            ),
            (
                "the Machine of the member is being deleted",
                |o| delete(o, 1),
                "no healthy member of etcd runs on a Machine that stays, so etcd would lose its data with these Machines: save a \
                 snapshot",
            ),
            (
                "the Machines could not be read",
                |o| o.failed_reads.push(failure("Machine", "forbidden")),
                "could not read the Machines",
            ),
            (
                "the Cluster is paused",
                |o| o.cluster_mut().spec.paused = true,
                "the Cluster is paused: no controller reconciles the control plane; resume the Cluster: kubectl patch cluster c1 -n d \
                 --type=merge -p '{\"spec\":{\"paused\":false}}'",
            ),
            (
                "the control plane is being deleted",
                |o| o.control_plane.metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                "the control plane is being deleted",
            ),
            (
                "external etcd",
                |o| {
                    use_external_etcd(&mut o.control_plane.spec);
                    o.survey().stacked = false;
                },
                "etcd is external: Cluster API does not manage its members",
            ),
        ];
        for (name, change, expected) in cases {
            let mut observed = recovered();
            change(&mut observed);
            assert_eq!(left(&observed), Err((*expected).to_owned()), "{name}");
        }
    }

    #[test]
    fn a_machine_is_judged_again_before_it_is_deleted() {
        type Case = (&'static str, fn(&mut Snapshot), Result<(), &'static str>);
        let may_have = "Machine m2 may have a member of etcd, or may get one: run the command again";
        let cases: &[Case] = &[
            ("lost", |_| {}, Ok(())),
            (
                "its member is back",
                |o| o.list(1).members.push(member(2, "node-m2")),
                Err("etcd has no quorum: 1 of 2 voting members healthy, 2 needed for quorum"),
            ),
            (
                "it has a member",
                |o| {
                    *o = observed();
                    o.machine(2).metadata.uid = Some("u2".to_owned());
                },
                Err(may_have),
            ),
            (
                "a member is about to start",
                |o| {
                    o.list(1).members.push(member(4, ""));
                    o.list(1).members[1].is_learner = true;
                },
                Err(may_have),
            ),
            (
                "another Machine has its name",
                |o| o.machine(2).metadata.uid = Some("new".to_owned()),
                Err("Machine m2 is newer than the Machine that was to be deleted, and has the same name"),
            ),
            (
                "it is paused",
                |o| annotate(&mut o.machine(2).metadata, "cluster.x-k8s.io/paused", ""),
                Err("Machine m2 is paused: no controller provisions, updates or deletes it"),
            ),
        ];
        for (name, change, expected) in cases {
            let mut judged = machine::snapshot("m2");
            let mut observed = recovered();
            change(&mut observed);
            judged.object.machine = observed.machine(2).clone();
            judged.control_plane_snapshot.observed = observed;
            let decided = match decide_deletion(&judged, "u2", now()) {
                Decision::Write(proposal) => {
                    assert_eq!(
                        proposal.event.note("alice"),
                        "deletion requested by alice of Machine m2, whose member is no longer in etcd"
                    );
                    Ok(())
                }
                Decision::Refused(refusal) => Err(refusal.why.first().cloned().unwrap_or_default()),
                Decision::Unchanged(why) => Err(why),
            };
            assert_eq!(decided, expected.map_err(str::to_owned), "{name}");
        }
        let mut deleting = machine::snapshot("m2");
        deleting.object.machine.metadata.deletion_timestamp = Some(Time(now()));
        assert_eq!(
            decide_deletion(&deleting, "u2", now()),
            Decision::Unchanged("already being deleted".to_owned())
        );
    }
}
