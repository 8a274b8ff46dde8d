//! Whether a Machine may be deleted so that its control plane makes another.

use jiff::Timestamp;

use crate::verbs::machine::{
    danger::danger,
    decision::{Decision, MachineWrite, Proposal},
    leader::leads,
    obstacle::Obstacles,
    situation::MachineSituation,
};
use crate::{
    blocker::Blocker,
    change::{event::Occurrence, guard::Guard},
    plan::{
        observed::Observed,
        outlook::{Asked, Plan, plan},
        step::{Action, NoPlan},
        wording,
    },
};

/// Decides.
pub fn decide(of: &MachineSituation, force: bool, now: Timestamp) -> Decision {
    let name = &of.object.name;
    if of.object.is_deleting {
        return Decision::Unchanged("it is being deleted already".to_owned());
    }
    let mut lasting: Vec<String> = of
        .pauses()
        .into_iter()
        .map(|pause| format!("{pause}: nothing would take its place"))
        .collect();
    lasting.extend(
        danger(of.observed(), name)
            .into_iter()
            .flat_map(|danger| danger.why()),
    );
    let plan = plan_without(of.observed(), name, now);
    let mut warnings = of.situation.warnings();
    let mut passing = Vec::new();
    match Guard::of(&plan) {
        Guard::Clear => {}
        // Said already, and more to the point.
        Guard::NoWay(_) if !lasting.is_empty() => {}
        Guard::NoWay(no_plan) if keeps(&no_plan) => lasting.push(wording::no_plan(&no_plan)),
        Guard::NoWay(no_plan) => warnings.push(wording::no_plan(&no_plan)),
        // What the loss of this Machine costs is judged by itself.
        Guard::Blocked(blockers) | Guard::AtRisk { blockers, .. } => passing = blocking(&blockers, name),
    }
    passing.retain(|line| !lasting.contains(line));
    match (Obstacles { lasting, passing }).warnings(force) {
        Ok(more) => warnings.extend(more),
        Err(refusal) => return Decision::Refused(refusal),
    }
    warnings.extend(leads(of.observed(), name));
    Decision::Write(Proposal {
        write: MachineWrite::Delete,
        warnings,
        consequences: consequences(&plan),
        occurrence: Occurrence {
            reason: "MachineReplaced",
            action: "ReplaceMachine",
            done: "replacement requested",
            detail: format!("for Machine {name}"),
        },
    })
}

/// Whether it may go, be it by force.
pub fn is_open(of: &MachineSituation, now: Timestamp) -> bool {
    matches!(decide(of, true, now), Decision::Write(_))
}

/// What the controller does once the Machine is being deleted.
fn plan_without(observed: &Observed, name: &str, now: Timestamp) -> Plan {
    let mut observed = observed.clone();
    for machine in &mut observed.machines {
        if machine.machine.name == name {
            machine.machine.deleting_since = Some(now);
        }
    }
    let asked = Asked {
        spec: observed.spec.clone(),
        changes: Vec::new(),
        denials: Vec::new(),
    };
    plan(&observed, &asked, now)
}

/// What keeps the controller from making another once the Machine is gone.
fn blocking(blockers: &[Blocker], name: &str) -> Vec<String> {
    let is_own =
        |blocker: &&Blocker| matches!(blocker, Blocker::BeingDeleted { machine, .. } if machine == name);
    let others = blockers.iter().filter(|blocker| !is_own(blocker));
    others.map(Blocker::message).collect()
}

/// Whether no other Machine comes, or none should be asked for; else what there is no way to has nothing to do with it.
const fn keeps(no_plan: &NoPlan) -> bool {
    match no_plan {
        NoPlan::QuorumLost { .. }
        | NoPlan::Stuck { .. }
        | NoPlan::LastMachine { .. }
        | NoPlan::BeingDeleted => true,
        NoPlan::Endless { .. } | NoPlan::NoReplicas | NoPlan::Refused { .. } => false,
    }
}

