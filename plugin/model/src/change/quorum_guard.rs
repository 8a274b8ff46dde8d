//! Decides whether etcd keeps its quorum during a plan, and after the loss of one Machine.
//!
//! [`fatal_loss`] follows `canSafelyRemediateMachine` of Cluster API, which `reconcilePreTerminateHook` also calls. Unlike
//! Cluster API, it uses the status of each etcd member, and ignores Machines that are being deleted.

use kcp_api::{Machine, Object as _};

use crate::{
    checks::joining::needed_joining_machine,
    plan::{
        Plan,
        messages::{self, join_member_names},
        simulate::QuorumRisk,
        state::{PlanState, Replica},
        step::NoPlan,
    },
    problem::Problem,
    quorum::{Change, Member, Votes},
    snapshot::{
        EtcdMembers, Snapshot,
        etcd::{EtcdSurvey, NOSPACE, peer::may_run_on},
    },
};

/// Whether a planned change may be written without a risk to etcd's quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuorumGuard {
    Clear,
    /// The controller cannot take the first step of the plan now. With `--force`, the change is written, and the
    /// controller waits.
    Blocked(Vec<Problem>),
    /// The controller would take the first step of the plan now, although etcd could lose quorum. `--force` does not
    /// override this.
    AtRisk {
        /// The problems that the controller itself does not detect.
        blockers: Vec<Problem>,
        risk: QuorumRisk,
    },
    /// No sequence of steps completes the change and keeps etcd's quorum. `--force` does not override this.
    NoWay(NoPlan),
}

impl QuorumGuard {
    pub fn new(plan: &Plan) -> Self {
        // A control plane without Machines has no etcd yet.
        if plan.replicas == 0 {
            return Self::Clear;
        }
        match &plan.steps {
            // The caller reports the denial separately.
            Err(NoPlan::Refused { .. }) => Self::Clear,
            Err(no_plan) => Self::NoWay(no_plan.clone()),
            Ok(_) => {
                let blockers = plan
                    .blockers
                    .iter()
                    .filter(|blocker| !blocker.stops_reconciliation());
                let blockers: Vec<Problem> = blockers.cloned().collect();
                match plan.quorum_risk.clone() {
                    Some(risk) => Self::AtRisk { blockers, risk },
                    None if blockers.is_empty() => Self::Clear,
                    None => Self::Blocked(blockers),
                }
            }
        }
    }

    /// Why the change must not be written: one line for each reason.
    pub fn why(&self) -> Vec<String> {
        match self {
            Self::Clear => Vec::new(),
            Self::Blocked(blockers) => blockers.iter().map(Problem::message).collect(),
            Self::AtRisk { blockers, risk } => {
                let mut why: Vec<String> = blockers.iter().map(Problem::message).collect();
                why.push(messages::quorum_risk(risk));
                why
            }
            Self::NoWay(no_plan) => vec![messages::no_plan(no_plan)],
        }
    }
}

/// Why the control plane does not survive the loss of a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FatalLoss {
    pub blocker: Problem,
    /// The reasons, one line for each.
    pub why: Vec<String>,
}

impl FatalLoss {
    fn new(blocker: Problem, why: impl Into<String>) -> Self {
        Self {
            blocker,
            why: vec![why.into()],
        }
    }

    /// Whether someone must act, because the reason does not clear on its own. Starting members are normal in a
    /// rollout, and the controller waits for them.
    pub const fn needs_action(&self) -> bool {
        !matches!(self.blocker, Problem::Quorum { votes } if votes.starting > 0)
    }
}

