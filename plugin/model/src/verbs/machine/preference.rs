//! Whether a Machine is marked as the first to go, or no more, and when that takes effect.

use jiff::Timestamp;
use serde_json::json;

use crate::verbs::machine::{
    danger::{Danger, danger},
    decision::{Decision, MachineWrite, Proposal},
    leader::leads,
    object::DELETE_MACHINE,
    ownership::applied,
    situation::MachineSituation,
};
use crate::{
    change::{
        decision::{Refusal, RefusedBy},
        event::Occurrence,
    },
    plan::{
        deletion_order::next_to_delete,
        observed::Observed,
        outlook::{Asked, Plan, plan},
        state::State,
        step::{Action, Purpose},
        wording::listed,
    },
};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    /// It goes before others.
    Preferred,
    /// It goes when its turn comes.
    Cleared,
}

/// Decides.
pub fn decide(
    of: &MachineSituation,
    preference: Preference,
    field_manager: &str,
    now: Timestamp,
) -> Decision {
    let name = &of.object.name;
    if of.object.is_deleting {
        return Decision::Unchanged("it is being deleted already".to_owned());
    }
    let is_marked = of.object.has(DELETE_MACHINE);
    let (value, done) = match (preference, is_marked) {
        (Preference::Preferred, true) => {
            let mut told = vec!["it is preferred for deletion already".to_owned()];
            told.extend(Effect::of(of.observed(), name, now).lines);
            return Decision::Unchanged(told.join("; "));
        }
        (Preference::Cleared, false) => {
            return Decision::Unchanged("it is not preferred for deletion".to_owned());
        }
        (Preference::Preferred, false) => (json!(""), "preferred deletion requested"),
        (Preference::Cleared, true) => (json!(null), "preferred deletion withdrawn"),
    };
    let patch = json!({"metadata": {"annotations": {DELETE_MACHINE: value}}});
    let mut warnings = applied(&of.object.text, &patch, field_manager);
    let mut lines = Vec::new();
    if preference == Preference::Preferred {
        let effect = Effect::of(of.observed(), name, now);
        let danger = danger(of.observed(), name);
        // For members that come up, as they do in every rollout, the controller waits.
        let is_lasting = danger
            .as_ref()
            .is_some_and(|danger| !matches!(danger, Danger::Starting { .. }));
        let mut why = danger.map_or_else(Vec::new, |danger| danger.why());
        if effect.is_immediate && is_lasting {
            why.extend(effect.lines);
            let by = RefusedBy::Command;
            return Decision::Refused(Refusal::new(by, why));
        }
        warnings.extend(of.situation.warnings());
        let why = why.into_iter();
        warnings.extend(why.map(|why| format!("it must not go as things are: {why}")));
        warnings.extend(leads(of.observed(), name));
        lines = effect.lines;
    }
    Decision::Write(Proposal {
        write: MachineWrite::Patch(patch),
        warnings,
        consequences: lines,
        occurrence: Occurrence {
            reason: match preference {
                Preference::Preferred => "MachinePreferredForDeletion",
                Preference::Cleared => "MachineNotPreferredForDeletion",
            },
            action: "PreferMachineDeletion",
            done,
            detail: format!("for Machine {name}"),
        },
    })
}

/// What the mark does.
struct Effect {
    /// Whether a Machine that has the mark goes now.
    is_immediate: bool,
    /// When it takes effect, and whether others go before it; a line each.
    lines: Vec<String>,
}

impl Effect {
    fn of(observed: &Observed, name: &str, now: Timestamp) -> Self {
        let observed = marked(observed, name);
        let asked = Asked {
            spec: observed.spec.clone(),
            changes: Vec::new(),
            denials: Vec::new(),
        };
        let plan = plan(&observed, &asked, now);
        let under_way = under_way(&plan, name);
        let when = match under_way {
            Some(Purpose::Rollout) => "takes effect now: a rollout is under way",
            Some(_) => "takes effect now: Machines are being deleted to have fewer",
            None => "takes effect at the next scale down or rollout",
        };
        let mut lines = vec![when.to_owned()];
        lines.extend(before(&observed, &plan, name));
        Self {
            is_immediate: under_way.is_some(),
            lines,
        }
    }
}

fn marked(observed: &Observed, name: &str) -> Observed {
    let mut observed = observed.clone();
    for machine in &mut observed.machines {
        machine.to_be_deleted |= machine.machine.name == name;
    }
    observed
}

