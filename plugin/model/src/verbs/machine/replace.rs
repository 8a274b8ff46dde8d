//! The decision of `machine replace`, which deletes a Machine so that its control plane creates a new one.

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::{
    change::{
        confirmation::Question,
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, WriteObstacles},
        quorum_guard::{QuorumGuard, leader_warning, promotion_risk},
        replaceable::{Replaceability, prevents_creation},
        replacement::{has_dead_member, has_left_etcd},
    },
    drain::forecast,
    plan::{
        DeletedMachines, Plan, messages,
        step::{Action, NoPlan},
    },
    problem::{Problem, machine_pauses},
    snapshot::{Snapshot, change::MachineSnapshot},
};

pub const FORCE_HINT: &str = "use --force to delete the Machine now; the controller creates a new one once Cluster \
    API's preflight checks pass";

#[derive(Clone, Copy, Debug, Default)]
pub struct ReplaceOptions {
    /// Whether to override temporary obstacles.
    pub force: bool,
    /// Whether to rely on the Machines' conditions if etcd cannot be queried.
    pub without_etcd: bool,
}

const WITHOUT_ETCD_HINT: &str = "make etcd reachable, or use --without-etcd to rely on the conditions of the \
    Machines; the conditions are out of date if Cluster API cannot reach etcd either";

pub fn decide(machine: &MachineSnapshot, options: ReplaceOptions, now: Timestamp) -> Decision {
    let name = &machine.object.name();
    if machine.object.is_deleting() {
        return Decision::Unchanged("already being deleted".to_owned());
    }
    let mut lasting = messages_of(&machine_pauses(machine));
    let replaceability = Replaceability::new(machine.observed(), name, now);
    let (loss, plan) = (replaceability.loss.clone(), &replaceability.plan);
    let alarm = loss.as_ref().map(|loss| &loss.blocker);
    let alarm = alarm
        .filter(|blocker| matches!(blocker, Problem::Alarm { .. }))
        .cloned();
    lasting.extend(loss.into_iter().flat_map(|loss| loss.why));
    let etcd_failure = machine.control_plane_snapshot.etcd_failure.as_ref();
    let etcd_failure = etcd_failure.filter(|_| !options.without_etcd).map(|failure| {
        let why = "it is unknown whether etcd keeps its quorum without the Machine";
        format!("{why}: {}", failure.text())
    });
    lasting.extend(etcd_failure.clone());
    let mut warnings = machine.control_plane_snapshot.warnings();
    let mut temporary = Vec::new();
    match &replaceability.guard {
        QuorumGuard::Clear => {}
        // The earlier obstacles have more details.
        QuorumGuard::NoWay(_) if !lasting.is_empty() => {}
        QuorumGuard::NoWay(no_plan) if prevents_creation(no_plan) => {
            lasting.push(messages::no_plan(no_plan));
        }
        QuorumGuard::NoWay(no_plan) => warnings.push(messages::no_plan(no_plan)),
        // `fatal_loss` checks the quorum after the deletion.
        QuorumGuard::Blocked(_) | QuorumGuard::AtRisk { .. } => {
            let is_lasting = |blocker: &Problem| matches!(blocker, Problem::NoTemplate { .. });
            let blockers = replaceability.blockers_without_own_deletion(machine.observed(), name);
            let blockers = blockers.into_iter();
            let (missing, others): (Vec<_>, Vec<_>) = blockers.partition(is_lasting);
            lasting.extend(missing.iter().map(Problem::message));
            let is_excused = |blocker: &Problem| ends_with_the_dead(machine.observed(), name, blocker);
            let (excused, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_excused);
            warnings.extend(messages_of(&excused));
            temporary = messages_of(&others);
        }
    }
    temporary.extend(promotion_risk(machine.observed(), name));
    temporary.retain(|line| !lasting.contains(line));
    match (WriteObstacles { lasting, temporary }).warnings(options.force) {
        Ok(more) => warnings.extend(more),
        Err(mut refusal) => {
            let hint = etcd_failure.map(|_| WITHOUT_ETCD_HINT.to_owned());
            refusal.remedies.extend(hint);
            let others = plan.blockers.iter().filter(|blocker| {
                blocker.machine() != Some(name) && !matches!(blocker, Problem::Alarm { .. })
            });
            let hints = others
                .chain(&alarm)
                .filter_map(|blocker| blocker.hint(&plan.namespace, &plan.name));
            refusal.remedies.extend(hints);
            // The deletion of this Machine has not begun, so the Machine of the dead member can be replaced.
            let refused = plan.blockers.iter().filter_map(|blocker| match blocker {
                Problem::RefusedByEtcd { machine, refusal } if machine == name => Some(refusal),
                _ => None,
            });
            let hints = refused.map(|refused| refused.hint(None, &plan.namespace, &plan.name));
            refusal.remedies.extend(hints);
            return Decision::Refused(refusal);
        }
    }
    warnings.extend(leader_warning(machine.observed(), name));
    warnings.extend(machine.object.machine.foreign_deletion_hooks().map(|hook| {
        format!("the deletion waits until another program removes its deletion hook, annotation {hook}")
    }));
    let consequences = consequences(plan);
    Decision::Write(Proposal {
        write: ObjectWrite::Delete,
        outcome: "deleted; the controller creates a replacement".to_owned(),
        warnings,
        consequences,
        event: ChangeEvent {
            reason: "MachineReplaced",
            action: "ReplaceMachine",
            note_verb: "replacement requested",
            detail: format!("for Machine {name}"),
        },
    })
}