/// Returns why the loss of the Machine would be fatal. `None` if the control plane survives the loss.
pub fn fatal_loss(observed: &Snapshot, machine: &str) -> Option<FatalLoss> {
    // A control plane that was never initialized has no data.
    if !observed.control_plane.status.initialized {
        return None;
    }
    let mut state = state_with_pods(observed);
    let replica = state.replica(machine)?.clone();
    let stays = |other: &&Replica| other.name != machine && !other.is_deleting();
    let others = state.replicas.iter().filter(stays);
    if others.clone().next().is_none() {
        let why = "the control plane has only this Machine: its deletion would delete the cluster's data";
        return Some(FatalLoss::new(Problem::LastMachine, why));
    }
    if !others.clone().any(Replica::has_healthy_components) {
        let why = "no other Machine runs a working API server, controller manager and scheduler";
        return Some(FatalLoss::new(Problem::NoOtherWorks, why));
    }
    if let Ok(Some(needed)) = needed_joining_machine(observed)
        && needed.name() == machine
    {
        let blocker = Problem::NoWay {
            why: "the Machine has no node yet, so Cluster API would leave its etcd member behind, and etcd would lose its quorum"
                .to_owned(),
            check: "joining-member-needed",
        };
        return Some(FatalLoss::new(blocker.clone(), blocker.message()));
    }
    if let Some(blocker) = state.leader_blocker(&replica) {
        let hint = blocker.hint("", "");
        return Some(FatalLoss {
            why: [Some(blocker.message()), hint].into_iter().flatten().collect(),
            blocker,
        });
    }
    if let Some(member) = observed.members().member_out_of_space() {
        let owner = state
            .members
            .iter()
            .flatten()
            .find(|listed| listed.name == member.name);
        let blocker = Problem::Alarm {
            member: member.name.clone(),
            machine: owner
                .and_then(|listed| listed.machine.clone())
                .unwrap_or_default(),
            alarm: NOSPACE.to_owned(),
        };
        let why = format!(
            "etcd member {} has raised the alarm NOSPACE, so etcd rejects writes: the node cannot be drained, and no \
             replacement can join",
            member.name
        );
        return Some(FatalLoss::new(blocker, why));
    }
    remove_unstarted_members(&mut state, observed, &replica);
    let votes = state.votes(state.removal(&replica))?;
    if state.members.as_ref().is_some_and(Vec::is_empty) {
        return Some(FatalLoss::new(
            Problem::MembersUnknown,
            "etcd's members are unknown",
        ));
    }
    let others = state.members.iter().flatten();
    let others = others.filter(|member| member.machine.as_deref() != Some(machine));
    if votes.starting > 0 {
        let starting = others.filter(|member| member.is_starting());
        let why = format!(
            "some etcd members do not vote yet: {}",
            join_member_names(starting.map(|member| member.name.as_str()), "and")
        );
        return Some(FatalLoss::new(Problem::Quorum { votes }, why));
    }
    let unhealthy = others.filter(|member| !member.is_healthy);
    let unhealthy = unhealthy.map(|member| unhealthy_member(observed, member));
    (!votes.has_quorum()).then(|| {
        let members = state.members.as_deref().unwrap_or_default();
        let why = if Votes::lost_quorum_votes(members).is_some() {
            format!(
                "etcd has lost quorum, and cannot remove the Machine's member: without the Machine, {votes}"
            )
        } else {
            format!("without the Machine, etcd loses quorum: {votes}")
        };
        let mut loss = FatalLoss::new(Problem::Quorum { votes }, why);
        loss.why.extend(unhealthy);
        loss
    })
}

/// Returns a warning if the Machine's etcd member is the leader.
pub fn leader_warning(observed: &Snapshot, machine: &str) -> Option<String> {
    let EtcdMembers::Read(members) = observed.members() else {
        return None;
    };
    let mut machines = observed.machines.iter();
    let machine_of = machines.find(|other| other.name() == machine)?;
    let node = machine_of.status.node_name.as_ref()?;
    let mut leaders = members.iter().filter(|member| member.is_leader);
    leaders.any(|member| member.name == *node).then(|| {
        format!(
            "etcd member {node} of Machine {machine} is the leader: Cluster API moves the leadership to \
             another member before it removes this one, and etcd pauses writes during the move"
        )
    })
}

/// Returns why the deletion is a risk if the Machine has no node and its etcd member does not vote yet: Cluster API leaves the member
/// behind, so etcd loses its quorum if kubeadm makes it a voter before the host is gone. `None` if etcd would keep its quorum.
pub fn promotion_risk(observed: &Snapshot, machine: &str) -> Option<String> {
    let state = state_with_pods(observed);
    state
        .replica(machine)
        .filter(|replica| replica.member.is_none())?;
    let votes = state
        .votes(Change::Unchanged)
        .filter(|votes| votes.starting > 0)?;
    let after_promotion = Votes {
        voters: votes.voters + 1,
        unhealthy: votes.unhealthy + 1,
        starting: 0,
    };
    (!after_promotion.has_quorum()).then(|| {
        format!(
            "the etcd member of Machine {machine} does not vote yet: if kubeadm lets it vote before the host is gone, etcd loses its \
             quorum"
        )
    })
}

