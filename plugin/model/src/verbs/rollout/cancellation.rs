//! Whether a rollout can be taken back, and what is written for it.
//!
//! A time that is over and has replaced every older Machine is left as it is: without it no Machine would be out of
//! date either.

use jiff::Timestamp;
use kcp_rules::api::{DecodeError, control_plane::Shape, decode};
use serde_json::{Value, json};

use crate::verbs::rollout::permission::{Permission, permission};
use crate::{
    change::{
        consent::{Consent, Demand, consent},
        decision::{Decision, Proposal, Refusal, RefusedBy},
        event::Occurrence,
        situation::Situation,
    },
    judgement::{Surroundings, judge_update},
    plan::{ask::patched, wording},
};

/// What there is to take back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Planned {
    /// Nothing.
    #[default]
    Nothing,
    /// It was asked for, and is done.
    Over {
        /// For when.
        after: Timestamp,
    },
    /// It runs.
    Running {
        /// For when it was asked for.
        after: Timestamp,
        /// Machines made since.
        replacements: Vec<String>,
        /// Machines that it has yet to replace.
        left: Vec<String>,
    },
    /// It has yet to begin.
    ToCome {
        /// When.
        after: Timestamp,
    },
}

impl Planned {
    /// By the time that a control plane asks for.
    pub fn of(situation: &Situation, now: Timestamp) -> Self {
        let Situation {
            observed,
            machines_read,
            ..
        } = situation;
        let Some(after) = observed.control_plane.rollout_after else {
            return Self::Nothing;
        };
        // Its Machines are left unread only where it has yet to begin: a moment that has passed since makes none.
        if after > now || !machines_read {
            return Self::ToCome { after };
        }
        let staying = observed.machines.iter().map(|of| &of.machine);
        let staying = staying.filter(|machine| machine.deleting_since.is_none());
        let (left, replacements): (Vec<_>, Vec<_>) =
            staying.partition(|machine| machine.created.is_some_and(|created| created < after));
        let names = |machines: Vec<&crate::control_plane::Machine>| -> Vec<String> {
            machines.into_iter().map(|machine| machine.name.clone()).collect()
        };
        if left.is_empty() {
            return Self::Over { after };
        }
        Self::Running {
            after,
            replacements: names(replacements),
            left: names(left),
        }
    }
}

/// Decides on a control plane in the version of `api_version`. `running` is whether a rollout is taken back that runs.
///
/// # Errors
/// When the control plane does not have its kind's types.
pub fn decide(
    situation: &Situation,
    running: bool,
    api_version: &str,
    surroundings: Surroundings<'_>,
) -> Result<Decision, DecodeError> {
    let patch = removal(&decode(&situation.object)?, api_version);
    let proposal = |detail: String, warnings: Vec<String>, consequences: Vec<String>| Proposal {
        patch: patch.clone(),
        subresource: None,
        warnings,
        consequences,
        occurrence: Occurrence {
            reason: "RolloutCancelled",
            action: "CancelRollout",
            done: "rollout cancelled",
            detail,
        },
    };
    match Planned::of(situation, surroundings.now) {
        Planned::Nothing | Planned::Over { .. } => Ok(Decision::Unchanged),
        Planned::ToCome { after } => Ok(match permission(situation, &patch, surroundings)? {
            Permission::Denied(refusal) => Decision::Refused(refusal),
            Permission::Granted(warnings) => {
                let detail = format!("that was to begin at {after}");
                Decision::Write(proposal(detail, warnings, Vec::new()))
            }
        }),
        Planned::Running {
            after,
            replacements,
            left,
        } => {
            if let Permission::Denied(refusal) = permission(situation, &patch, surroundings)? {
                return Ok(Decision::Refused(refusal));
            }
            let judgement = judge_update(
                &situation.object,
                &patched(&situation.object, &patch)?,
                surroundings,
            )?;
            let demand = Demand {
                patch: &patch,
                judgement: &judgement,
                field_manager: surroundings.field_manager,
                // What it leaves to do waits for the preflight as it does now.
                force: true,
                now: surroundings.now,
            };
            // It takes a time away, which needs no quorum: what that leaves to do is told, and refuses nothing.
            let Consent { plan, warnings, .. } = consent(situation, demand)?;
            let stay = if replacements.is_empty() {
                "no Machine is replaced yet".to_owned()
            } else {
                format!(
                    "what it has made stays: {}",
                    wording::listed(&replacements, "and")
                )
            };
            let rest = format!(
                "what it has not replaced stays too: {}; {}",
                wording::listed(&left, "and"),
                match &plan.steps {
                    Ok(_) => format!("then the plan is: {}", wording::summary(&plan)),
                    Err(no_plan) => format!("then there is no plan: {}", wording::no_plan(no_plan)),
                }
            );
            if !running {
                let control_plane = situation.control_plane();
                let (name, namespace) = (&control_plane.name, &control_plane.namespace);
                let runs = format!("the rollout of {after} runs already; if it were taken back:");
                let instead = format!(
                    "take it back with --running, or halt it as it is: kubectl kcp rollout pause {name} -n {namespace}"
                );
                return Ok(Decision::Refused(Refusal::new(
                    RefusedBy::Command,
                    vec![runs, stay, rest, instead],
                )));
            }
            let detail = format!("that has run since {after}");
            Ok(Decision::Write(proposal(detail, warnings, vec![stay, rest])))
        }
    }
}

