//! Whether a Machine is marked for remediation, and what is in the way of that.
//!
//! A mark does nothing by itself: a `MachineHealthCheck` that selects the Machine takes it for unhealthy then, and has
//! its control plane replace it, which makes sure that nothing is lost by it.

use jiff::Timestamp;
use serde_json::json;

use crate::verbs::machine::{
    danger::danger,
    decision::{Decision, MachineWrite, Proposal},
    leader::leads,
    object::{REMEDIATE_MACHINE, SKIP_REMEDIATION},
    obstacle::Obstacles,
    ownership::applied,
    situation::MachineSituation,
};
use crate::{
    blocker::Blocker,
    change::event::Occurrence,
    control_plane::MachineHealthCheck,
    plan::{
        observed::Observed,
        preflight::topology_version,
        remediation::{Outlook, Terms, outlook},
        state::{HealthCheck, State},
    },
};

/// Decides.
pub fn decide(of: &MachineSituation, force: bool, field_manager: &str, now: Timestamp) -> Decision {
    let name = &of.object.name;
    if of.object.is_deleting {
        return Decision::Unchanged("it is being deleted already".to_owned());
    }
    if of.object.has(REMEDIATE_MACHINE) {
        return Decision::Unchanged("it is marked for remediation already".to_owned());
    }
    let mut lasting: Vec<String> = of
        .pauses()
        .into_iter()
        .map(|pause| format!("{pause}: nobody would remediate it"))
        .collect();
    if of.object.has(SKIP_REMEDIATION) {
        lasting.push(format!(
            "remediation is skipped by its annotation {SKIP_REMEDIATION}"
        ));
    }
    if of.situation.control_plane().deleting_since.is_some() {
        lasting.push("the control plane is being deleted".to_owned());
    }
    let mut warnings = applied(&of.object.text, &patch(), field_manager);
    warnings.extend(of.situation.warnings());
    let mut lines = Vec::new();
    let mut passing = Vec::new();
    match answering(of) {
        Err(silence) => lasting.extend(silence),
        Ok(Answering::Other { check, by }) => lines.push(format!(
            "MachineHealthCheck {check} has it remediated by a {by}, not by its control plane"
        )),
        Ok(Answering::ControlPlane { check }) => {
            lines.push(format!(
                "MachineHealthCheck {check} has the control plane replace it"
            ));
            if let Some(outlook) = remediated(of.observed(), name, now) {
                let obstacles = obstacles(&outlook, name);
                lasting.extend(obstacles.lasting);
                passing = obstacles.passing;
            }
        }
    }
    lasting.extend(
        danger(of.observed(), name)
            .into_iter()
            .flat_map(|danger| danger.why()),
    );
    match (Obstacles { lasting, passing }).warnings(force) {
        Ok(more) => warnings.extend(more),
        Err(refusal) => return Decision::Refused(refusal),
    }
    warnings.extend(leads(of.observed(), name));
    Decision::Write(Proposal {
        write: MachineWrite::Patch(patch()),
        warnings,
        consequences: lines,
        occurrence: Occurrence {
            reason: "MachineRemediationRequested",
            action: "RemediateMachine",
            done: "remediation requested",
            detail: format!("for Machine {name}"),
        },
    })
}

fn patch() -> serde_json::Value {
    json!({"metadata": {"annotations": {REMEDIATE_MACHINE: ""}}})
}

/// Who acts on the mark.
enum Answering {
    /// The control plane, because of this `MachineHealthCheck`.
    ControlPlane { check: String },
    /// Somebody else, by an object of this kind.
    Other { check: String, by: String },
}

/// Who acts on the mark, or why nobody does.
fn answering(of: &MachineSituation) -> Result<Answering, Vec<String>> {
    if of.health_checks.is_empty() {
        return Err(vec![
            "no MachineHealthCheck selects it: nobody would act on the mark".to_owned(),
        ]);
    }
    // Healthy so far, the mark makes it one more that is not.
    let more = u64::from(
        of.machine()
            .is_some_and(|machine| machine.is("HealthCheckSucceeded")),
    );
    let silence: Vec<Option<String>> = of
        .health_checks
        .iter()
        .map(|check| silence(check, more))
        .collect();
    let acting = of
        .health_checks
        .iter()
        .zip(&silence)
        .filter_map(|(check, silence)| silence.is_none().then_some(check));
    // What a control plane is asked to do it does, whoever else is asked.
    match acting.min_by_key(|check| check.external.is_some()) {
        None => Err(silence.into_iter().flatten().collect()),
        Some(MachineHealthCheck { name, external, .. }) => Ok(match external {
            None => Answering::ControlPlane { check: name.clone() },
            Some(by) => Answering::Other {
                check: name.clone(),
                by: by.strip_suffix("Template").unwrap_or(by).to_owned(),
            },
        }),
    }
}