/// Returns the state of the control plane. If no etcd member has responded, the controller counts every listed member
/// as healthy; this function counts a member without a healthy pod as unhealthy.
fn state_with_pods(observed: &Snapshot) -> PlanState {
    let mut state = PlanState::new(observed, &[]);
    if observed.members() != EtcdMembers::Unread {
        return state;
    }
    let has_no_pod = |replica: &&Replica| replica.has_fault("EtcdPodHealthy");
    let without_pod = state.replicas.iter().filter(has_no_pod);
    let without_pod: Vec<String> = without_pod.map(|replica| replica.name.clone()).collect();
    for member in state.members.iter_mut().flatten() {
        let is_of = |name: &String| member.machine.as_ref() == Some(name);
        member.is_healthy &= !without_pod.iter().any(is_of);
    }
    state
}

/// Removes the members that have not started and that run on no other Machine without a node. The controller deletes the Machine first,
/// and then removes these members.
fn remove_unstarted_members(state: &mut PlanState, observed: &Snapshot, replica: &Replica) {
    if replica.member.is_some() {
        return;
    }
    let others = observed
        .machines
        .iter()
        .filter(|other| other.name() != replica.name && !other.has_node());
    let others: Vec<&Machine> = others.collect();
    let list = observed.etcd.value().and_then(EtcdSurvey::agreed_members);
    let may_run_elsewhere = |member: &Member| {
        let listed = list.into_iter().flat_map(|list| &list.members);
        let listed = listed.filter(|listed| listed.name == member.name);
        let peer_urls: Vec<String> = listed.flat_map(|listed| listed.peer_urls.clone()).collect();
        others.iter().any(|other| may_run_on(other, &peer_urls))
    };
    if let Some(members) = &mut state.members {
        members
            .retain(|member| member.machine.is_some() || !member.is_starting() || may_run_elsewhere(member));
    }
}

