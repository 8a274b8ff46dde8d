//! Decides why nothing happens on a control plane: who acts next, because of what, and since when.
//!
//! The causes are findings of the checks and blockers of the plan. This module only ranks them: a cause stands before its
//! effects, and a problem before the steps of a change.

use std::time::Duration;

use jiff::Timestamp;
use kcp_api::{Machine, Object as _};
use serde::Serialize;

use crate::{
    checks::{
        Check,
        actor::Actor,
        find,
        finding::{CheckOutcome, Finding, machine_object},
        machines::machine_of,
    },
    inspection::Inspection,
    plan::{Desired, Plan, messages, plan, step::Action},
    problem::Problem,
    snapshot::Snapshot,
    staleness::age,
};

/// Whether a person must act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "WhyState"))]
#[serde(rename_all = "camelCase")]
pub enum WhyState {
    /// No action is needed now.
    NothingToDo,
    /// A controller or another program acts, and has not taken longer than usual.
    Working,
    /// No program solves the problem, or the program that should solve it makes no progress. So a person must
    /// act.
    PersonNeeded,
    /// Something that the answer depends on could not be read, or no object records it.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub state: WhyState,
    /// Who acts next. `None` if no action is needed, or if the state is unknown.
    pub actor: Option<Actor>,
    /// `None` if no check found a problem or a change.
    pub cause: Option<Cause>,
    /// What the actor does next, on one line. `None` if the cause says it.
    pub next_action: Option<String>,
    /// The effects of the cause, and other problems and changes.
    pub other_causes: Vec<Cause>,
    /// The time of a rollout that is planned for later.
    pub planned_rollout_time: Option<Timestamp>,
}

impl Explanation {
    /// Who acts next, as the beginning of a sentence. Only for the states in which somebody acts.
    pub fn who_acts(&self) -> String {
        let actor = self.actor.unwrap_or(Actor::ControlPlaneController);
        match (self.state, actor) {
            (WhyState::PersonNeeded, Actor::Person) => "A person must act".to_owned(),
            (WhyState::PersonNeeded, Actor::Admission) => {
                "Admission denies the controller's writes, so a person must act".to_owned()
            }
            (WhyState::PersonNeeded, actor) => {
                format!("{} makes no progress, so a person must act", actor.name())
            }
            _ => format!("{} acts next", actor.name()),
        }
    }
}

/// A finding of a check, or a blocker of the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The id of the check.
    pub check: &'static str,
    pub outcome: CheckOutcome,
    /// The objects that the cause is about, as `Kind/name`.
    pub objects: Vec<String>,
    pub message: String,
    pub since: Option<Timestamp>,
    /// How long the actor usually takes. `None` if there is no usual time.
    pub usual_time: Option<Duration>,
    pub hint: Option<String>,
}

/// The checks whose infos describe a change as a whole. If the first cause is such an info, `why` names the
/// blocker of the plan's next step instead.
const WHOLE_CHANGES: [&str; 2] = ["machines-outdated", "replicas-differ"];

/// The check that reports the deletion of the control plane.
const DELETION: &str = "deleting";

/// The check that reports conditions of Machines that are outdated, and so do not show when a problem began.
const OUTDATED_CONDITIONS: &str = "machine-conditions-outdated";

/// The Machine conditions that show when a problem began, if the check that reports the problem finds no
/// time.
const DATING_CONDITIONS: [&str; 3] = ["EtcdMemberHealthy", "EtcdPodHealthy", "Ready"];

/// Explains why nothing happens on a control plane, from the results of its checks.
pub fn explain(observed: &Snapshot, inspection: &Inspection, now: Timestamp) -> Explanation {
    let context = Context { observed, now };
    let candidates = candidates(inspection);
    let plan = plan(observed, &Desired::current(observed), now);
    let first = first_cause(&candidates, observed);
    let mut also = context.others(&candidates, first);
    let mut explanation = match (context.blocked_step(first, &plan, &candidates), first) {
        (Some(blocked), first) => {
            also.retain(|other| blocked.cause.as_ref() != Some(other));
            also.splice(0..0, first.map(|first| context.cause(*first)));
            blocked
        }
        (None, Some(first)) => context.explanation(first, &candidates, &plan),
        (None, None) => context.without_cause(),
    };
    if let Some(cause) = &mut explanation.cause
        && cause.since.is_none()
        && cause.outcome > CheckOutcome::Info
    {
        cause.since = since_effects(cause, &also);
    }
    explanation.other_causes = also;
    explanation.planned_rollout_time = plan.planned_rollout_time;
    explanation
}

