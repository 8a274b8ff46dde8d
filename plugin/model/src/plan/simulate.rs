//! Simulates the controller step by step until the control plane has the desired state.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    plan::{
        selection::{FailureDomainReason, Group},
        state::{PlanState, Replica},
        step::{self, Action, Context, NoPlan, Purpose, Transition},
    },
    quorum::{Change, EtcdRefusal, Votes},
};

/// How many states are simulated in parallel after random choices of the controller. This suffices for nine Machines in
/// three failure domains. More states are dropped.
const MAX_STATES: usize = 2_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    pub action: Action,
    pub purpose: Purpose,
    /// The names of the Machines that the step may concern, or of etcd members for [`Purpose::RemoveMember`].
    pub names: Vec<String>,
    pub choice: Choice,
    /// The failure domains of the Machines in `names`. A `None` in the list means a Machine without a failure
    /// domain.
    pub failure_domains: Vec<Option<String>>,
    pub why: FailureDomainReason,
    pub group: Option<Group>,
    /// The time until which the step waits. `None` if it does not wait for a time.
    pub waits_until: Option<Timestamp>,
    /// Whether the controller may update the Machine in place instead of deleting it. The later steps assume that it
    /// deletes the Machine.
    pub may_update_in_place: bool,
    /// Whether the step waits until a Machine recovers from a problem that the controller does not detect.
    /// The controller itself does not wait.
    pub is_undetected: bool,
    /// Why the step never ends. A plan has no steps after such a step.
    pub refusal: Option<EtcdRefusal>,
    /// Whether earlier random choices, or updates in place, can lead to a different step.
    pub may_differ: bool,
    /// How many Machines the control plane has after the step.
    pub replicas: usize,
    /// etcd's votes before, during and after the step. `None` if etcd is external.
    pub votes: Option<StepVotes>,
}

/// How the controller chooses among the names of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Choice {
    /// The step concerns all Machines in `names`.
    None,
    /// The step concerns one Machine in `names`. An earlier random choice decides which one.
    ByEarlier,
    /// The step concerns one Machine in `names`. The controller chooses it at random.
    AtRandom,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepVotes {
    pub before: Votes,
    /// etcd's votes in the worst case during the step.
    pub during: Votes,
    pub after: Votes,
}

impl StepVotes {
    /// How many members can fail at any time during the step before etcd loses quorum.
    pub fn tolerance_during_step(self) -> usize {
        self.during
            .failure_tolerance()
            .min(self.after.failure_tolerance())
    }
}

/// The highest number of Machines that a plan covers. The time of a simulation grows with the square of this number.
/// etcd recommends at most seven members.
const MAX_REPLICAS: usize = 99;

/// Returns all steps from `start` to the desired state. Fails if no sequence of steps keeps etcd's quorum and reaches the desired
/// state.
pub fn simulate(start: PlanState, context: Context<'_>) -> Result<Vec<PlanStep>, NoPlan> {
    let spec = context.spec;
    if spec.replica_count() == 0 {
        return Err(NoPlan::NoReplicas);
    }
    if spec.replica_count() > MAX_REPLICAS {
        return Err(NoPlan::TooManyReplicas {
            replicas: spec.replica_count(),
            max: MAX_REPLICAS,
        });
    }
    if spec.rolls_out_forever() {
        return Err(NoPlan::Endless {
            expiry_days: spec.certificates_expiry_days.unwrap_or_default(),
            validity_days: spec.certificate_validity_days(),
        });
    }
    if let Some(votes) = start.members.as_deref().and_then(Votes::lost_quorum_votes) {
        return Err(NoPlan::QuorumLost { votes });
    }
    simulate_until(start, context, |_| false)
}

/// Returns the steps up to the first creation or deletion of a Machine. Unlike [`simulate`], this function does not
/// require that the whole change is possible. Fails if the controller cannot continue, or must not.
pub fn first_change(start: PlanState, context: Context<'_>) -> Result<Vec<PlanStep>, NoPlan> {
    simulate_until(start, context, |step| step.action != Action::Wait)
}

