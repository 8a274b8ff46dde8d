//! Describes plans as text.

use crate::{
    plan::{
        Plan, StepRange,
        effect::Effect,
        selection::{FailureDomainReason, Group},
        simulate::{Choice, PlanStep, QuorumRisk},
        step::{Action, NoPlan, Purpose},
    },
    problem::Problem,
    quorum::RefusedChange,
    snapshot::Snapshot,
};

/// Joins names as in `a, b or c`, or as in `a, b and c` if `last` is `and`.
pub fn join_names(names: &[impl AsRef<str>], last: &str) -> String {
    match names {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [first @ .., end] => {
            let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
            format!("{} {last} {}", first.join(", "), end.as_ref())
        }
    }
}

/// Like [`join_names`], for etcd members, which have no name until they have started.
pub fn join_member_names<'n>(names: impl Iterator<Item = &'n str>, last: &str) -> String {
    let names = names.map(|name| if name.is_empty() { "(not started)" } else { name });
    join_names(&names.collect::<Vec<_>>(), last)
}

pub fn names(step: &PlanStep) -> String {
    let last = if step.choice == Choice::None { "and" } else { "or" };
    join_member_names(step.names.iter().map(String::as_str), last)
}

/// The message and the hint of each blocker. Blockers that differ only in the Machine share a message.
pub fn describe(blockers: &[Problem], namespace: &str, name: &str) -> Vec<(String, Option<String>)> {
    let mut described: Vec<(String, Option<String>)> = Vec::new();
    let mut seen: Vec<(String, String)> = Vec::new();
    for blocker in blockers {
        let hint = blocker.hint(namespace, name);
        let Some(cause) = blocker.cause_on_machine() else {
            described.push((blocker.message(), hint));
            continue;
        };
        if seen.contains(&cause) {
            continue;
        }
        let alike: Vec<&str> = blockers
            .iter()
            .filter(|other| other.cause_on_machine().as_ref() == Some(&cause))
            .filter_map(Problem::machine)
            .collect();
        let message = match alike.as_slice() {
            [_, _, ..] => {
                let (what, rest) = &cause;
                format!("{what} of Machines {} {rest}", join_names(&alike, "and"))
            }
            _ => blocker.message(),
        };
        described.push((message, hint));
        seen.push(cause);
    }
    described
}

/// How many Machines are up to date, of the desired number. During a rollout, more Machines may exist.
pub fn up_to_date_count(count: i64, desired: i64) -> String {
    format!("{count} of {desired} Machines up to date")
}

/// Names what the controller does in a step.
pub const fn action(step: &PlanStep) -> &'static str {
    match step.action {
        Action::Create => "create",
        Action::Delete if step.may_update_in_place => "update in place or replace",
        Action::Delete => "delete",
        Action::Wait => "wait",
    }
}

/// Returns a note about the steps that may update a Machine in place. `None` if the plan has no such step.
pub fn in_place_note(plan: &Plan) -> Option<String> {
    let mut steps = (1..).zip(plan.steps());
    let (number, _) = steps.find(|(_, step)| step.may_update_in_place)?;
    let handlers = join_names(&plan.in_place_handlers, "and");
    Some(if plan.in_place_handlers.len() > 1 {
        format!(
            "extensions {handlers} are registered for in-place updates: if feature gate InPlaceUpdates is on, the \
             controller fails at step {number}, because it accepts only one extension"
        )
    } else {
        format!(
            "extension {handlers} is registered for in-place updates: if the controller's feature gate InPlaceUpdates \
             is on, and the extension can apply the change, the controller updates the Machine in place instead of \
             replacing it; the steps after step {number} assume that the controller replaces the Machine"
        )
    })
}

/// What a plan assumes if the extensions could not be read.
pub fn unread_extensions(observed: &Snapshot) -> Option<String> {
    let failure = observed.in_place_handlers.failure()?;
    Some(format!(
        "could not list ExtensionConfigs: {}; the plan assumes that no extension updates Machines in place",
        failure.message
    ))
}