fn unhealthy_member(
    observed: &Snapshot,
    Member {
        name,
        machine,
        is_joining,
        ..
    }: &Member,
) -> String {
    let what = match machine {
        Some(machine) => format!("etcd member {name} of Machine {machine}"),
        None if *is_joining => format!("etcd member {name} of a Machine that is joining"),
        None => format!("etcd member {name}, which has no Machine,"),
    };
    let etcd = observed.members();
    match etcd.fault(name) {
        Some(why) => format!("{what} {why}"),
        None => match etcd.alarm(name) {
            Some(alarm) => format!("{what} has raised the alarm {alarm}"),
            None => format!("{what} is unhealthy"),
        },
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::{
        ConditionStatus::{self, False, Unknown},
        KubeadmControlPlaneSpec,
        metadata::Time,
    };

    use super::{Problem, QuorumGuard, fatal_loss};
    use crate::{
        plan::{Desired, Plan, plan, step::NoPlan},
        quorum::Votes,
        snapshot::{EtcdMember, EtcdMembers, Snapshot},
        testing::{
            objects::{condition, minutes_ago, now, pause, set},
            plan::{observed, restarted, spec, with_replicas},
        },
    };

    fn of(observed: &Snapshot, spec: KubeadmControlPlaneSpec, denials: &[&str]) -> Plan {
        let desired = Desired {
            spec,
            changes: Vec::new(),
            denials: denials.iter().map(ToString::to_string).collect(),
        };
        plan(observed, &desired, now())
    }

    /// Members on the nodes of three Machines. Those with a reason do not respond.
    fn members(silent: &[(&str, &str)]) -> EtcdMembers {
        let member = |node: &str| EtcdMember {
            name: node.to_owned(),
            fault: silent
                .iter()
                .find(|(name, _)| *name == node)
                .map(|(_, why)| (*why).to_owned()),
            ..EtcdMember::default()
        };
        EtcdMembers::Read(["node-m1", "node-m2", "node-m3"].map(member).to_vec())
    }

    fn alarmed(node: &str) -> EtcdMembers {
        let EtcdMembers::Read(mut members) = members(&[]) else {
            panic!("the members were not read");
        };
        for member in &mut members {
            member.alarm = (member.name == node).then(|| "CORRUPT".to_owned());
        }
        EtcdMembers::Read(members)
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn tells_a_blocked_change_from_an_impossible_one() {
        type Case = (
            &'static str,
            fn(&mut Snapshot),
            KubeadmControlPlaneSpec,
            &'static [&'static str],
        );
        const NO_JOIN: &str = "the conditions do not show this problem now, so the controller would create a Machine \
            that never joins: etcd admits no new member while member node-m2 of Machine m2 does not respond";
        const NO_REMOVAL: &str = "the conditions do not show this problem now, so the controller would begin a deletion \
            that never ends: etcd refuses to remove a running member while member node-m2 of Machine m2 does not respond";
        // etcd itself accepts the change, because the members are connected to each other.
        const COSTS_4: &str = "the conditions do not show this problem now, so the controller's first step could make etcd lose \
            quorum: 2 of 4 voting members healthy, 3 needed for quorum";
        let one = || with_replicas(spec(), 1);
        let five = || with_replicas(spec(), 5);
        let cases: Vec<Case> = vec![
            ("well", |_| {}, five(), &[]),
            ("well, fewer", |_| {}, one(), &[]),
            ("well, restart", |_| {}, restarted(spec(), now()), &[]),
            ("paused", |o| pause(&mut o.control_plane.metadata), five(), &[]),
            (
                "a member that is silent",
                |o| o.etcd_members = members(&[("node-m2", "does not respond: no answer within 2 s")]),
                five(),
                &[
                    "etcd member node-m2 of Machine m2 does not respond: no answer within 2 s",
                    NO_JOIN,
                ],
            ),
            (
                "a member that is silent, restart",
                |o| o.etcd_members = members(&[("node-m2", "does not respond: no answer within 2 s")]),
                restarted(spec(), now()),
                &[
                    "etcd member node-m2 of Machine m2 does not respond: no answer within 2 s",
                    NO_JOIN,
                ],
            ),
            (
                "a member that is silent, fewer, and another is chosen",
                |o| {
                    o.etcd_members = members(&[("node-m2", "does not respond: no answer within 2 s")]);
                    o.set_failure_domains("");
                },
                one(),
                &[
                    "etcd member node-m2 of Machine m2 does not respond: no answer within 2 s",
                    NO_REMOVAL,
                ],
            ),
            (
                "a member that raises an alarm",
                |o| o.etcd_members = alarmed("node-m2"),
                five(),
                &[
                    "etcd member node-m2 of Machine m2 has raised the alarm CORRUPT: its data differs from that of the other members",
                    COSTS_4,
                ],
            ),
            (
                "a Machine without a member",
                |o| o.etcd_members = members_of("m1 m2"),
                five(),
                &["Machine m3 has no etcd member"],
            ),
            (
                "two members that are silent",
                |o| o.etcd_members = members(&[("node-m2", "gone"), ("node-m3", "gone")]),
                five(),
                &["etcd has lost quorum: 1 of 3 voting members healthy, 2 needed for quorum"],
            ),
            (
                "a Machine that goes",
                |o| o.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                five(),
                &["Machine m1 is being deleted"],
            ),
            (
                "no Machine at all",
                |o| {
                    o.machines.clear();
                    o.cluster_mut().status.infrastructure_provisioned = false;
                },
                five(),
                &[],
            ),
            (
                "being deleted",
                |o| o.control_plane.metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                five(),
                &["the control plane is being deleted"],
            ),
        ];
        for (name, change, desired, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            assert_eq!(
                QuorumGuard::new(&of(&observed, desired, &[])).why(),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn only_a_blocked_change_can_be_overridden() {
        let mut lost = observed();
        lost.etcd_members = members(&[("node-m2", "gone"), ("node-m3", "gone")]);
        let votes = Votes {
            voters: 3,
            unhealthy: 2,
            starting: 0,
        };
        assert_eq!(
            QuorumGuard::new(&of(&lost, spec(), &[])),
            QuorumGuard::NoWay(NoPlan::QuorumLost { votes })
        );
        // The controller would not wait, and either step costs the quorum.
        let mut silent = observed();
        silent.etcd_members = members(&[("node-m2", "gone")]);
        silent.set_failure_domains("");
        for replicas in [1, 5] {
            let guard = QuorumGuard::new(&of(&silent, with_replicas(spec(), replicas), &[]));
            assert!(
                matches!(guard, QuorumGuard::AtRisk { .. }),
                "to {replicas}: {guard:?}"
            );
        }
        // The controller waits for problems that conditions report.
        set(
            &mut silent.machines[1].status.conditions,
            condition("EtcdPodHealthy", ConditionStatus::False, "crashed"),
        );
        for replicas in [1, 5] {
            let guard = QuorumGuard::new(&of(&silent, with_replicas(spec(), replicas), &[]));
            assert!(
                matches!(guard, QuorumGuard::Blocked(_)),
                "to {replicas}: {guard:?}"
            );
        }
        // The admission rules report their own denials.
        assert_eq!(
            QuorumGuard::new(&of(&observed(), spec(), &["no"])),
            QuorumGuard::Clear
        );
    }

    #[test]
    fn a_standstill_is_reported() {
        let mut observed = observed();
        pause(&mut observed.control_plane.metadata);
        observed.cluster_mut().spec.control_plane_endpoint = None;
        let plan = of(&observed, with_replicas(spec(), 5), &[]);
        assert_eq!(QuorumGuard::new(&plan), QuorumGuard::Clear);
        assert_eq!(
            plan.blockers.iter().map(Problem::message).collect::<Vec<_>>(),
            [
                "the control plane is paused: no controller reconciles it",
                "the Cluster has no control plane endpoint yet"
            ]
        );
    }

    /// Members on the nodes of these Machines: `?` does not respond, `+` does not respond and is joining, `~` is a learner, `-`
    /// has not started, `!` has the alarm CORRUPT, `%` has the alarm NOSPACE.
    fn members_of(text: &str) -> EtcdMembers {
        let members = text.split_whitespace().map(|text| {
            let name = text.trim_end_matches(['?', '+', '~', '-', '!', '%']);
            EtcdMember {
                name: if text.ends_with('-') {
                    String::new()
                } else {
                    format!("node-{name}")
                },
                is_learner: text.ends_with('~'),
                is_joining: text.ends_with('+'),
                alarm: match text.chars().last() {
                    Some('!') => Some("CORRUPT".to_owned()),
                    Some('%') => Some("NOSPACE".to_owned()),
                    _ => None,
                },
                fault: text
                    .ends_with(['?', '+'])
                    .then(|| "does not respond: no answer within 2s".to_owned()),
                ..EtcdMember::default()
            }
        });
        EtcdMembers::Read(members.collect())
    }

    fn crashed(observed: &mut Snapshot, machine: usize, kind: &str) {
        let conditions = &mut observed.machines[machine - 1].status.conditions;
        set(conditions, condition(kind, False, "crashed"));
    }

    type Case = (
        &'static str,
        fn(&mut Snapshot),
        &'static str,
        &'static [&'static str],
    );

    const DEAD: &str =
        "without the Machine, etcd loses quorum: 1 of 2 voting members healthy, 2 needed for quorum";
    const LOST: &str = "etcd has lost quorum, and cannot remove the Machine's member: without the Machine, 1 of 2 voting members \
        healthy, 2 needed for quorum";
    const SILENT: &str = "etcd member node-m3 of Machine m3 does not respond: no answer within 2s";
    const SICK: &str = "etcd member node-m3 of Machine m3 is unhealthy";

    fn assert_losses(cases: &[Case]) {
        for (name, change, machine, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            let why = fatal_loss(&observed, machine).map_or_else(Vec::new, |loss| loss.why);
            assert_eq!(why, *expected, "{name}");
        }
    }

    #[test]
    fn a_quorum_of_healthy_voters_is_left() {
        assert_losses(&[
            ("healthy", |o| o.etcd_members = members_of("m1 m2 m3"), "m1", &[]),
            (
                "a member is out of space",
                |o| o.etcd_members = members_of("m1 m2 m3%"),
                "m3",
                &[
                    "etcd member node-m3 has raised the alarm NOSPACE, so etcd rejects writes: the node cannot be drained, and \
                     no replacement can join",
                ],
            ),
            (
                "one is dead: it",
                |o| o.etcd_members = members_of("m1 m2 m3?"),
                "m3",
                &[],
            ),
            (
                "one is dead: another",
                |o| o.etcd_members = members_of("m1 m2 m3?"),
                "m1",
                &[DEAD, SILENT],
            ),
            (
                "two are dead: one of them",
                |o| o.etcd_members = members_of("m1 m2? m3?"),
                "m2",
                &[LOST, SILENT],
            ),
            (
                "one raises an alarm: it",
                |o| o.etcd_members = members_of("m1 m2 m3!"),
                "m3",
                &[],
            ),
            (
                "one raises an alarm: another",
                |o| o.etcd_members = members_of("m1 m2 m3!"),
                "m1",
                &[
                    DEAD,
                    "etcd member node-m3 of Machine m3 has raised the alarm CORRUPT",
                ],
            ),
            // etcd could not be queried.
            (
                "one has no pod: it",
                |o| crashed(o, 3, "EtcdPodHealthy"),
                "m3",
                &[],
            ),
            (
                "one has no pod: another",
                |o| crashed(o, 3, "EtcdPodHealthy"),
                "m1",
                &[DEAD, SICK],
            ),
            (
                "one is not known: another",
                |o| {
                    let conditions = &mut o.machines[2].status.conditions;
                    set(conditions, condition("EtcdPodHealthy", Unknown, ""));
                },
                "m1",
                &[DEAD, SICK],
            ),
            // etcd itself responds.
            (
                "one answers without a ready pod",
                |o| {
                    o.etcd_members = members_of("m1 m2 m3");
                    crashed(o, 3, "EtcdPodHealthy");
                },
                "m1",
                &[],
            ),
        ]);
    }

    #[test]
    fn every_member_is_a_started_voter() {
        assert_losses(&[
            (
                "a learner: another",
                |o| o.etcd_members = members_of("m1 m2 m3~"),
                "m1",
                &["some etcd members do not vote yet: node-m3"],
            ),
            (
                "a learner: it",
                |o| o.etcd_members = members_of("m1 m2 m3~"),
                "m3",
                &[],
            ),
            (
                "one that has not started",
                |o| o.etcd_members = members_of("m1 m2 m3 m4-"),
                "m1",
                &["some etcd members do not vote yet: (not started)"],
            ),
            (
                "one that has not started: it",
                |o| {
                    o.etcd_members = members_of("m1 m2 m3-");
                    o.machines[2].status.node_name = None;
                },
                "m3",
                &[],
            ),
            (
                "one that has not started, of one of two",
                |o| {
                    o.etcd_members = members_of("m1 m3-");
                    o.machines[1].status.node_name = None;
                    o.machines[2].status.node_name = None;
                },
                "m3",
                &["some etcd members do not vote yet: (not started)"],
            ),
            (
                "one that votes before its Machine has a node, of two",
                |o| {
                    o.machines.truncate(2);
                    o.machines[1].status.node_name = None;
                    o.etcd_members = members_of("m1 m2+");
                },
                "m2",
                &[
                    DEAD,
                    "etcd member node-m2 of a Machine that is joining does not respond: no answer within 2s",
                ],
            ),
            (
                "a stray that is silent",
                |o| o.etcd_members = members_of("m1 m2 m3 stray?"),
                "m1",
                &[],
            ),
            (
                "a stray and one of ours are silent",
                |o| o.etcd_members = members_of("m1 m2 m3? stray?"),
                "m1",
                &[
                    "etcd has lost quorum, and cannot remove the Machine's member: without the Machine, 1 of 3 voting members healthy, \
                     2 needed for quorum",
                    SILENT,
                    "etcd member node-stray, which has no Machine, does not respond: no answer within 2s",
                ],
            ),
        ]);
    }

    #[test]
    fn an_api_server_is_left() {
        assert_losses(&[
            (
                "alone",
                |o| o.machines.truncate(1),
                "m1",
                &["the control plane has only this Machine: its deletion would delete the cluster's data"],
            ),
            (
                "the others go",
                |o| {
                    for machine in &mut o.machines[1..] {
                        machine.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
                    }
                },
                "m1",
                &["the control plane has only this Machine: its deletion would delete the cluster's data"],
            ),
            (
                "no other works",
                |o| {
                    crashed(o, 2, "SchedulerPodHealthy");
                    crashed(o, 3, "APIServerPodHealthy");
                },
                "m1",
                &["no other Machine runs a working API server, controller manager and scheduler"],
            ),
            (
                "etcd is external",
                |o| {
                    o.etcd_members = EtcdMembers::External;
                    crashed(o, 3, "APIServerPodHealthy");
                },
                "m1",
                &[],
            ),
            (
                "no member is known",
                |o| o.etcd_members = members_of(""),
                "m1",
                &["etcd's members are unknown"],
            ),
            (
                "it never came up",
                |o| {
                    o.control_plane.status.initialized = false;
                    o.machines.truncate(1);
                },
                "m1",
                &[],
            ),
        ]);
    }

    #[test]
    fn another_machine_is_no_loss() {
        assert_eq!(fatal_loss(&observed(), "other"), None);
    }
}