fn simulate_until(
    start: PlanState,
    context: Context<'_>,
    is_last: impl Fn(&PlanStep) -> bool,
) -> Result<Vec<PlanStep>, NoPlan> {
    // The controller waits for, deletes and replaces each Machine at most once.
    let members = start.members.as_ref().map_or(0, Vec::len);
    let limit = 4 * (start.replicas.len() + members + context.spec.replica_count()) + 4;
    let mut steps: Vec<PlanStep> = Vec::new();
    let mut states = BTreeSet::from([start]);
    for _ in 0..limit {
        let Some((ways, may_differ)) = possible_steps(&states, context)? else {
            return Ok(steps);
        };
        let may_differ = may_differ || steps.iter().any(|step| step.may_update_in_place);
        let step = merge_steps(&ways, may_differ);
        let is_last = is_last(&step) || step.refusal.is_some();
        steps.push(step);
        if is_last {
            return Ok(steps);
        }
        states = ways.into_iter().map(|way| way.transition.state).collect();
        while states.len() > MAX_STATES {
            states.pop_last();
        }
    }
    let names = states.first().map(|state| &state.replicas);
    Err(NoPlan::Stuck {
        names: names
            .into_iter()
            .flatten()
            .map(|replica| replica.name.clone())
            .collect(),
    })
}

struct PossibleStep {
    before: Option<Votes>,
    /// Whether the controller chooses this step at random among several.
    is_chosen: bool,
    /// Whether the step waits until a Machine recovers from a problem that the controller does not detect.
    is_undetected: bool,
    transition: Transition,
}

/// Returns all variants of the next step, and whether a different step is possible. `None` if the desired state is reached.
fn possible_steps(
    states: &BTreeSet<PlanState>,
    context: Context<'_>,
) -> Result<Option<(Vec<PossibleStep>, bool)>, NoPlan> {
    let mut ways: Vec<PossibleStep> = Vec::new();
    let mut has_ended = false;
    for state in states {
        let before = state.votes(Change::Unchanged);
        let transitions = step::next(state, context)?;
        has_ended |= transitions.is_empty();
        let is_chosen = transitions.len() > 1;
        let is_unreported = |name: &String| state.replica(name).is_some_and(Replica::has_unreported_failure);
        ways.extend(transitions.into_iter().map(|transition| PossibleStep {
            before,
            is_chosen,
            is_undetected: transition.purpose == Purpose::Recover
                && transition.names.iter().any(is_unreported),
            transition,
        }));
    }
    // After random choices, states rarely differ in anything but names.
    let kind = |way: &PossibleStep| (way.transition.action, way.transition.purpose);
    let first = ways.first().map(kind);
    let all = ways.len();
    ways.retain(|way| Some(kind(way)) == first);
    let may_differ = has_ended || ways.len() < all;
    Ok((!ways.is_empty()).then_some((ways, may_differ)))
}

fn merge_steps(ways: &[PossibleStep], may_differ: bool) -> PlanStep {
    let transitions = || ways.iter().map(|way| &way.transition);
    let sets: BTreeSet<&[String]> = transitions()
        .map(|transition| transition.names.as_slice())
        .collect();
    let names: BTreeSet<&String> = sets.iter().copied().flatten().collect();
    let failure_domains: BTreeSet<&Option<String>> = transitions()
        .map(|transition| &transition.failure_domain)
        .collect();
    let votes = ways.iter().filter_map(|way| {
        Some(StepVotes {
            before: way.before?,
            during: way.transition.votes_during?,
            after: way.transition.state.votes(Change::Unchanged)?,
        })
    });
    let first = ways.first().map(|way| &way.transition);
    PlanStep {
        action: first.map_or(Action::Wait, |first| first.action),
        purpose: first.map_or(Purpose::Recover, |first| first.purpose),
        names: names.into_iter().cloned().collect(),
        choice: if ways.iter().any(|way| way.is_chosen) {
            Choice::AtRandom
        } else if sets.len() > 1 || failure_domains.len() > 1 {
            Choice::ByEarlier
        } else {
            Choice::None
        },
        failure_domains: failure_domains.into_iter().cloned().collect(),
        why: transitions()
            .map(|transition| transition.why)
            .max()
            .unwrap_or(FailureDomainReason::Given),
        group: first.and_then(|first| first.group),
        may_update_in_place: transitions().any(|transition| transition.may_update_in_place),
        waits_until: transitions()
            .filter_map(|transition| transition.waits_until)
            .max(),
        is_undetected: ways.iter().any(|way| way.is_undetected),
        refusal: transitions().find_map(|transition| transition.refusal.clone()),
        may_differ,
        replicas: first.map_or(0, |first| first.state.replicas.len()),
        votes: votes.min_by_key(|votes| votes.tolerance_during_step()),
    }
}