/// Names the failure domains of a step. Empty if the step has none.
pub fn failure_domains(step: &PlanStep) -> String {
    let names: Vec<&str> = step
        .failure_domains
        .iter()
        .map(|domain| domain.as_deref().unwrap_or("-"))
        .collect();
    match (step.action, names.as_slice()) {
        (Action::Wait, _) | (_, ["-"]) => String::new(),
        _ => join_names(&names, "or"),
    }
}

pub fn why(step: &PlanStep) -> String {
    let choice = match step.choice {
        Choice::None => None,
        Choice::ByEarlier => Some("depends on an earlier random choice"),
        Choice::AtRandom => Some("chosen at random"),
    };
    let undetected = step.is_undetected.then_some(
        "the controller itself does not wait, because the conditions do not show this problem now",
    );
    let endless = step.refusal.as_ref().map(|_| "this step never ends");
    let parts = [
        step.group.map(group),
        domain_reason(step.why),
        choice,
        undetected,
        endless,
    ];
    let purpose = match step.waits_until {
        Some(until) => format!("until {until}: {}", purpose(step.purpose)),
        None => purpose(step.purpose).to_owned(),
    };
    let parts = parts.into_iter().flatten().map(str::to_owned);
    let parts: Vec<String> = std::iter::once(purpose).chain(parts).collect();
    parts.join("; ")
}

const fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Initialize => "the first Machine",
        Purpose::ScaleUp => "scale up",
        Purpose::ScaleDown => "scale down",
        Purpose::Rollout => "rollout",
        Purpose::Remediate => "remediation",
        Purpose::ComeUp => "until the Machine joins",
        Purpose::Recover => "until the Machine is healthy",
        Purpose::FinishDeletion => "until the Machine is deleted",
        Purpose::FinishUpdate => "until the in-place update completes",
        Purpose::RetryPeriod => {
            "the controller remediates the Machine again at the first reconciliation after this time"
        }
        Purpose::RemoveMember => "until the controller removes this etcd member",
    }
}

const fn group(group: Group) -> &'static str {
    match group {
        Group::OutdatedAndMarked => "outdated and marked for deletion",
        Group::Marked => "marked for deletion",
        Group::OutdatedAndFailed => "outdated and failed",
        Group::Outdated => "outdated",
        Group::Any => "oldest Machine",
    }
}

const fn domain_reason(why: FailureDomainReason) -> Option<&'static str> {
    match why {
        FailureDomainReason::NoneDeclared | FailureDomainReason::Given => None,
        FailureDomainReason::FewestThatStay => Some(
            "its failure domain has the fewest Machines that are \
            neither outdated nor being deleted",
        ),
        FailureDomainReason::FewestInAll => Some("its failure domain has the fewest Machines"),
        FailureDomainReason::NotDeclared => Some("its failure domain is not declared in the Cluster"),
        FailureDomainReason::MostDeletable => {
            Some("its failure domain has the most Machines that may be deleted")
        }
        FailureDomainReason::MostInAll => Some("its failure domain has the most Machines"),
    }
}

/// Returns one line for each range of steps during which no etcd member may fail, and one line for all single steps.
pub fn fragile_steps(ranges: &[StepRange]) -> Vec<String> {
    let (single, long): (Vec<StepRange>, Vec<StepRange>) = ranges
        .iter()
        .partition(|range| range.first == range.last && !range.is_open);
    let mut lines: Vec<String> = long
        .iter()
        .map(|StepRange { first, last, is_open }| {
            if *is_open {
                return format!("etcd tolerates no member failure from step {first} on");
            }
            let from = if *first == 1 {
                String::new()
            } else {
                format!("from step {first} ")
            };
            format!("etcd tolerates no member failure {from}until step {last} is done")
        })
        .collect();
    let numbers: Vec<String> = single.iter().map(|range| range.first.to_string()).collect();
    if !numbers.is_empty() {
        let steps = if numbers.len() == 1 { "step" } else { "steps" };
        lines.push(format!(
            "etcd tolerates no member failure during {steps} {}",
            join_names(&numbers, "and")
        ));
    }
    lines
}