/// The merge patch that takes the time away. An object that had nothing else goes with it: v1beta2 allows no empty one.
fn removal(object: &Value, api_version: &str) -> Value {
    if Shape::of(api_version) == Shape::V1Beta1 {
        return json!({"spec": {"rolloutAfter": null}});
    }
    let rollout = object.pointer("/spec/rollout").and_then(Value::as_object);
    if rollout.is_some_and(|rollout| rollout.keys().all(|key| key == "after")) {
        json!({"spec": {"rollout": null}})
    } else {
        json!({"spec": {"rollout": {"after": null}}})
    }
}

#[cfg(test)]
mod tests {
    use kcp_rules::view::View;
    use serde_json::{Value, json};

    use super::{Planned, decide, removal};
    use crate::{
        change::{
            decision::{Decision, Proposal, Refusal, RefusedBy},
            example::{fail, situation},
            situation::Situation,
        },
        control_plane::example::{minutes_ago, now},
        judgement::Surroundings,
        plan::observed::{Etcd, EtcdMember},
    };

    /// The example's Machines are five, four and three hours old; a rollout was or is to be so many minutes ago.
    fn asked_for(minutes: i64) -> Situation {
        let mut situation = situation();
        let after = Some(minutes_ago(minutes));
        situation.observed.control_plane.rollout_after = after;
        situation.observed.spec.rollout_after = after;
        let mut object: Value = serde_json::from_str(&situation.object).expect("JSON");
        object["spec"]["rollout"]["after"] = json!(minutes_ago(minutes).to_string());
        situation.object = object.to_string();
        situation
    }

    fn decided(situation: &Situation, running: bool) -> Decision {
        let surroundings = Surroundings {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &View::default(),
            configuration: None,
        };
        decide(situation, running, "g/v1beta2", surroundings).expect("decodes")
    }

    fn proposal(decision: Decision) -> Proposal {
        match decision {
            Decision::Write(proposal) => proposal,
            other => panic!("not written: {other:?}"),
        }
    }

    #[test]
    fn what_there_is_to_take_back() {
        let running = |left: &[&str], replacements: &[&str], minutes| Planned::Running {
            after: minutes_ago(minutes),
            left: left.iter().map(|name| (*name).to_owned()).collect(),
            replacements: replacements.iter().map(|name| (*name).to_owned()).collect(),
        };
        let of = |situation: &Situation| Planned::of(situation, now());
        assert_eq!(of(&situation()), Planned::Nothing);
        for (minutes, expected) in [
            (
                -60,
                Planned::ToCome {
                    after: minutes_ago(-60),
                },
            ),
            (0, running(&["m1", "m2", "m3"], &[], 0)),
            (210, running(&["m1", "m2"], &["m3"], 210)),
            (
                600,
                Planned::Over {
                    after: minutes_ago(600),
                },
            ),
        ] {
            assert_eq!(of(&asked_for(minutes)), expected, "{minutes}");
        }
        // Its time came between reading and deciding.
        let mut unread = asked_for(0);
        unread.machines_read = false;
        unread.observed.machines.clear();
        assert_eq!(of(&unread), Planned::ToCome { after: now() });
        // Whose last Machine is on its way out is done.
        let mut ending = asked_for(270);
        assert_eq!(of(&ending), running(&["m1"], &["m2", "m3"], 270));
        ending.observed.machines[0].machine.deleting_since = Some(minutes_ago(1));
        assert_eq!(
            of(&ending),
            Planned::Over {
                after: minutes_ago(270)
            }
        );
    }