/// Why a `MachineHealthCheck` would not act; none where it would.
fn silence(check: &MachineHealthCheck, more: u64) -> Option<String> {
    let MachineHealthCheck { name, .. } = check;
    if check.paused {
        return Some(format!("MachineHealthCheck {name} is paused"));
    }
    (check.would_allow(more) == Some(false)).then(|| {
        format!(
            "MachineHealthCheck {name} would start no remediation: the number of its Machines that are unhealthy is \
             none that it acts at"
        )
    })
}

/// What the controller would do were the Machine found unhealthy now.
fn remediated(observed: &Observed, machine: &str, now: Timestamp) -> Option<Outlook> {
    let mut state = State::of(observed, |_| false);
    for replica in &mut state.replicas {
        if replica.name == machine {
            replica.health = HealthCheck::AwaitsRemediationFirst;
        }
    }
    let spec = &observed.spec;
    let terms = Terms {
        limits: &spec.remediation,
        initialized: observed.control_plane.initialized,
        topology_version: topology_version(observed, spec).map(String::as_str),
        now,
    };
    outlook(&state, terms)
}

/// What keeps a Machine from being remediated.
fn obstacles(outlook: &Outlook, machine: &str) -> Obstacles {
    let mut obstacles = Obstacles::default();
    if outlook.machine != machine {
        let first = format!("Machine {} is remediated first", outlook.machine);
        obstacles.passing.push(first);
    }
    let Some(blocker) = &outlook.blocked_by else {
        return obstacles;
    };
    match blocker {
        // Its danger says more.
        Blocker::LastMachine | Blocker::NoOtherWorks | Blocker::Quorum { .. } => {}
        Blocker::TriedTooOften { .. } | Blocker::MembersUnknown => obstacles.lasting.push(blocker.message()),
        _ => obstacles.passing.push(blocker.message()),
    }
    obstacles
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Decision, MachineWrite, decide};
    use crate::{
        change::decision::{Refusal, RefusedBy},
        control_plane::{
            ConditionStatus::True,
            example::{condition, minutes_ago, now},
        },
        plan::observed::{Etcd, Remediation},
        verbs::machine::{
            example::{dead, situation},
            object::SKIP_REMEDIATION,
            situation::MachineSituation,
        },
    };

    /// One of three Machines, with a `MachineHealthCheck` that looks after all of them; healthy ones of three.
    fn looked_after(machine: &str, healthy: u64, spec: &Value) -> MachineSituation {
        let mut of = situation(machine);
        check(&mut of, "h", healthy, spec);
        of
    }

    fn check(of: &mut MachineSituation, name: &str, healthy: u64, spec: &Value) {
        let check = json!({"metadata": {"name": name}, "spec": spec,
            "status": {"expectedMachines": 3, "currentHealthy": healthy}});
        let check = serde_json::from_value(check).expect("a MachineHealthCheck");
        of.health_checks.push(check);
    }

    fn well(machine: &str) -> MachineSituation {
        looked_after(machine, 3, &json!({}))
    }

    fn at_most_one() -> Value {
        json!({"remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": 1}}})
    }

    fn annotate(of: &mut MachineSituation, annotation: &str) {
        of.object.annotations.insert(annotation.to_owned(), String::new());
    }

    fn decision(of: &MachineSituation, force: bool) -> Decision {
        decide(of, force, "kubectl-kcp", now())
    }

    fn refused(by: RefusedBy, why: &[&str]) -> Decision {
        let why = why.iter().map(ToString::to_string).collect();
        Decision::Refused(Refusal::new(by, why))
    }

    #[test]
    fn one_annotation_is_set_and_who_acts_is_told() {
        let Decision::Write(proposal) = decision(&well("m2"), false) else {
            panic!("not written");
        };
        let patch = json!({"metadata": {"annotations": {"cluster.x-k8s.io/remediate-machine": ""}}});
        assert_eq!(proposal.write, MachineWrite::Patch(patch));
        assert_eq!(
            proposal.consequences,
            ["MachineHealthCheck h has the control plane replace it"]
        );
        assert_eq!(
            proposal.occurrence.note("alice"),
            "remediation requested by alice for Machine m2"
        );
        // An object of another's does it, unless the control plane is asked as well.
        let external = json!({"remediation": {"templateRef": {"kind": "RebootTemplate", "name": "r"}}});
        let mut of = looked_after("m2", 3, &external);
        for expected in [
            "MachineHealthCheck h has it remediated by a Reboot, not by its control plane",
            "MachineHealthCheck second has the control plane replace it",
        ] {
            let Decision::Write(proposal) = decision(&of, false) else {
                panic!("not written");
            };
            assert_eq!(proposal.consequences, [expected]);
            check(&mut of, "second", 3, &json!({}));
        }
    }

    #[test]
    fn nobody_marks_what_nobody_acts_on() {
        type Case = (&'static str, fn(&mut MachineSituation), &'static str);
        let cases: &[Case] = &[
            (
                "nobody looks",
                |of| of.health_checks.clear(),
                "no MachineHealthCheck selects it: nobody would act on the mark",
            ),
            (
                "who looks is paused",
                |of| of.health_checks[0].paused = true,
                "MachineHealthCheck h is paused",
            ),
            (
                "too many are unhealthy",
                |of| {
                    of.health_checks.clear();
                    check(of, "h", 2, &at_most_one());
                    let healthy = condition("HealthCheckSucceeded", True, "");
                    of.situation.observed.machines[1].machine.conditions.push(healthy);
                },
                "MachineHealthCheck h would start no remediation: the number of its Machines that are unhealthy is none \
                 that it acts at",
            ),
            (
                "skipped",
                |of| annotate(of, SKIP_REMEDIATION),
                "remediation is skipped by its annotation cluster.x-k8s.io/skip-remediation",
            ),
            (
                "paused",
                |of| annotate(of, "cluster.x-k8s.io/paused"),
                "the Machine is paused: nobody would remediate it",
            ),
            (
                "Cluster paused",
                |of| of.situation.observed.cluster.paused = true,
                "the Cluster is paused: nobody would remediate it",
            ),
            (
                "leaving",
                |of| of.situation.observed.control_plane.deleting_since = Some(minutes_ago(1)),
                "the control plane is being deleted",
            ),
        ];
        for (name, change, why) in cases {
            let mut of = well("m2");
            change(&mut of);
            for force in [false, true] {
                assert_eq!(
                    decision(&of, force),
                    refused(RefusedBy::Command, &[why]),
                    "{name} {force}"
                );
            }
        }
        // It is counted as unhealthy already.
        let of = looked_after("m2", 2, &at_most_one());
        assert!(matches!(decision(&of, false), Decision::Write(_)));
    }

    #[test]
    fn what_the_controller_would_refuse_is_refused_and_what_it_waits_for_can_be_forced() {
        type Case = (
            &'static str,
            fn(&mut MachineSituation),
            RefusedBy,
            &'static [&'static str],
        );
        let cases: &[Case] = &[
            (
                "quorum",
                |of| dead(of, &["m3"]),
                RefusedBy::Command,
                &[
                    "without it etcd would have no quorum: 1 of 2 voting members healthy, 2 needed",
                    "etcd member node-m3 of Machine m3 is not healthy: no answer within 2s",
                ],
            ),
            (
                "etcd elsewhere",
                |of| of.situation.observed.etcd = Etcd::External,
                RefusedBy::Command,
                &["the controller does not know the etcd members"],
            ),
            (
                "another is being deleted",
                |of| of.situation.observed.machines[2].machine.deleting_since = Some(minutes_ago(1)),
                RefusedBy::Preflight,
                &["Machine m3 is being deleted"],
            ),
            (
                "another comes up",
                |of| of.situation.observed.machines[2].machine.node = None,
                RefusedBy::Preflight,
                &["Machine m3 is starting"],
            ),
            (
                "tried just now",
                |of| {
                    of.situation.observed.spec.remediation.retry_period = jiff::SignedDuration::from_mins(10);
                    of.situation.observed.machines[1].remediation_for = Some(Remediation {
                        machine: "m0".to_owned(),
                        time: Some(minutes_ago(5)),
                        retries: 1,
                    });
                },
                RefusedBy::Preflight,
                &["the last attempt was too recent: the controller tries again at 2026-08-21T12:05:00Z"],
            ),
        ];
        for (name, change, by, why) in cases {
            let mut of = well("m2");
            change(&mut of);
            assert_eq!(decision(&of, false), refused(*by, why), "{name}");
            match (by, decision(&of, true)) {
                (RefusedBy::Preflight, Decision::Write(proposal)) => {
                    assert_eq!(proposal.warnings, *why, "{name}, forced");
                }
                (RefusedBy::Command, forced) => assert_eq!(forced, refused(*by, why), "{name}, forced"),
                (_, forced) => panic!("{name}, forced: {forced:?}"),
            }
        }
        let mut of = well("m3");
        dead(&mut of, &["m3"]);
        assert!(matches!(decision(&of, false), Decision::Write(_)), "the dead one");
    }

    #[test]
    fn what_is_so_already_is_left() {
        for (change, why) in [
            (
                (|of| of.object.is_deleting = true) as fn(&mut MachineSituation),
                "it is being deleted already",
            ),
            (
                |of| annotate(of, super::REMEDIATE_MACHINE),
                "it is marked for remediation already",
            ),
        ] {
            let mut of = situation("m2");
            change(&mut of);
            assert_eq!(decision(&of, false), Decision::Unchanged(why.to_owned()));
        }
    }
}