pub fn no_plan(no_plan: &NoPlan) -> String {
    match no_plan {
        NoPlan::BeingDeleted => "the control plane is being deleted".to_owned(),
        NoPlan::Refused { why } => format!("the admission rules deny the change: {}", why.join("; ")),
        NoPlan::NoReplicas => "the desired number of Machines is 0".to_owned(),
        NoPlan::TooManyReplicas { replicas, max } => {
            format!("the desired number of Machines is {replicas}, but a plan covers at most {max}")
        }
        // If the member of the only Machine does not respond, it is unknown whether etcd has members without a Machine.
        NoPlan::QuorumLost { votes } if votes.voters == 1 => {
            "etcd has lost quorum: no known member is healthy".to_owned()
        }
        NoPlan::QuorumLost { votes } => format!("etcd has lost quorum: {votes}"),
        NoPlan::AllHeld { machines } => format!(
            "all control plane Machines are being deleted: {}; Cluster API holds each deletion, because no other Machine \
             would remain, and creates no Machine until a deletion has finished",
            join_names(machines, "and")
        ),
        NoPlan::HoldEachOther { machines } => format!(
            "Cluster API finishes none of the deletions of Machines {}: it counts these Machines and their etcd members as \
             unhealthy, and too few others are healthy",
            join_names(machines, "and")
        ),
        NoPlan::LastMachine { machine } => {
            format!(
                "Machine {machine} is the only Machine: deleting it ends the cluster, and deletes the data of a stacked etcd"
            )
        }
        NoPlan::OnlyLeader { machine } => format!(
            "the rollout never ends: maxSurge is 0, and Cluster API does not delete Machine {machine}, because no other Machine \
             can take over etcd's leadership"
        ),
        NoPlan::Endless {
            expiry_days,
            validity_days,
        } => format!(
            "the rollout would never end: the controller replaces Machines {expiry_days} days before their \
             certificates expire, but new certificates are valid for only {validity_days} days"
        ),
        NoPlan::Stuck { names } => {
            format!(
                "the controller cannot continue until these Machines or etcd members are healthy: {}",
                join_member_names(names.iter().map(String::as_str), "and")
            )
        }
    }
}

/// Says why the plugin refuses a change although the controller would take its first step.
pub fn quorum_risk(QuorumRisk { votes, refusal }: &QuorumRisk) -> String {
    let begins = "the conditions do not show this problem now";
    match refusal {
        Some(refusal) => {
            let begins = match refusal.change {
                RefusedChange::Join => {
                    format!("{begins}, so the controller would create a Machine that never joins")
                }
                RefusedChange::Removal => {
                    format!("{begins}, so the controller would begin a deletion that never ends")
                }
            };
            format!("{begins}: {refusal}")
        }
        None => format!("{begins}, so the controller's first step could make etcd lose quorum: {votes}"),
    }
}

/// What to do if every Machine of the control plane is being deleted.
pub fn all_held_hint(namespace: &str, name: &str) -> String {
    format!(
        "Kubernetes cannot undo a deletion, and etcd's data is lost with the last Machine: save a snapshot, with kubectl kcp etcd \
         snapshot {name} -n {namespace} --output-file FILE; then create a new Cluster; until then, keep the pre-terminate hooks of \
         the Machines"
    )
}

pub fn no_plan_hint(no_plan: &NoPlan, namespace: &str, name: &str) -> Option<String> {
    let hint = match no_plan {
        NoPlan::QuorumLost { .. } => {
            return Some(format!(
                "recover etcd yourself, because the controller cannot; to see how: kubectl kcp status {name} -n {namespace}"
            ));
        }
        NoPlan::AllHeld { .. } => return Some(all_held_hint(namespace, name)),
        NoPlan::HoldEachOther { .. } => {
            return Some(format!(
                "see how to end the deadlock: kubectl kcp status {name} -n {namespace}"
            ));
        }
        NoPlan::LastMachine { .. } => {
            return Some(format!(
                "with maxSurge 1, a rollout creates a Machine before it deletes one; to save a snapshot: kubectl kcp etcd snapshot \
                 {name} -n {namespace} --output-file FILE"
            ));
        }
        NoPlan::OnlyLeader { .. } => "set maxSurge to 1",
        NoPlan::Endless { .. } => "set certificatesExpiryDays below the validity of new certificates",
        NoPlan::TooManyReplicas { .. } => "set spec.replicas to 3 or 5",
        NoPlan::NoReplicas => "to delete the workload cluster, delete its Cluster object",
        NoPlan::BeingDeleted | NoPlan::Refused { .. } | NoPlan::Stuck { .. } => return None,
    };
    Some(hint.to_owned())
}