/// The risk to etcd if the controller takes its first step while a problem remains that it does not detect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct QuorumRisk {
    /// etcd's votes after the step.
    #[serde(flatten)]
    pub votes: Votes,
    /// Why etcd refuses the step. Absent if etcd does not refuse it, and can therefore lose its quorum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<EtcdRefusal>,
}

/// Returns the risk of the first creation or deletion of a Machine, if that step is not safe. When the step begins,
/// everything that the controller waits for has happened, but problems that the controller does not detect remain.
pub fn first_step_risk(start: &PlanState, steps: &[PlanStep]) -> Option<QuorumRisk> {
    let mut state = start.clone();
    let mut steps = steps.iter();
    let first = loop {
        let step = steps.next()?;
        if step.action != Action::Wait {
            break step;
        }
        apply_wait(&mut state, step);
    };
    // The plan itself says that the step never ends.
    if first.refusal.is_some() {
        return None;
    }
    let risk = |change, refusal| {
        let votes = state.votes(change).filter(|votes| !votes.is_safe())?;
        Some(QuorumRisk { votes, refusal })
    };
    if first.action == Action::Create {
        return risk(Change::Added, state.refused_join());
    }
    let mut candidates = first.names.iter().filter_map(|name| state.replica(name));
    candidates.find_map(|replica| risk(state.removal(replica), state.refused_removal(replica)))
}