/// Whether `target` is the Machine of a dead member, and there is no use in waiting for the blocker to end:
/// - Until the dead members have been removed, the problems of their Machines remain, and a Machine that joins may have to wait.
/// - If a Machine is being deleted and its member has left etcd, the end of the deletion changes nothing for etcd.
fn ends_with_the_dead(observed: &Snapshot, target: &str, blocker: &Problem) -> bool {
    let casts_no_vote =
        |machine: &str| has_dead_member(observed, machine) || has_left_etcd(observed, machine);
    has_dead_member(observed, target)
        && match blocker {
            Problem::Silent { machine, .. }
            | Problem::Condition { machine, .. }
            | Problem::BeingDeleted { machine, .. } => casts_no_vote(machine),
            Problem::NoNode { .. } | Problem::RefusedByEtcd { .. } => true,
            _ => false,
        }
}

/// What the user confirms before the Machine is deleted.
pub fn question(machine: &MachineSnapshot, proposal: &Proposal) -> Question {
    Question {
        goal: format!(
            "delete Machine {} of control plane {}",
            machine.object.name(),
            machine.control_plane_snapshot.control_plane().name()
        ),
        details: [proposal.warnings.as_slice(), &proposal.consequences].concat(),
    }
}

/// Adds the pods that block the drain of the Machine, and the pods and data that the drain deletes. The pods
/// of a node change all the time, so the user does not confirm them.
pub fn add_drain_warnings(mut decision: Decision, machine: &MachineSnapshot) -> Decision {
    if let Decision::Write(proposal) = &mut decision {
        let deleted = DeletedMachines::one(machine.object.name());
        proposal
            .consequences
            .extend(forecast(machine.observed(), &deleted));
    }
    decision
}

/// Whether `machine replace --force` would delete the Machine.
pub fn is_allowed_with_force(machine: &MachineSnapshot, now: Timestamp) -> bool {
    let options = ReplaceOptions {
        force: true,
        without_etcd: false,
    };
    matches!(decide(machine, options, now), Decision::Write(_))
}

fn messages_of(blockers: &[Problem]) -> Vec<String> {
    let described = messages::describe(blockers, "", "").into_iter();
    described.map(|(message, _)| message).collect()
}