pub const fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Rollout => "replaces all outdated Machines",
        Effect::Scale => "creates or deletes Machines",
        Effect::FirstMachine => "may replace the first Machine",
        Effect::NextMachine => "applies only to new Machines",
        Effect::InPlace => "updates Machines in place; no Machine is replaced",
        Effect::WorkloadCluster => "updates the workload cluster; no Machine is replaced",
        Effect::Controller => "changes the controller's behavior; no Machine is replaced",
        Effect::Nothing => "has no effect",
        Effect::Unknown => "unknown effect",
    }
}

pub fn summary(plan: &Plan) -> String {
    match &plan.steps {
        Err(_) => "no plan".to_owned(),
        Ok(steps) if steps.is_empty() && plan.problems.is_empty() => "nothing to do".to_owned(),
        Ok(steps) if steps.is_empty() => "no step is planned, but the control plane has problems".to_owned(),
        Ok(steps) => {
            let count = |action| steps.iter().filter(|step| step.action == action).count();
            let blocked = match plan.endless_step() {
                _ if plan.is_blocked() => ", blocked now".to_owned(),
                Some((number, _)) => format!("; step {number} never ends"),
                None => String::new(),
            };
            let plural = if steps.len() == 1 { "" } else { "s" };
            format!(
                "{} step{plural}: {} to create, {} to delete{blocked}",
                steps.len(),
                count(Action::Create),
                count(Action::Delete)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Problem, StepRange, describe, fragile_steps, join_names};

    #[test]
    fn joins_names_and_step_ranges() {
        assert_eq!(join_names(&["a"], "or"), "a");
        assert_eq!(join_names(&["a", "b", "c"], "or"), "a, b or c");
        let reported = |pairs: &[(usize, usize)]| {
            let pairs = pairs.iter().map(|&(first, last)| StepRange {
                first,
                last,
                is_open: last == 9,
            });
            fragile_steps(&pairs.collect::<Vec<_>>())
        };
        assert_eq!(reported(&[]), Vec::<String>::new());
        assert_eq!(
            reported(&[(1, 2), (4, 5), (7, 7)]),
            [
                "etcd tolerates no member failure until step 2 is done",
                "etcd tolerates no member failure from step 4 until step 5 is done",
                "etcd tolerates no member failure during step 7"
            ]
        );
        assert_eq!(
            reported(&[(1, 9)]),
            ["etcd tolerates no member failure from step 1 on"]
        );
        assert_eq!(
            reported(&[(1, 1), (3, 3)]),
            ["etcd tolerates no member failure during steps 1 and 3"]
        );
    }

    #[test]
    fn machines_with_the_same_problem_share_a_message() {
        let unhealthy = |machine: &str, message: &str| Problem::Condition {
            machine: machine.to_owned(),
            condition: "EtcdPodHealthy",
            status: "False",
            message: Some(message.to_owned()),
        };
        let silent = |machine: &str, why: &str| Problem::Silent {
            member: format!("node-{machine}"),
            machine: machine.to_owned(),
            why: why.to_owned(),
        };
        let blockers = [
            unhealthy("m1", "crashed"),
            silent("m1", "does not respond: gone"),
            unhealthy("m2", "crashed"),
            unhealthy("m3", "not scheduled"),
            silent("m3", "does not respond: gone"),
            Problem::CertificatesNotAvailable,
        ];
        let described = describe(&blockers, "d", "c1-cp");
        let messages: Vec<&str> = described.iter().map(|(message, _)| message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "EtcdPodHealthy of Machines m1 and m2 is False: crashed",
                "the etcd member of Machines m1 and m3 does not respond: gone",
                "EtcdPodHealthy of Machine m3 is False: not scheduled",
                "no Machine can join: condition CertificatesAvailable is not True",
            ]
        );
        let hints: Vec<bool> = described.iter().map(|(_, hint)| hint.is_some()).collect();
        assert_eq!(hints, [false, true, false, true]);
    }
}