fn apply_wait(state: &mut PlanState, step: &PlanStep) {
    for name in &step.names {
        match step.purpose {
            Purpose::ComeUp | Purpose::Recover => {
                if !state.replica(name).is_some_and(Replica::has_unreported_failure) {
                    state.recover(name);
                }
            }
            Purpose::FinishDeletion => state.remove(name),
            Purpose::RemoveMember => {
                if let Some(members) = &mut state.members {
                    members.retain(|member| member.name != *name);
                }
            }
            Purpose::FinishUpdate
            | Purpose::RetryPeriod
            | Purpose::Initialize
            | Purpose::ScaleUp
            | Purpose::ScaleDown
            | Purpose::Rollout
            | Purpose::Remediate => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use kcp_api::{KubeadmControlPlaneSpec, Remediation, control_plane::RemediationLimits};

    use super::{Action, Choice, Context, NoPlan, PlanStep, Purpose, first_step_risk, simulate};
    use crate::{
        controller_release::Release,
        plan::{
            remediation::RemediationContext,
            state::{Fault, NewestNode, PlanState},
        },
        quorum::Votes,
        testing::{
            objects::{minutes_ago, now},
            plan::{declared, spec, state, with_replicas},
        },
    };

    fn plan(state: PlanState, spec: &KubeadmControlPlaneSpec) -> Result<Vec<PlanStep>, NoPlan> {
        let declared = declared("a b c");
        simulate(
            state,
            Context {
                spec,
                declared: &declared,
                remediation: RemediationContext {
                    limits: &spec.remediation,
                    initialized: true,
                    topology_version: None,
                    now: now(),
                },
            },
        )
    }

    fn spec_of(replicas: usize, max_surge: usize) -> KubeadmControlPlaneSpec {
        KubeadmControlPlaneSpec {
            max_surge,
            ..with_replicas(spec(), replicas)
        }
    }

    /// Describes the steps: `+` for a created Machine, `-` for a deleted one, `?` for a wait; then the Machines, or the
    /// failure domains of a created one; then how many members can fail during and after the step.
    fn shown(step: &PlanStep) -> String {
        let domains = step.failure_domains.iter();
        let domains: Vec<&str> = domains
            .map(|domain| domain.as_deref().unwrap_or_default())
            .collect();
        let (sign, names) = match step.action {
            Action::Create => ("+", domains.join("|")),
            Action::Delete => (
                "-",
                step.names
                    .join(if step.choice == Choice::None { "," } else { "|" }),
            ),
            Action::Wait => ("?", step.names.join(",")),
        };
        let votes = step.votes.map_or_else(String::new, |votes| {
            format!(
                " {}-{}",
                votes.tolerance_during_step(),
                votes.after.failure_tolerance()
            )
        });
        let endless = step.refusal.as_ref().map_or("", |_| " never ends");
        format!("{sign}{names}{votes}{endless}")
    }

    fn assert_steps(cases: &[(&str, usize, usize, &[&str])]) {
        for (machines, replicas, max_surge, expected) in cases {
            let steps = plan(state(machines), &spec_of(*replicas, *max_surge)).expect("there is a plan");
            let steps: Vec<String> = steps.iter().map(shown).collect();
            assert_eq!(steps, *expected, "{machines} to {replicas}, surge {max_surge}");
        }
    }

    #[test]
    fn scaling() {
        assert_steps(&[
            ("m1@a m2@b m3@c", 3, 1, &[]),
            ("", 3, 1, &["+a|b|c 0-0", "+a|b|c 0-0", "+a|b|c 0-1"]),
            // Starting with one member, no member may fail until the third has joined.
            ("m1@a", 3, 1, &["+b|c 0-0", "+b|c 0-1"]),
            ("m1@a m2@b m3@c", 5, 1, &["+a|b|c 0-1", "+a|b|c 1-2"]),
            ("m1@a m2@a m3@b", 5, 1, &["+c 0-1", "+b|c 1-2"]),
            ("m1@a m2@a m3@b", 1, 1, &["-m1 0-0", "-m2|m3 0-0"]),
            ("m1@a m2@b m3@c", 1, 1, &["-m1|m2|m3 0-0", "-m1|m2|m3 0-0"]),
            ("m1@a m2@bd m3@c", 1, 1, &["-m2 0-0", "-m1|m3 0-0"]),
            ("m1@a m2@b m3@c m4@z m5@c", 3, 1, &["-m4 1-1", "-m3 1-1"]),
        ]);
    }

    #[test]
    fn rolling_out() {
        assert_steps(&[
            ("m1@a!", 1, 1, &["+b|c 0-0", "-m1 0-0"]),
            (
                "m1@a! m2@b! m3@c!",
                3,
                1,
                &[
                    "+a|b|c 0-1",
                    "-m1|m2|m3 1-1",
                    "+a|b|c 0-1",
                    "-m1|m2|m3 1-1",
                    "+a|b|c 0-1",
                    "-m1|m2|m3 1-1",
                ],
            ),
            (
                "m1@a! m2@b! m3@c!",
                3,
                0,
                &[
                    "-m1|m2|m3 0-0",
                    "+a|b|c 0-1",
                    "-m1|m2|m3 0-0",
                    "+a|b|c 0-1",
                    "-m1|m2|m3 0-0",
                    "+a|b|c 0-1",
                ],
            ),
            // One outdated Machine of three.
            ("m1@a m2@b! m3@c", 3, 1, &["+b 0-1", "-m2 1-1"]),
            ("m1@a m2@b! m3@c", 3, 0, &["-m2 0-0", "+b 0-1"]),
            // Halfway: one new Machine is up.
            (
                "m1@a! m2@b! m3@c",
                2,
                1,
                &["-m1|m2 0-0", "+a|b 0-1", "-m1|m2 0-0"],
            ),
            // A rollout comes before scaling, and is part of it.
            (
                "m1@a! m2@b! m3@c!",
                1,
                1,
                &["-m1|m2|m3 0-0", "-m1|m2|m3 0-0", "+a|b|c 0-0", "-m1|m2|m3 0-0"],
            ),
            ("m1@a!", 3, 1, &["+b|c 0-0", "+b|c 0-1", "+a 0-1", "-m1 1-1"]),
            // The marked Machine is deleted first, whether or not it is up to date.
            (
                "m1@a! m2@bd m3@c",
                3,
                0,
                &["-m2 0-0", "+b 0-1", "-m1 0-0", "+a 0-1"],
            ),
            // A failed outdated Machine is deleted first, immediately if no Machine is created before.
            (
                "m1@a! m2@b! m3@c!f",
                3,
                0,
                &[
                    "-m3 0-0",
                    "+c 0-1",
                    "-m1|m2 0-0",
                    "+a|b 0-1",
                    "-m1|m2 0-0",
                    "+a|b 0-1",
                ],
            ),
        ]);
    }

    #[test]
    fn waits_for_what_keeps_the_controller() {
        assert_steps(&[
            ("m1@a m2@b m3@cp", 3, 1, &["?m3 0-1"]),
            ("m1@a m2@b m3@cl", 3, 1, &["?m3 0-1"]),
            ("m1@a m2@b m3@cx", 3, 1, &["?m3 0-0", "+c 0-1"]),
            // A Machine is unhealthy, but no change is pending, so there is nothing to do.
            ("m1@a m2@b m3@ce", 3, 1, &[]),
            ("m1@a! m2@b m3@ce", 3, 1, &["?m3 0-1", "+a 0-1", "-m1 1-1"]),
            ("m1@a! m2@b m3@ce", 3, 0, &["?m3 0-1", "-m1 0-0", "+a 0-1"]),
            ("m1@a m2@b m3@cu", 5, 1, &["?m3 1-1", "+a|b|c 0-1", "+a|b|c 1-2"]),
            // Problems of the Machine that is deleted do not count.
            (
                "m1@a! m2@b! m3@z!",
                3,
                0,
                &[
                    "-m3 0-0",
                    "+c 0-1",
                    "-m1|m2 0-0",
                    "+a|b 0-1",
                    "-m1|m2 0-0",
                    "+a|b 0-1",
                ],
            ),
            ("m1@a m2@b m3@zf", 1, 1, &["-m3 0-0", "-m1|m2 0-0"]),
            // The controller waits until the other member is healthy.
            ("m1@a m2@bx m3@ce", 3, 1, &["?m3 0-1", "?m2 0-0", "+b 0-1"]),
            // The controller chooses the Machine at random, and does not know which member does not respond.
            (
                "m1@a m2@bs m3@c",
                1,
                1,
                &["?m2 0-1", "-m1|m2|m3 0-0", "-m1|m2|m3 0-0"],
            ),
            ("m1 m2s m3", 1, 1, &["?m2 0-1", "-m1 0-0", "-m2 0-0"]),
            ("m1s m2 m3", 1, 1, &["-m1 0-0", "-m2 0-0"]),
            ("m1@a m2@bds m3@c", 1, 1, &["-m2 0-0", "-m1|m3 0-0"]),
            ("m1@a! m2@bs m3@c", 3, 1, &["?m2 0-1", "+a 0-1", "-m1 1-1"]),
        ]);
    }

    #[test]
    fn remediates_before_all_else() {
        assert_steps(&[
            ("m1@a m2@b m3@cre", 3, 1, &["-m3 0-0", "+c 0-1"]),
            (
                "m1@a! m2@b m3@cre",
                3,
                1,
                &["-m3 0-0", "+c 0-1", "+a 0-1", "-m1 1-1"],
            ),
            // Two at once, one after the other.
            (
                "m1@a m2@b m3@c m4@are m5@bre",
                5,
                1,
                &["-m4 0-0", "+a|c 0-1", "-m5 1-1", "+a|b|c 1-2"],
            ),
            // The members are dead: etcd refuses the join of the new Machine.
            (
                "m1@a m2@b m3@c m4@ars m5@brs",
                5,
                1,
                &["-m4 0-0", "+a|c 0-0 never ends"],
            ),
            ("m1@a m2@b m3@c m4@ap m5@brs", 5, 1, &["?m4 0-0 never ends"]),
            // Both are being deleted: no Machine joins before.
            (
                "m1@a m2@b m3@c m4@axs m5@bxs",
                5,
                1,
                &["?m4 0-0", "?m5 1-1", "+a|b|c 0-1", "+a|b|c 1-2"],
            ),
            // The controller does not know that the other member is dead, and etcd refuses to remove this one.
            ("m1@a m2@br m3@cs", 3, 1, &["-m2 0-0 never ends"]),
            ("m1@a m2@bx m3@cs", 3, 1, &["?m2 0-0 never ends"]),
            // The older one first.
            ("m1@ar m2@b m3@crs", 3, 1, &["-m1 0-0 never ends"]),
            ("m1@a m2@b m3@crs", 3, 1, &["-m3 0-0", "+c 0-1"]),
            // Another Machine is unhealthy, but does not await remediation.
            ("m1@ae m2@bre m3@c m4@a m5@b", 5, 1, &["-m2 0-0", "+b|c 0-1"]),
        ]);
    }

    /// `m3` awaits remediation; its record has this age in minutes and this number of retries.
    fn retried(machines: &str, minutes: i64, retry_count: i64) -> PlanState {
        let mut state = state(machines);
        let record = Remediation {
            machine: "m0".to_owned(),
            timestamp: Some(minutes_ago(minutes)),
            retry_count,
            is_malformed: false,
        };
        let mut replicas = state.replicas.iter_mut();
        let third = replicas.find(|replica| replica.name == "m3");
        third.expect("m3").remediation_for = Some(record);
        state
    }

    #[test]
    fn a_remediation_follows_when_its_period_has_passed() {
        let limits = RemediationLimits {
            max_retry: Some(2),
            retry_period: SignedDuration::from_mins(20),
            ..RemediationLimits::default()
        };
        let waits = |minutes: i64, after: &[&str]| {
            let until = minutes_ago(-minutes).to_string();
            let steps = std::iter::once(until).chain(after.iter().map(|step| (*step).to_owned()));
            steps.collect::<Vec<_>>()
        };
        let replaced = ["-m3 0-0", "+c 0-1"];
        for (machines, minutes, retries, replicas, expected) in [
            // The retry period ends in 15 minutes.
            ("m1@a m2@b m3@cre", 5, 0, 3, waits(15, &replaced)),
            // With too many retries, the minimum healthy period ends in 55 and in 30 minutes.
            ("m1@a m2@b m3@cre", 5, 2, 3, waits(55, &replaced)),
            ("m1@a m2@b m3@cre", 30, 2, 3, waits(30, &replaced)),
            // Both periods have passed.
            ("m1@a m2@b m3@cre", 60, 2, 3, replaced.map(str::to_owned).to_vec()),
            // The preflight checks of a scale up need a healthy m3, so the controller creates no Machine before.
            (
                "m1@a m2@b m3@cre",
                5,
                0,
                5,
                waits(15, &["-m3 0-0", "+c 0-1", "+a|b|c 0-1", "+a|b|c 1-2"]),
            ),
            // A Machine that joins comes first, and so does the deletion of m3 itself.
            (
                "m1@a m2@b m3@cre m4@cp",
                5,
                0,
                4,
                ["?m4 0-0"]
                    .into_iter()
                    .map(str::to_owned)
                    .chain(waits(15, &["-m3 1-1", "+a|b|c 0-1"]))
                    .collect(),
            ),
            (
                "m1@a m2@b m3@crde",
                5,
                0,
                1,
                vec!["-m3 0-0".to_owned(), "-m1|m2 0-0".to_owned()],
            ),
        ] {
            let mut spec = spec_of(replicas, 1);
            spec.remediation = limits.clone();
            let steps = plan(retried(machines, minutes, retries), &spec).expect("there is a plan");
            let steps: Vec<String> = steps
                .iter()
                .map(|step| {
                    step.waits_until
                        .map_or_else(|| shown(step), |until| until.to_string())
                })
                .collect();
            assert_eq!(steps, expected, "{machines} to {replicas}");
        }
    }

    #[test]
    fn an_extension_may_update_outdated_machines_in_place() {
        for (machines, max_surge, expected) in [
            (
                "m1!i m2!i m3!i",
                1,
                &[
                    "+ sure",
                    "-m1 in place",
                    "+ differs",
                    "-m2 in place differs",
                    "+ differs",
                    "-m3 differs",
                ][..],
            ),
            (
                "m1!i m2!i m3!i",
                0,
                &[
                    "-m1 in place",
                    "+ differs",
                    "-m2 in place differs",
                    "+ differs",
                    "-m3 in place differs",
                    "+ differs",
                ],
            ),
            // The second is not eligible.
            ("m1 m2! m3", 0, &["-m2", "+ sure"]),
        ] {
            let steps = plan(state(machines), &spec_of(3, max_surge)).expect("there is a plan");
            let shown = steps.iter().map(|step| {
                let what = match step.action {
                    Action::Create => "+".to_owned(),
                    _ => format!("-{}", step.names.join("|")),
                };
                let in_place = step.may_update_in_place.then_some("in place");
                let differs = match (step.may_differ, step.action) {
                    (true, _) => Some("differs"),
                    (false, Action::Create) => Some("sure"),
                    (false, _) => None,
                };
                let words = [Some(what.as_str()), in_place, differs];
                words.into_iter().flatten().collect::<Vec<_>>().join(" ")
            });
            assert_eq!(
                shown.collect::<Vec<_>>(),
                expected,
                "{machines}, surge {max_surge}"
            );
        }
    }

    #[test]
    fn no_step_is_told_where_the_controller_must_not_go() {
        let lost = |voters, unhealthy| NoPlan::QuorumLost {
            votes: Votes {
                voters,
                unhealthy,
                starting: 0,
            },
        };
        let only = |machine: &str| NoPlan::LastMachine {
            machine: machine.to_owned(),
        };
        let leader = |machine: &str| NoPlan::OnlyLeader {
            machine: machine.to_owned(),
        };
        for (machines, replicas, max_surge, expected) in [
            ("m1 m2e m3e", 3, 1, lost(3, 2)),
            ("m1e", 3, 1, lost(1, 1)),
            ("m1 m2e", 3, 1, lost(2, 1)),
            ("m1 m2 m3", 0, 1, NoPlan::NoReplicas),
            (
                "m1 m2 m3",
                101,
                1,
                NoPlan::TooManyReplicas {
                    replicas: 101,
                    max: 99,
                },
            ),
            ("m1!", 1, 0, leader("m1")),
            ("m1! m2! m3!", 1, 0, leader("m3")),
            ("m1x", 1, 1, only("m1")),
            (
                "m1x m2x m3x",
                3,
                1,
                NoPlan::AllHeld {
                    machines: ["m1", "m2", "m3"].map(str::to_owned).to_vec(),
                },
            ),
            (
                "m1@a m2@bx m3@cx",
                3,
                1,
                NoPlan::HoldEachOther {
                    machines: ["m2", "m3"].map(str::to_owned).to_vec(),
                },
            ),
        ] {
            let plan = plan(state(machines), &spec_of(replicas, max_surge));
            assert_eq!(plan, Err(expected), "{machines} to {replicas}, surge {max_surge}");
        }

        // Before v1.14, Cluster API chooses the leader itself as the next leader, and deletes its Machine.
        let mut outdated = state("m1!");
        outdated.release = Release::new(13, 6);
        assert_eq!(plan(outdated, &spec_of(1, 0)), Err(only("m1")));

        // Before v1.13, Cluster API finishes each deletion.
        let mut deleting = state("m1x m2x m3x");
        deleting.release = Release::new(12, 10);
        assert_eq!(plan(deleting, &spec_of(3, 1)), Err(only("m1")));

        let mut expiring = spec();
        expiring.certificates_expiry_days = Some(400);
        assert_eq!(
            plan(state("m1 m2 m3"), &expiring),
            Err(NoPlan::Endless {
                expiry_days: 400,
                validity_days: 365
            })
        );
    }

    #[test]
    fn a_member_without_a_name_is_kept_while_its_node_may_be_new() {
        let steps_of = |release: Release, age: i64| {
            let mut start = state("m1 m2 m3");
            start.release = release;
            let members = start.members.as_mut().expect("stacked");
            members[2].name = String::new();
            members[2].machine = None;
            start.newest_node = Some(NewestNode {
                created: now() - SignedDuration::from_secs(age),
                machine: "m3".to_owned(),
            });
            let steps = plan(start, &spec_of(3, 1));
            let first = steps.map(|steps| steps.first().map(|step| (step.purpose, step.names.clone())));
            first.expect("a plan").expect("a step")
        };
        let removed = (Purpose::RemoveMember, vec![String::new()]);
        let awaited = (Purpose::ComeUp, vec!["m3".to_owned()]);
        assert_eq!(steps_of(Release::LATEST, 19), awaited);
        assert_eq!(steps_of(Release::LATEST, 20), removed);
        assert_eq!(steps_of(Release::new(14, 1), 19), removed);
        assert_eq!(steps_of(Release::new(13, 2), 19), removed);
    }

    #[test]
    fn before_v1_13_a_replacement_waits_for_every_other_machine() {
        let first = |release: Release| {
            let mut start = state("m1 m2 m3 m4f");
            start.release = release;
            start.has_remediation_in_progress = true;
            let steps = plan(start, &spec_of(5, 1)).expect("a plan");
            steps.first().map(|step| (step.action, step.purpose))
        };
        assert_eq!(
            first(Release::new(13, 0)),
            Some((Action::Create, Purpose::ScaleUp))
        );
        assert_eq!(
            first(Release::new(12, 10)),
            Some((Action::Wait, Purpose::Recover))
        );
    }

    #[test]
    fn an_etcd_elsewhere_has_no_votes() {
        let elsewhere = PlanState {
            members: None,
            ..state("m1@a! m2@b")
        };
        let steps = plan(elsewhere, &spec_of(2, 1)).expect("there is a plan");
        assert_eq!(steps.iter().map(shown).collect::<Vec<_>>(), ["+c", "-m1"]);
    }

    /// The voters, and the unhealthy ones among them, after the first step. `None` if that step is safe.
    fn of(machines: &str, replicas: usize, pod_fails: bool) -> Option<(usize, usize)> {
        let mut start = state(machines);
        for replica in start
            .replicas
            .iter_mut()
            .filter(|replica| replica.has_unhealthy_member)
        {
            replica.faults.extend(pod_fails.then_some(Fault {
                condition: "EtcdPodHealthy",
                is_false: false,
            }));
        }
        let spec = with_replicas(spec(), replicas);
        let context = Context {
            spec: &spec,
            declared: &[],
            remediation: RemediationContext {
                limits: &spec.remediation,
                initialized: true,
                topology_version: None,
                now: now(),
            },
        };
        let steps = simulate(start.clone(), context).expect("a plan");
        first_step_risk(&start, &steps).map(|risk| (risk.votes.voters, risk.votes.unhealthy))
    }

    #[test]
    fn what_the_controller_does_not_see_is_not_taken_to_pass() {
        for (machines, replicas, expected) in [
            ("m1 m2 m3", 1, None),
            ("m1 m2 m3", 5, None),
            ("m1 m2s m3", 1, Some((2, 1))),
            ("m1 m2s m3", 5, Some((4, 2))),
            ("m1 m2s m3", 3, None),
            ("m1 m2s m3 m4 m5", 3, None),
            ("m1 m2s m3 m4 m5", 7, None),
            // The Machine that is deleted is the one without a member that votes.
            ("m1 m2ds m3", 1, None),
            // The controller waits for one of them, and not for the other.
            ("m1f m2s m3", 1, Some((2, 1))),
            ("m1 m2p m3s m4", 3, None),
            // The first Machine has been deleted by then.
            ("m1xs m2 m3 m4", 5, None),
            ("m1x m2s m3 m4", 5, Some((4, 2))),
        ] {
            assert_eq!(
                of(machines, replicas, false),
                expected,
                "{machines} to {replicas}"
            );
        }
    }

    #[test]
    fn for_what_conditions_tell_the_controller_waits() {
        for (machines, replicas) in [("m1 m2s m3", 1), ("m1 m2s m3", 5), ("m1f m2s m3", 5)] {
            assert_eq!(of(machines, replicas, true), None, "{machines} to {replicas}");
        }
        assert_eq!(of("m1 m2f m3e", 1, false), None);
    }
}