fn consequences(plan: &Plan) -> Vec<String> {
    // In an endless rollout, the controller still replaces Machines.
    if matches!(plan.steps, Err(NoPlan::Endless { .. })) {
        return Vec::new();
    }
    let steps = plan.steps();
    let created = steps.iter().position(|step| step.action == Action::Create);
    let Some(created) = created else {
        return vec![format!(
            "the controller does not create a replacement, because replicas is {}",
            plan.desired.spec.replica_count()
        )];
    };
    let mut lines = Vec::new();
    let domains = steps
        .get(created)
        .map(messages::failure_domains)
        .unwrap_or_default();
    if !domains.is_empty() {
        lines.push(format!(
            "the controller creates the replacement in failure domain {domains}"
        ));
    }
    let until_created = steps.iter().take(created + 1);
    let may_fail = until_created.filter_map(|step| Some(step.votes?.tolerance_during_step()));
    if may_fail.min() == Some(0) {
        lines.push("etcd tolerates no member failure until the replacement has joined".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use kcp_api::{Object as _, metadata::Time};
    use serde_json::json;

    use super::{
        Decision, ObjectWrite, ReplaceOptions, WITHOUT_ETCD_HINT, decide, is_allowed_with_force, question,
    };
    use crate::{
        change::decision::{Refusal, RefusedBy},
        snapshot::{
            EtcdMember, EtcdMembers, Failure, Reading, Snapshot,
            change::{MachineObject, MachineSnapshot},
        },
        testing::{
            machine::{dead, fail, snapshot},
            objects::{self, annotate, minutes_ago, now, pause},
            snapshot::failure,
        },
    };

    fn options(force: bool) -> ReplaceOptions {
        ReplaceOptions {
            force,
            without_etcd: false,
        }
    }

    fn refused(by: RefusedBy, why: &[&str], remedies: &[&str]) -> Decision {
        let lines = |lines: &[&str]| lines.iter().map(ToString::to_string).collect();
        let mut refusal = Refusal::new(by, lines(why));
        refusal.remedies = lines(remedies);
        Decision::Refused(refusal)
    }

    const FRAGILE: &str = "etcd tolerates no member failure until the replacement has joined";

    /// Warnings and consequences.
    fn written(machine: &MachineSnapshot, force: bool) -> (Vec<String>, Vec<String>) {
        match decide(machine, options(force), now()) {
            Decision::Write(proposal) => {
                assert_eq!(proposal.write, ObjectWrite::Delete);
                assert_eq!(
                    proposal.event.note("alice"),
                    format!(
                        "replacement requested by alice for Machine {}",
                        machine.object.name()
                    )
                );
                (proposal.warnings, proposal.consequences)
            }
            other => panic!("not written: {other:?}"),
        }
    }

    #[test]
    fn a_dead_machine_is_replaced_and_a_live_one_beside_it_is_not() {
        let lines = |lines: &[&str]| lines.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(written(&snapshot("m1"), false), (lines(&[]), lines(&[FRAGILE])));
        let mut machine = snapshot("m3");
        dead(&mut machine, &["m3"]);
        assert_eq!(written(&machine, false), (lines(&[]), lines(&[FRAGILE])));
        let mut machine = snapshot("m1");
        dead(&mut machine, &["m3"]);
        let expected = refused(
            RefusedBy::Command,
            &[
                "without the Machine, etcd loses quorum: 1 of 2 voting members healthy, 2 needed for quorum",
                "etcd member node-m3 of Machine m3 does not respond: no answer within 2s",
            ],
            &["start the member again, or replace Machine m3: kubectl kcp machine replace m3 -n d"],
        );
        for force in [false, true] {
            assert_eq!(decide(&machine, options(force), now()), expected, "{force}");
        }
    }

    #[test]
    fn a_second_dead_machine_does_not_wait_for_the_end_of_the_first_deletion() {
        // The members of m4 and of another Machine are dead. `has_left` says whether etcd has removed that of m5.
        let replace = |target: &str, has_left: bool| {
            let mut machine = snapshot("m4");
            let object =
                json!({"metadata": {"name": target, "namespace": "d", "uid": "u", "resourceVersion": "7"}});
            machine.object = MachineObject::decode(&object.to_string()).expect("a Machine");
            let observed = &mut machine.control_plane_snapshot.observed;
            observed.control_plane.spec.replicas = Some(5);
            observed.machines = ["m1", "m2", "m3", "m4", "m5"].map(objects::machine).to_vec();
            observed.machines[4].metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
            let members = ["m1", "m2", "m3", "m4"]
                .into_iter()
                .chain((!has_left).then_some("m5"));
            let member = |name: &str| EtcdMember {
                name: format!("node-{name}"),
                fault: (name == "m4").then(|| "does not respond: no answer within 2s".to_owned()),
                ..EtcdMember::default()
            };
            observed.etcd_members = EtcdMembers::Read(members.map(member).collect());
            decide(&machine, options(false), now())
        };
        assert!(
            matches!(replace("m4", true), Decision::Write(_)),
            "{:?}",
            replace("m4", true)
        );
        for (target, has_left) in [("m4", false), ("m3", true)] {
            let decision = replace(target, has_left);
            let Decision::Refused(refusal) = &decision else {
                panic!("{target}, {has_left}: {decision:?}");
            };
            let being_deleted = "Machine m5 is being deleted".to_owned();
            assert!(
                refusal.why.contains(&being_deleted),
                "{target}, {has_left}: {refusal:?}"
            );
        }
    }

    /// The first reason why `decide` refuses without and with `--force`. `None` if it deletes the Machine.
    fn refusals(machine: &MachineSnapshot) -> [Option<String>; 2] {
        [false, true].map(|force| match decide(machine, options(force), now()) {
            Decision::Write(_) => None,
            Decision::Refused(refusal) => refusal.why.into_iter().next(),
            unchanged @ Decision::Unchanged(_) => panic!("{unchanged:?}"),
        })
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn a_machine_whose_member_never_started_is_replaced() {
        type Case = (
            &'static str,
            usize,
            fn(&mut Snapshot),
            &'static str,
            [Option<&'static str>; 2],
        );
        const STARTS: &str = "some etcd members do not vote yet: (not started)";
        const NEEDED: &str = "the Machine has no node yet, so Cluster API would leave its etcd member behind, and etcd would lose its quorum";
        const RISK: &str = "the etcd member of Machine m2 does not vote yet: if kubeadm lets it vote before the host is gone, etcd loses \
                            its quorum";
        const STUCK: &str =
            "the controller cannot continue until these Machines or etcd members are healthy: (not started)";
        const NO_API: &str = "no other Machine runs a working API server, controller manager and scheduler";
        fn votes(observed: &mut Snapshot, ready: usize) {
            let all: Vec<usize> = (1..=ready).collect();
            observed.each_list_of(&all, |list| {
                list.members[ready].name = format!("node-m{}", ready + 1);
                list.members[ready].is_learner = false;
            });
        }
        /// A second Machine without a node, whose host has this address.
        fn another_joins(observed: &mut Snapshot, address: &str) {
            let mut another = objects::machine("m3");
            another.status.node_name = None;
            another.status.addresses = vec![address.to_owned()];
            observed.machines.push(another);
        }
        let cases: &[Case] = &[
            ("one is ready", 1, |_| {}, "m2", [Some(RISK), None]),
            ("two are ready", 2, |_| {}, "m3", [None, None]),
            (
                "the learner has started",
                2,
                |o| o.each_list_of(&[1, 2], |list| list.members[2].name = "node-m3".to_owned()),
                "m3",
                [None, None],
            ),
            (
                "the controller keeps members without a name",
                2,
                |o| o.controller_version = Reading::Read(Some("v1.13.1".to_owned())),
                "m3",
                [Some(STUCK), Some(STUCK)],
            ),
            (
                "the learner is of no Machine",
                2,
                |o| o.machine(3).status.addresses = vec!["10.0.0.99".to_owned()],
                "m3",
                [None, None],
            ),
            (
                "a ready one, of one",
                1,
                |_| {},
                "m1",
                [Some(NO_API), Some(NO_API)],
            ),
            (
                "a ready one, of two",
                2,
                |_| {},
                "m1",
                [Some(STARTS), Some(STARTS)],
            ),
            (
                "it votes, and one is ready",
                1,
                |o| votes(o, 1),
                "m2",
                [Some(NEEDED), Some(NEEDED)],
            ),
            (
                "it votes, and two are ready",
                2,
                |o| votes(o, 2),
                "m3",
                [None, None],
            ),
            (
                "it votes, and one of two is silent",
                2,
                |o| {
                    votes(o, 2);
                    o.survey().queried[1].response = Err(failure("etcd", "no answer"));
                },
                "m3",
                [Some(NEEDED), Some(NEEDED)],
            ),
            (
                "another joins, too",
                1,
                |o| another_joins(o, "10.0.0.3"),
                "m2",
                [Some("Machine m3 has no node yet"), None],
            ),
            (
                "it joins, and the learner is of another",
                1,
                |o| another_joins(o, "10.0.0.3"),
                "m3",
                [Some(STARTS), Some(STARTS)],
            ),
            (
                "the learner may be of another",
                1,
                |o| another_joins(o, "m3"),
                "m2",
                [Some(STARTS), Some(STARTS)],
            ),
        ];
        for (name, ready, change, target, expected) in cases {
            let mut machine = snapshot(target);
            let observed = &mut machine.control_plane_snapshot.observed;
            observed.never_starts(*ready);
            change(observed);
            let expected = expected.map(|why| why.map(str::to_owned));
            assert_eq!(refusals(&machine), expected, "{name}");
        }
    }

    #[test]
    fn refuses_when_no_machine_would_replace_it() {
        type Case = (
            &'static str,
            fn(&mut MachineSnapshot),
            &'static str,
            &'static [&'static str],
        );
        let cases: &[Case] = &[
            (
                "control plane",
                |machine| pause(&mut machine.control_plane_snapshot.observed.control_plane.metadata),
                "the control plane is paused: no controller reconciles it",
                &["resume the control plane: kubectl kcp rollout resume c1-cp -n d"],
            ),
            (
                "Cluster",
                |machine| machine.control_plane_snapshot.observed.cluster_mut().spec.paused = true,
                "the Cluster is paused: no controller reconciles the control plane",
                &[
                    "resume the Cluster: kubectl patch cluster c1 -n d --type=merge -p '{\"spec\":{\"paused\":false}}'",
                ],
            ),
            (
                "Machine",
                |machine| {
                    let paused = "cluster.x-k8s.io/paused".to_owned();
                    annotate(&mut machine.object.machine.metadata, &paused, "");
                },
                "Machine m1 is paused: no controller provisions, updates or deletes it",
                &[],
            ),
            (
                "deleted",
                |machine| {
                    machine
                        .control_plane_snapshot
                        .observed
                        .control_plane
                        .metadata
                        .deletion_timestamp = Some(Time(minutes_ago(1)));
                },
                "the control plane is being deleted",
                &[],
            ),
        ];
        for (name, change, why, remedies) in cases {
            let mut machine = snapshot("m1");
            change(&mut machine);
            for force in [false, true] {
                assert_eq!(
                    decide(&machine, options(force), now()),
                    refused(RefusedBy::Command, &[why], remedies),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn unrelated_obstacles_are_warnings() {
        let mut machine = snapshot("m3");
        dead(&mut machine, &["m3"]);
        machine
            .control_plane_snapshot
            .observed
            .control_plane
            .spec
            .certificates_expiry_days = Some(400);
        let endless = "the rollout would never end: the controller replaces Machines 400 days before their \
            certificates expire, but new certificates are valid for only 365 days";
        assert_eq!(written(&machine, false), (vec![endless.to_owned()], Vec::new()));
        let mut machine = snapshot("m3");
        dead(&mut machine, &["m3"]);
        machine
            .control_plane_snapshot
            .observed
            .control_plane
            .spec
            .replicas = Some(0);
        let none = "the controller does not create a replacement, because replicas is 0".to_owned();
        let desired = "the desired number of Machines is 0".to_owned();
        assert_eq!(written(&machine, false), (vec![desired], vec![none]));
    }

    #[test]
    fn force_allows_it_unless_nothing_overrides_the_refusal() {
        type Case = (&'static str, fn(&mut MachineSnapshot), bool);
        let cases: &[Case] = &[
            ("healthy", |_| {}, true),
            (
                "another crashed",
                |machine| fail(machine, 2, "SchedulerPodHealthy", ""),
                true,
            ),
            ("danger", |machine| dead(machine, &["m3"]), false),
            (
                "paused",
                |machine| machine.control_plane_snapshot.observed.cluster_mut().spec.paused = true,
                false,
            ),
            (
                "the control plane is being deleted",
                |machine| {
                    machine
                        .control_plane_snapshot
                        .observed
                        .control_plane
                        .metadata
                        .deletion_timestamp = Some(Time(minutes_ago(1)));
                },
                false,
            ),
            (
                "it is being deleted",
                |machine| machine.object.machine.metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                false,
            ),
        ];
        for (name, change, expected) in cases {
            let mut machine = snapshot("m1");
            change(&mut machine);
            assert_eq!(is_allowed_with_force(&machine, now()), *expected, "{name}");
        }
    }

    #[test]
    fn no_second_deletion_holds_the_first() {
        let mut machine = snapshot("m1");
        machine.control_plane_snapshot.observed.machines[1]
            .metadata
            .deletion_timestamp = Some(Time(minutes_ago(1)));
        let why = "Cluster API finishes none of the deletions of Machines m1 and m2: it counts these Machines and their etcd \
                   members as unhealthy, and too few others are healthy";
        for force in [false, true] {
            assert_eq!(
                decide(&machine, options(force), now()),
                refused(RefusedBy::Command, &[why], &[])
            );
        }
    }

    #[test]
    fn what_blocks_the_replacement_is_the_preflight() {
        type Case = (&'static str, fn(&mut MachineSnapshot), &'static [&'static str]);
        let cases: &[Case] = &[
            (
                "another is unhealthy",
                |machine| fail(machine, 2, "SchedulerPodHealthy", "crashed"),
                &["SchedulerPodHealthy of Machine m2 is False: crashed"],
            ),
            (
                "the topology moves",
                |machine| machine.control_plane_snapshot.observed.set_topology("v9.9.9"),
                &["Cluster API's topology controller has not set the control plane's version to v9.9.9 yet"],
            ),
            (
                "certificates",
                |machine| {
                    machine
                        .control_plane_snapshot
                        .observed
                        .control_plane
                        .status
                        .conditions
                        .clear();
                },
                &["no Machine can join: condition CertificatesAvailable is not True"],
            ),
        ];
        for (name, change, why) in cases {
            let mut machine = snapshot("m1");
            change(&mut machine);
            let remedies: &[&str] = match *name {
                "the topology moves" => &["to change the version, set spec.topology.version of the Cluster"],
                "certificates" => &["see condition CertificatesAvailable: kubectl describe kcp c1-cp -n d"],
                _ => &[],
            };
            assert_eq!(
                decide(&machine, options(false), now()),
                refused(RefusedBy::Preflight, why, remedies),
                "{name}"
            );
            assert_eq!(written(&machine, true).0, *why, "{name}, forced");
        }
        // Cluster API's own hook is not named.
        let mut held = snapshot("m2");
        let hooks = ["backup", "kcp-cleanup"]
            .map(|name| format!("pre-terminate.delete.hook.machine.cluster.x-k8s.io/{name}"));
        for hook in &hooks {
            annotate(&mut held.object.machine.metadata, hook, "");
        }
        let expected = format!(
            "the deletion waits until another program removes its deletion hook, annotation {}",
            hooks[0]
        );
        assert_eq!(written(&held, false).0, [expected]);
        // The health of the deleted Machine does not matter.
        let mut machine = snapshot("m2");
        fail(&mut machine, 2, "SchedulerPodHealthy", "crashed");
        assert_eq!(written(&machine, false).0, Vec::<String>::new());
    }

    #[test]
    fn a_machine_that_is_being_deleted_is_left_alone() {
        let mut machine = snapshot("m1");
        machine.object.machine.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        pause(&mut machine.control_plane_snapshot.observed.control_plane.metadata);
        assert_eq!(
            decide(&machine, options(false), now()),
            Decision::Unchanged("already being deleted".to_owned())
        );
    }

    #[test]
    fn warns_about_the_leader_and_names_the_consequences() {
        let mut machine = snapshot("m1");
        let member = |machine: &str| EtcdMember {
            name: format!("node-{machine}"),
            is_leader: machine == "m1",
            ..EtcdMember::default()
        };
        machine.control_plane_snapshot.observed.etcd_members =
            EtcdMembers::Read(["m1", "m2", "m3"].map(member).to_vec());
        machine.control_plane_snapshot.observed.set_failure_domains("a b");
        for (machine, domain) in machine
            .control_plane_snapshot
            .observed
            .machines
            .iter_mut()
            .zip(["b", "a", "a"])
        {
            machine.spec.failure_domain = Some(domain.to_owned());
        }
        let (warnings, consequences) = written(&machine, false);
        assert_eq!(
            warnings,
            [
                "etcd member node-m1 of Machine m1 is the leader: Cluster API moves the leadership to \
                 another member before it removes this one, and etcd pauses writes during the move"
            ]
        );
        assert_eq!(
            consequences,
            [
                "the controller creates the replacement in failure domain b",
                FRAGILE
            ]
        );
        // The other Machine has one retry too many.
        machine
            .control_plane_snapshot
            .observed
            .control_plane
            .spec
            .replicas = Some(2);
        assert_eq!(
            written(&machine, false).1,
            ["the controller does not create a replacement, because replicas is 2"]
        );
    }

    #[test]
    fn etcd_that_could_not_be_queried_is_an_objection_unless_the_user_accepts_it() {
        let mut machine = snapshot("m1");
        machine.control_plane_snapshot.etcd_failure = Some(Failure {
            object: "etcd".to_owned(),
            message: "no member could be queried".to_owned(),
            hint: None,
            ..Failure::default()
        });
        let why =
            "it is unknown whether etcd keeps its quorum without the Machine: no member could be queried";
        let mut expected = Refusal::new(RefusedBy::Command, vec![why.to_owned()]);
        expected.remedies.push(WITHOUT_ETCD_HINT.to_owned());
        for force in [false, true] {
            assert_eq!(
                decide(&machine, options(force), now()),
                Decision::Refused(expected.clone()),
                "{force}"
            );
        }
        assert!(!is_allowed_with_force(&machine, now()));
        let accepted = ReplaceOptions {
            force: false,
            without_etcd: true,
        };
        let Decision::Write(proposal) = decide(&machine, accepted, now()) else {
            panic!("refused");
        };
        assert_eq!(
            proposal.warnings,
            [
                "could not read the etcd members: no member could be queried; using the Machines' conditions instead"
            ]
        );
        // If the conditions show that quorum is lost, the command still refuses.
        fail(&mut machine, 2, "EtcdPodHealthy", "crashed");
        assert!(matches!(decide(&machine, accepted, now()), Decision::Refused(_)));
    }

    #[test]
    fn the_user_confirms_the_warnings_and_the_consequences() {
        let machine = snapshot("m1");
        let Decision::Write(mut proposal) = decide(&machine, options(false), now()) else {
            panic!("refused");
        };
        proposal.warnings = vec!["a warning".to_owned()];
        let question = question(&machine, &proposal);
        assert_eq!(question.goal, "delete Machine m1 of control plane c1-cp");
        assert_eq!(question.details, ["a warning", FRAGILE]);
    }
}