fn consequences(plan: &Plan) -> Vec<String> {
    // Another comes, and another after that.
    if matches!(plan.steps, Err(NoPlan::Endless { .. })) {
        return Vec::new();
    }
    let steps = plan.steps();
    let made = steps.iter().position(|step| step.action == Action::Create);
    let Some(made) = made else {
        return vec![format!(
            "no Machine takes its place: {} are asked for",
            plan.asked.spec.replicas
        )];
    };
    let mut lines = Vec::new();
    let domains = steps.get(made).map(wording::failure_domains).unwrap_or_default();
    if !domains.is_empty() {
        lines.push(format!("another takes its place in failure domain {domains}"));
    }
    let until_made = steps.iter().take(made + 1);
    let may_fail = until_made.filter_map(|step| Some(step.votes?.may_fail_meanwhile()));
    if may_fail.min() == Some(0) {
        lines.push("etcd cannot lose a member until another has taken its place".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{Decision, MachineWrite, decide, is_open};
    use crate::{
        change::decision::{Refusal, RefusedBy},
        control_plane::example::{minutes_ago, now},
        plan::observed::{Etcd, EtcdMember},
        verbs::machine::{
            example::{dead, fail, situation},
            situation::MachineSituation,
        },
    };

    fn refused(by: RefusedBy, why: &[&str]) -> Decision {
        let why = why.iter().map(ToString::to_string).collect();
        Decision::Refused(Refusal::new(by, why))
    }

    const FRAGILE: &str = "etcd cannot lose a member until another has taken its place";

    /// What is warned of and what comes of it.
    fn written(of: &MachineSituation, force: bool) -> (Vec<String>, Vec<String>) {
        match decide(of, force, now()) {
            Decision::Write(proposal) => {
                assert_eq!(proposal.write, MachineWrite::Delete);
                assert_eq!(
                    proposal.occurrence.note("alice"),
                    format!("replacement requested by alice for Machine {}", of.object.name)
                );
                (proposal.warnings, proposal.consequences)
            }
            other => panic!("not written: {other:?}"),
        }
    }

    #[test]
    fn a_dead_one_goes_and_a_live_one_beside_it_stays() {
        let lines = |lines: &[&str]| lines.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(written(&situation("m1"), false), (lines(&[]), lines(&[FRAGILE])));
        let mut of = situation("m3");
        dead(&mut of, &["m3"]);
        assert_eq!(written(&of, false), (lines(&[]), lines(&[FRAGILE])));
        let mut of = situation("m1");
        dead(&mut of, &["m3"]);
        let expected = refused(
            RefusedBy::Command,
            &[
                "without it etcd would have no quorum: 1 of 2 voting members healthy, 2 needed",
                "etcd member node-m3 of Machine m3 is not healthy: no answer within 2s",
            ],
        );
        for force in [false, true] {
            assert_eq!(decide(&of, force, now()), expected, "{force}");
        }
    }

    #[test]
    fn nothing_goes_where_nothing_would_take_its_place() {
        type Case = (&'static str, fn(&mut MachineSituation), &'static str);
        let cases: &[Case] = &[
            (
                "control plane",
                |of| of.situation.observed.control_plane.paused = true,
                "the control plane is paused: nothing would take its place",
            ),
            (
                "Cluster",
                |of| of.situation.observed.cluster.paused = true,
                "the Cluster is paused: nothing would take its place",
            ),
            (
                "Machine",
                |of| {
                    let paused = "cluster.x-k8s.io/paused".to_owned();
                    of.object.annotations.insert(paused, String::new());
                },
                "the Machine is paused: nothing would take its place",
            ),
            (
                "leaving",
                |of| of.situation.observed.control_plane.deleting_since = Some(minutes_ago(1)),
                "the control plane is being deleted",
            ),
        ];
        for (name, change, why) in cases {
            let mut of = situation("m1");
            change(&mut of);
            for force in [false, true] {
                assert_eq!(
                    decide(&of, force, now()),
                    refused(RefusedBy::Command, &[why]),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn what_has_nothing_to_do_with_it_is_warned_of() {
        let mut of = situation("m3");
        dead(&mut of, &["m3"]);
        of.situation.observed.spec.certificates_expiry_days = Some(400);
        let endless = "the rollout would never end: Machines are replaced 400 days before their certificates expire, and \
                       new certificates last 365 days";
        assert_eq!(written(&of, false), (vec![endless.to_owned()], Vec::new()));
        let mut of = situation("m3");
        dead(&mut of, &["m3"]);
        of.situation.observed.spec.replicas = 0;
        let none = "no Machine takes its place: 0 are asked for".to_owned();
        let asked = "the desired number of Machines is 0".to_owned();
        assert_eq!(written(&of, false), (vec![asked], vec![none]));
    }

    #[test]
    fn it_is_open_unless_nothing_overrides_what_refuses_it() {
        type Case = (&'static str, fn(&mut MachineSituation), bool);
        let cases: &[Case] = &[
            ("well", |_| {}, true),
            (
                "another crashed",
                |of| fail(of, 2, "SchedulerPodHealthy", ""),
                true,
            ),
            ("danger", |of| dead(of, &["m3"]), false),
            ("paused", |of| of.situation.observed.cluster.paused = true, false),
            (
                "the control plane goes",
                |of| of.situation.observed.control_plane.deleting_since = Some(minutes_ago(1)),
                false,
            ),
            ("it goes already", |of| of.object.is_deleting = true, false),
        ];
        for (name, change, expected) in cases {
            let mut of = situation("m1");
            change(&mut of);
            assert_eq!(is_open(&of, now()), *expected, "{name}");
        }
    }

    #[test]
    fn what_keeps_the_next_from_coming_is_the_preflight() {
        type Case = (&'static str, fn(&mut MachineSituation), &'static [&'static str]);
        let cases: &[Case] = &[
            (
                "another is unhealthy",
                |of| fail(of, 2, "SchedulerPodHealthy", "crashed"),
                &["SchedulerPodHealthy of Machine m2 is False: crashed"],
            ),
            (
                "another is being deleted",
                |of| of.situation.observed.machines[1].machine.deleting_since = Some(minutes_ago(1)),
                &["Machine m2 is being deleted"],
            ),
            (
                "the topology moves",
                |of| of.situation.observed.cluster.topology_version = Some("v9.9.9".to_owned()),
                &["the Cluster's topology upgrades to v9.9.9 first"],
            ),
            (
                "certificates",
                |of| of.situation.observed.control_plane.conditions.clear(),
                &["condition CertificatesAvailable is not True: no Machine can join"],
            ),
        ];
        for (name, change, why) in cases {
            let mut of = situation("m1");
            change(&mut of);
            assert_eq!(
                decide(&of, false, now()),
                refused(RefusedBy::Preflight, why),
                "{name}"
            );
            assert_eq!(written(&of, true).0, *why, "{name}, forced");
        }
        // What is wrong with the one that goes does not count.
        let mut of = situation("m2");
        fail(&mut of, 2, "SchedulerPodHealthy", "crashed");
        assert_eq!(written(&of, false).0, Vec::<String>::new());
    }

    #[test]
    fn one_that_goes_already_is_left_to_go() {
        let mut of = situation("m1");
        of.object.is_deleting = true;
        of.situation.observed.control_plane.paused = true;
        assert_eq!(
            decide(&of, false, now()),
            Decision::Unchanged("it is being deleted already".to_owned())
        );
    }

    #[test]
    fn what_has_to_be_known_is_said() {
        let mut of = situation("m1");
        let member = |machine: &str| EtcdMember {
            name: format!("node-{machine}"),
            is_leader: machine == "m1",
            ..EtcdMember::default()
        };
        of.situation.observed.etcd = Etcd::Members(["m1", "m2", "m3"].map(member).to_vec());
        of.situation.observed.cluster.failure_domains = vec!["a".to_owned(), "b".to_owned()];
        for (machine, domain) in of.situation.observed.machines.iter_mut().zip(["b", "a", "a"]) {
            machine.machine.failure_domain = Some(domain.to_owned());
        }
        let (warnings, consequences) = written(&of, false);
        assert_eq!(
            warnings,
            [
                "etcd member node-m1 of Machine m1 leads: Cluster API moves the leadership before it removes the member, \
                 and writes wait for the moment of that"
            ]
        );
        assert_eq!(
            consequences,
            ["another takes its place in failure domain b", FRAGILE]
        );
        // One too many.
        of.situation.observed.spec.replicas = 2;
        assert_eq!(
            written(&of, false).1,
            ["no Machine takes its place: 2 are asked for"]
        );
    }
}