/// Explains what the checks found about some objects, such as a Machine and its Node. Nothing is planned for them.
pub fn explain_objects(
    observed: &Snapshot,
    inspection: &Inspection,
    objects: &[String],
    now: Timestamp,
) -> Explanation {
    let context = Context { observed, now };
    let mut candidates = candidates(inspection);
    candidates.retain(|candidate| {
        candidate
            .finding
            .objects
            .iter()
            .any(|object| objects.contains(object))
    });
    let Some(first) = first_cause(&candidates, observed) else {
        return Explanation::NOTHING;
    };
    let plan = plan(observed, &Desired::current(observed), now);
    Explanation {
        other_causes: context.others(&candidates, Some(first)),
        ..context.explanation(first, &candidates, &plan)
    }
}

/// When the effects of a cause on the same Machine began. Used if no object has a time for the cause itself.
fn since_effects(cause: &Cause, also: &[Cause]) -> Option<Timestamp> {
    let is_same = |object: &String| object.starts_with("Machine/") && cause.objects.contains(object);
    let effects = also
        .iter()
        .filter(|other| other.outcome > CheckOutcome::Info && other.objects.iter().any(is_same));
    effects.filter_map(|effect| effect.since).min()
}

#[derive(Clone, Copy)]
struct Candidate<'i> {
    check: &'static Check,
    finding: &'i Finding,
}

impl Candidate<'_> {
    fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self.finding, other.finding)
    }

    /// Whether `other` reports the cause of this finding. An info is an effect even if it is about other
    /// objects, because it accompanies every step of the controllers.
    fn is_effect_of(&self, other: &Candidate<'_>, whole: &str) -> bool {
        let is_about_whole = |finding: &Finding| finding.objects.iter().any(|object| object == whole);
        // The finding about a repair is not the cause of the problem.
        let is_repair = other.check.takes_over && other.finding.outcome == CheckOutcome::Info;
        self.check.causes().any(|id| id == other.check.id)
            && (!is_repair || self.finding.outcome == CheckOutcome::Info)
            && (self.finding.outcome == CheckOutcome::Info
                || is_about_whole(self.finding)
                || is_about_whole(other.finding)
                || other
                    .finding
                    .objects
                    .iter()
                    .any(|object| self.finding.objects.contains(object)))
    }
}

/// The findings that may be the cause, in the order of `status`, except that summaries and warnings come
/// last. The infos of checks that find faults are left out, because they only accompany a change.
fn candidates(inspection: &Inspection) -> Vec<Candidate<'_>> {
    let findings = inspection.findings().into_iter();
    let mut candidates: Vec<Candidate<'_>> = findings
        .filter_map(|(checked, finding)| {
            let check = find(checked.id)?;
            let is_relevant = finding.outcome > CheckOutcome::Info || check.responsible.is_step();
            (is_relevant && finding.outcome >= CheckOutcome::Info).then_some(Candidate { check, finding })
        })
        .collect();
    candidates.sort_by_key(|candidate| {
        (
            candidate.finding.outcome == CheckOutcome::Warn,
            candidate.check.is_summary,
        )
    });
    candidates
}

/// The first candidate that is not the effect of another one. A warning does not count as a cause.
fn first_cause<'c, 'i>(candidates: &'c [Candidate<'i>], observed: &Snapshot) -> Option<&'c Candidate<'i>> {
    let whole = observed.object_name();
    let is_effect = |candidate: &Candidate<'_>| {
        let mut causes = candidates
            .iter()
            .filter(|cause| cause.finding.outcome != CheckOutcome::Warn);
        causes.any(|cause| candidate.is_effect_of(cause, &whole))
    };
    let is_cause = |candidate: &&Candidate<'_>| !is_effect(candidate);
    // The deletion of a control plane removes its Machines and etcd members on purpose. Only something that
    // delays the deletion is a cause.
    let deletion = candidates.iter().find(|candidate| candidate.check.id == DELETION);
    if let Some(deletion) = deletion {
        let delays = |candidate: &&Candidate<'_>| deletion.is_effect_of(candidate, &whole);
        let mut causes = candidates.iter().filter(delays).filter(is_cause);
        return causes.next().or(Some(deletion));
    }
    candidates.iter().find(is_cause).or_else(|| candidates.first())
}