    #[test]
    fn what_is_planned_is_taken_back_and_nothing_else_is() {
        for running in [false, true] {
            for nothing in [situation(), asked_for(600)] {
                assert_eq!(decided(&nothing, running), Decision::Unchanged);
            }
            let mut planned = asked_for(-60);
            // The controller could not take a step now: that is no reason to keep the plan.
            fail(&mut planned, 2, "EtcdPodHealthy", "crashed");
            let Proposal {
                patch,
                warnings,
                consequences,
                occurrence,
                ..
            } = proposal(decided(&planned, running));
            assert_eq!(patch, json!({"spec": {"rollout": {"after": null}}}));
            assert_eq!((warnings, consequences), (Vec::<String>::new(), vec![]));
            assert_eq!(
                occurrence.note("alice"),
                "rollout cancelled by alice that was to begin at 2026-08-21T13:00:00Z"
            );
        }
    }

    #[test]
    fn what_runs_is_taken_back_only_when_that_is_meant() {
        let mut situation = asked_for(210);
        let stay = "what it has made stays: m3";
        let rest = "what it has not replaced stays too: m1 and m2; then the plan is: nothing to do";
        assert_eq!(
            decided(&situation, false),
            Decision::Refused(Refusal::new(
                RefusedBy::Command,
                [
                    "the rollout of 2026-08-21T08:30:00Z runs already; if it were taken back:",
                    stay,
                    rest,
                    "take it back with --running, or halt it as it is: kubectl kcp rollout pause c1-cp -n d",
                ]
                .map(str::to_owned)
                .to_vec()
            ))
        );
        let taken_back = proposal(decided(&situation, true));
        assert_eq!(taken_back.consequences, [stay, rest]);

        // Between a creation and a deletion there is one Machine more than asked for.
        let mut surplus = situation.observed.machines[2].clone();
        surplus.machine.name = "m4".to_owned();
        surplus.machine.node = Some("node-m4".to_owned());
        situation.observed.machines.push(surplus);
        let rest = "what it has not replaced stays too: m1 and m2; then the plan is: 1 step: 0 to create, 1 to delete";
        assert_eq!(
            proposal(decided(&situation, true)).consequences,
            ["what it has made stays: m3 and m4", rest]
        );
    }

    #[test]
    fn what_runs_is_taken_back_without_quorum_too() {
        let mut lost = asked_for(210);
        let silent = |node: &str| EtcdMember {
            name: node.to_owned(),
            silence: Some("gone".to_owned()),
            ..EtcdMember::default()
        };
        lost.observed.etcd = Etcd::Members(["node-m1", "node-m2", "node-m3"].map(silent).to_vec());
        let Proposal {
            patch, consequences, ..
        } = proposal(decided(&lost, true));
        assert_eq!(patch, json!({"spec": {"rollout": {"after": null}}}));
        assert_eq!(
            consequences,
            [
                "what it has made stays: m3",
                "what it has not replaced stays too: m1 and m2; then there is no plan: etcd has lost quorum: 0 of 3 \
                 voting members healthy, 2 needed"
            ]
        );
    }

    #[test]
    fn an_object_that_had_nothing_else_goes_too() {
        let of = |rollout: Value| removal(&json!({"spec": {"rollout": rollout}}), "g/v1beta2");
        let after = "2026-08-21T13:00:00Z";
        let only_the_time = json!({"spec": {"rollout": {"after": null}}});
        assert_eq!(of(json!({"after": after, "strategy": {}})), only_the_time);
        assert_eq!(of(json!({"after": after})), json!({"spec": {"rollout": null}}));
        let v1beta1 = removal(&json!({"spec": {"rolloutAfter": after}}), "g/v1beta1");
        assert_eq!(v1beta1, json!({"spec": {"rolloutAfter": null}}));
    }
}