/// Why Machines are being deleted that it is one of; none where none are.
fn under_way(plan: &Plan, name: &str) -> Option<Purpose> {
    [Purpose::Rollout, Purpose::ScaleDown]
        .into_iter()
        .find(|purpose| {
            let mut steps = plan.steps().iter();
            steps.any(|step| {
                let is_about_it = step.names.iter().any(|other| other == name);
                step.action == Action::Delete && step.purpose == *purpose && is_about_it
            })
        })
}

/// Who goes before it, or as likely.
fn before(observed: &Observed, plan: &Plan, name: &str) -> Option<String> {
    let is_outdated = |name: &str| {
        let verdict = plan.verdicts.iter().find(|verdict| verdict.machine == name);
        verdict.is_some_and(|verdict| !verdict.reasons.is_empty())
    };
    let state = State::of(observed, is_outdated);
    let next = next_to_delete(&observed.cluster.failure_domains, &state.replicas)?;
    let is_among = next.machines.iter().any(|other| other == name);
    Some(match next.machines.as_slice() {
        [_] if is_among => "it is the first to go".to_owned(),
        machines if is_among => format!("the first to go is one of {}", listed(machines, "and")),
        machines => format!("before it goes {}", listed(machines, "or")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Decision, MachineWrite, Preference, decide};
    use crate::{
        change::decision::{Refusal, RefusedBy},
        control_plane::example::now,
        plan::observed::Etcd,
        verbs::machine::{
            example::{dead, situation},
            object::DELETE_MACHINE,
            situation::MachineSituation,
        },
    };

    fn decision(of: &MachineSituation, preference: Preference) -> Decision {
        decide(of, preference, "kubectl-kcp", now())
    }

    fn mark(of: &mut MachineSituation) {
        let annotation = DELETE_MACHINE.to_owned();
        of.object.annotations.insert(annotation, String::new());
    }

    /// Marks another Machine, by its number.
    fn mark_other(of: &mut MachineSituation, machine: usize) {
        of.situation.observed.machines[machine - 1].to_be_deleted = true;
    }

    fn outdate(of: &mut MachineSituation, machine: usize) {
        of.situation.observed.machines[machine - 1].machine.version = Some("v1.2.3".to_owned());
    }

    fn in_one_place_each(of: &mut MachineSituation) {
        let observed = &mut of.situation.observed;
        observed.cluster.failure_domains = ["a", "b", "c"].map(str::to_owned).to_vec();
        for (machine, domain) in observed.machines.iter_mut().zip(["a", "b", "c"]) {
            machine.machine.failure_domain = Some(domain.to_owned());
        }
    }

    #[test]
    fn says_when_it_goes_and_what_goes_before_it() {
        type Case = (&'static str, fn(&mut MachineSituation), &'static [&'static str]);
        const NEXT: &str = "takes effect at the next scale down or rollout";
        const FIRST: &str = "it is the first to go";
        let cases: &[Case] = &[
            ("alone", |_| {}, &[NEXT, FIRST]),
            // The older of two, in no failure domain.
            (
                "an older one is marked",
                |of| mark_other(of, 1),
                &[NEXT, "before it goes m1"],
            ),
            ("a younger one is marked", |of| mark_other(of, 3), &[NEXT, FIRST]),
            (
                "one elsewhere is marked",
                |of| {
                    in_one_place_each(of);
                    mark_other(of, 1);
                },
                &[NEXT, "the first to go is one of m1 and m2"],
            ),
            (
                "an outdated one is marked",
                |of| {
                    mark_other(of, 3);
                    outdate(of, 3);
                    outdate(of, 1);
                },
                &["takes effect now: a rollout is under way", "before it goes m3"],
            ),
            (
                "one too many",
                |of| of.situation.observed.spec.replicas = 2,
                &[
                    "takes effect now: Machines are being deleted to have fewer",
                    FIRST,
                ],
            ),
            (
                "it is outdated",
                |of| outdate(of, 2),
                &["takes effect now: a rollout is under way", FIRST],
            ),
        ];
        for (name, change, expected) in cases {
            let mut of = situation("m2");
            change(&mut of);
            let Decision::Write(proposal) = decision(&of, Preference::Preferred) else {
                panic!("{name} is not written");
            };
            assert_eq!(proposal.consequences, *expected, "{name}");
            assert_eq!(proposal.warnings, Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn one_annotation_is_set_or_taken_away() {
        let Decision::Write(proposal) = decision(&situation("m2"), Preference::Preferred) else {
            panic!("not written");
        };
        let patch = |value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": value}}});
        assert_eq!(proposal.write, MachineWrite::Patch(patch(json!(""))));
        assert_eq!(
            proposal.occurrence.note("alice"),
            "preferred deletion requested by alice for Machine m2"
        );
        let mut of = situation("m2");
        mark(&mut of);
        let Decision::Write(proposal) = decision(&of, Preference::Cleared) else {
            panic!("not written");
        };
        assert_eq!(proposal.write, MachineWrite::Patch(patch(json!(null))));
        assert_eq!(proposal.consequences, Vec::<String>::new());
        assert_eq!(
            proposal.occurrence.note("alice"),
            "preferred deletion withdrawn by alice for Machine m2"
        );
    }

    #[test]
    fn what_is_so_already_is_left() {
        let mut marked = situation("m2");
        mark(&mut marked);
        let mut leaving = situation("m2");
        leaving.object.is_deleting = true;
        for (of, preference, why) in [
            (
                &marked,
                Preference::Preferred,
                "it is preferred for deletion already; takes effect at the next scale down or rollout; it is the first \
                 to go",
            ),
            (
                &situation("m2"),
                Preference::Cleared,
                "it is not preferred for deletion",
            ),
            (&leaving, Preference::Preferred, "it is being deleted already"),
            (&leaving, Preference::Cleared, "it is being deleted already"),
        ] {
            assert_eq!(decision(of, preference), Decision::Unchanged(why.to_owned()));
        }
    }

    #[test]
    fn one_that_must_not_go_is_marked_with_a_warning() {
        let mut of = situation("m2");
        dead(&mut of, &["m3"]);
        let Decision::Write(proposal) = decision(&of, Preference::Preferred) else {
            panic!("not written");
        };
        assert_eq!(
            proposal.warnings,
            [
                "it must not go as things are: without it etcd would have no quorum: 1 of 2 voting members healthy, 2 \
                 needed",
                "it must not go as things are: etcd member node-m3 of Machine m3 is not healthy: no answer within 2s"
            ]
        );
    }

    #[test]
    fn one_that_must_not_go_and_would_go_now_is_not_marked() {
        let mut of = situation("m2");
        dead(&mut of, &["m3"]);
        of.situation.observed.spec.replicas = 2;
        let why = [
            "without it etcd would have no quorum: 1 of 2 voting members healthy, 2 needed",
            "etcd member node-m3 of Machine m3 is not healthy: no answer within 2s",
            "takes effect now: Machines are being deleted to have fewer",
            "it is the first to go",
        ];
        let refusal = Refusal::new(RefusedBy::Command, why.map(str::to_owned).to_vec());
        assert_eq!(decision(&of, Preference::Preferred), Decision::Refused(refusal));
        // The mark may always be taken away.
        mark(&mut of);
        let cleared = decision(&of, Preference::Cleared);
        assert!(matches!(cleared, Decision::Write(_)), "{cleared:?}");
    }

    #[test]
    fn members_that_come_up_in_a_rollout_keep_nothing_from_being_marked() {
        let mut of = situation("m2");
        outdate(&mut of, 2);
        dead(&mut of, &[]);
        if let Etcd::Members(members) = &mut of.situation.observed.etcd {
            members[2].is_learner = true;
        }
        let Decision::Write(proposal) = decision(&of, Preference::Preferred) else {
            panic!("not written");
        };
        assert_eq!(
            proposal.warnings,
            [
                "it must not go as things are: etcd has members that have yet to start or to be promoted: node-m3"
            ]
        );
        assert_eq!(
            proposal.consequences,
            [
                "takes effect now: a rollout is under way",
                "it is the first to go"
            ]
        );
    }

    #[test]
    fn one_that_leads_is_marked_with_a_warning() {
        let mut of = situation("m2");
        dead(&mut of, &[]);
        if let Etcd::Members(members) = &mut of.situation.observed.etcd {
            members[1].is_leader = true;
        }
        let Decision::Write(proposal) = decision(&of, Preference::Preferred) else {
            panic!("not written");
        };
        assert_eq!(
            proposal.warnings,
            [
                "etcd member node-m2 of Machine m2 leads: Cluster API moves the leadership before it removes the member, \
                 and writes wait for the moment of that"
            ]
        );
    }
}