#[derive(Clone, Copy)]
struct Context<'o> {
    observed: &'o Snapshot,
    now: Timestamp,
}

impl Context<'_> {
    /// The causes besides the first one.
    fn others(self, candidates: &[Candidate<'_>], first: Option<&Candidate<'_>>) -> Vec<Cause> {
        let others = candidates
            .iter()
            .filter(|candidate| !first.is_some_and(|first| candidate.is_same(first)));
        others.map(|candidate| self.cause(*candidate)).collect()
    }

    fn cause(self, Candidate { check, finding }: Candidate<'_>) -> Cause {
        Cause {
            check: check.id,
            outcome: finding.outcome,
            objects: finding.objects.clone(),
            message: finding.message.clone(),
            since: finding.since.or_else(|| {
                (check.id != OUTDATED_CONDITIONS)
                    .then(|| self.since_condition(finding))
                    .flatten()
            }),
            usual_time: check.usual_time.map(|usual| usual.at_most(self.observed)),
            hint: finding.hint.clone(),
        }
    }

    /// The time since which a Machine's conditions report the problem. Used if no object of the workload cluster has a time for the
    /// problem.
    fn since_condition(self, finding: &Finding) -> Option<Timestamp> {
        if finding.outcome == CheckOutcome::Info {
            return None;
        }
        let machine = machine_of(self.observed, finding)?;
        DATING_CONDITIONS.iter().find_map(|kind| {
            let condition = machine.condition(kind)?;
            (!condition.is_true())
                .then_some(condition.last_transition_time)
                .flatten()
        })
    }

    fn explanation(self, first: &Candidate<'_>, candidates: &[Candidate<'_>], plan: &Plan) -> Explanation {
        let cause = self.cause(*first);
        let actor = first
            .check
            .responsible
            .actor(self.observed, first.finding, self.now);
        let state = self.state(&cause, first.check, actor);
        if state == WhyState::PersonNeeded
            && let Some((actor, next)) = self.repair(first, actor, candidates)
        {
            return Explanation {
                state: WhyState::Working,
                actor: Some(actor),
                next_action: Some(next),
                ..Explanation::of(state, actor, cause)
            };
        }
        let next = (state == WhyState::Working && WHOLE_CHANGES.contains(&first.check.id))
            .then(|| next_step(plan))
            .flatten();
        Explanation {
            next_action: next,
            ..Explanation::of(state, actor, cause)
        }
    }

    /// The explanation if no check found anything. After a change or a repair, the controller counts the Machines again only
    /// when it reconciles.
    fn without_cause(self) -> Explanation {
        let control_plane = &self.observed.control_plane;
        let status = &control_plane.status;
        let counts = [status.replicas, status.ready_replicas, status.up_to_date_replicas];
        if counts
            .iter()
            .all(|count| *count == control_plane.desired_replicas())
        {
            return Explanation::NOTHING;
        }
        Explanation {
            state: WhyState::Working,
            actor: Some(Actor::ControlPlaneController),
            ..Explanation::NOTHING
        }
    }

    /// Returns who replaces the failed Machine, and how. `None` if the replacement makes no progress.
    fn repair(
        self,
        first: &Candidate<'_>,
        actor: Actor,
        candidates: &[Candidate<'_>],
    ) -> Option<(Actor, String)> {
        // While a blocking check fails, a replacement makes no progress either. A check of steps that names a person as the actor
        // has already taken the replacement into account.
        let needs_person = first.check.responsible.is_step() && actor == Actor::Person;
        if first.check.is_blocking || needs_person {
            return None;
        }
        let machine = machine_object(machine_of(self.observed, first.finding)?.name());
        let repair = candidates.iter().find(|other| {
            other.check.takes_over
                && other.finding.outcome == CheckOutcome::Info
                && other.finding.objects.contains(&machine)
        })?;
        let actor = repair
            .check
            .responsible
            .actor(self.observed, repair.finding, self.now);
        let state = self.state(&self.cause(*repair), repair.check, actor);
        (state == WhyState::Working).then(|| (actor, repair.finding.message.clone()))
    }

    /// Explains the first blocker of the next step. `None` if the first cause is more specific than "a change
    /// is in progress". The blocker may have no finding: for example, no check reports a Machine whose
    /// deletion has just begun.
    fn blocked_step(
        self,
        first: Option<&Candidate<'_>>,
        plan: &Plan,
        candidates: &[Candidate<'_>],
    ) -> Option<Explanation> {
        let says_more = |first: &Candidate<'_>| {
            first.finding.outcome != CheckOutcome::Warn && !WHOLE_CHANGES.contains(&first.check.id)
        };
        if first.is_some_and(says_more) {
            return None;
        }
        let blocker = plan.blockers.first()?;
        let check = find(blocker.id())?;
        let finding = self.finding(blocker);
        let same = candidates.iter().find(|candidate| {
            candidate.check.id == check.id
                && candidate
                    .finding
                    .objects
                    .iter()
                    .any(|object| finding.objects.contains(object))
        });
        let finding = same.map_or(finding, |candidate| candidate.finding.clone());
        let candidate = Candidate {
            check,
            finding: &finding,
        };
        let cause = self.cause(candidate);
        // Until a check reports a fault, the controller only waits for the blocker to clear.
        let is_fault = finding.outcome > CheckOutcome::Info;
        let actor = if check.responsible.is_step() || is_fault {
            check.responsible.actor(self.observed, &finding, self.now)
        } else {
            Actor::ControlPlaneController
        };
        let state = self.state(&cause, check, actor);
        Some(Explanation::of(state, actor, cause))
    }

    fn finding(self, blocker: &Problem) -> Finding {
        let control_plane = &self.observed.control_plane;
        let object = blocker
            .machine()
            .map_or_else(|| self.observed.object_name(), machine_object);
        let machine = blocker.machine();
        let mut machines = self.observed.machines.iter();
        let machine = machines.find(|other| machine == Some(other.name()));
        Finding::info(object, blocker.message())
            .with_since(machine.and_then(Machine::deletion_timestamp))
            .with_optional_hint(blocker.hint(control_plane.namespace(), control_plane.name()))
    }

    fn state(self, cause: &Cause, check: &Check, actor: Actor) -> WhyState {
        let timed = cause.since.zip(cause.usual_time);
        let is_late = timed.is_some_and(|(since, usual)| age(since, self.now) > usual);
        let may_proceed = !matches!(actor, Actor::Person | Actor::Admission) && !is_late;
        match cause.outcome {
            CheckOutcome::Pass | CheckOutcome::Skipped | CheckOutcome::Warn => WhyState::NothingToDo,
            CheckOutcome::Unknown if check.makes_why_unknown => WhyState::Unknown,
            // Whether the actor takes longer than usual depends on a time that no object records.
            CheckOutcome::Unknown if may_proceed && check.usual_time.is_some() && timed.is_none() => {
                WhyState::Unknown
            }
            CheckOutcome::Info | CheckOutcome::Unknown if may_proceed => WhyState::Working,
            // A step that is a failure in `status`, such as the deletion of the control plane, has a usual time.
            CheckOutcome::Fail if may_proceed && check.responsible.is_step() && timed.is_some() => {
                WhyState::Working
            }
            CheckOutcome::Info | CheckOutcome::Unknown | CheckOutcome::Fail => WhyState::PersonNeeded,
        }
    }
}

impl Explanation {
    /// Whether nobody needs to act. There may still be a warning.
    pub fn is_well(&self) -> bool {
        self.state == WhyState::NothingToDo
    }

    pub const NOTHING: Self = Self {
        state: WhyState::NothingToDo,
        actor: None,
        cause: None,
        next_action: None,
        other_causes: Vec::new(),
        planned_rollout_time: None,
    };

    const fn of(state: WhyState, actor: Actor, cause: Cause) -> Self {
        Self {
            actor: match state {
                WhyState::NothingToDo | WhyState::Unknown => None,
                WhyState::Working | WhyState::PersonNeeded => Some(actor),
            },
            state,
            cause: Some(cause),
            next_action: None,
            other_causes: Vec::new(),
            planned_rollout_time: None,
        }
    }
}

/// The next step of the plan, such as `create a Machine: scale up`.
fn next_step(plan: &Plan) -> Option<String> {
    let step = plan.steps().first()?;
    let machine = match step.action {
        Action::Create => "a Machine".to_owned(),
        Action::Delete => format!("Machine {}", messages::names(step)),
        Action::Wait => return None,
    };
    let why = messages::why(step);
    let purpose = why.split(';').next().unwrap_or_default();
    Some(format!("{} {machine}: {purpose}", messages::action(step)))
}

#[cfg(test)]
mod tests;
