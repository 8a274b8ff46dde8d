//! The messages about a plan.

use crate::{
    plan::{
        Plan, Stretch,
        effect::Effect,
        selection::{Group, Why},
        simulate::{Choice, Step},
        step::{Action, NoPlan, Purpose},
    },
    quorum::Votes,
};

/// `a, b or c`; with `and` where all are meant.
pub fn listed(names: &[impl AsRef<str>], last: &str) -> String {
    match names {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [first @ .., end] => {
            let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
            format!("{} {last} {}", first.join(", "), end.as_ref())
        }
    }
}

/// As [`listed`]. An etcd member that has not started has no name.
pub fn listed_members<'n>(names: impl Iterator<Item = &'n str>, last: &str) -> String {
    let names = names.map(|name| if name.is_empty() { "(not started)" } else { name });
    listed(&names.collect::<Vec<_>>(), last)
}

pub fn names(step: &Step) -> String {
    let last = if step.choice == Choice::None { "and" } else { "or" };
    listed_members(step.names.iter().map(String::as_str), last)
}

/// The failure domains of a step; blank where it has none.
pub fn failure_domains(step: &Step) -> String {
    let names: Vec<&str> = step
        .failure_domains
        .iter()
        .map(|domain| domain.as_deref().unwrap_or("-"))
        .collect();
    match (step.action, names.as_slice()) {
        (Action::Wait, _) | (_, ["-"]) => String::new(),
        _ => listed(&names, "or"),
    }
}

pub fn why(step: &Step) -> String {
    let choice = match step.choice {
        Choice::None => None,
        Choice::ByEarlier => Some("by earlier choice"),
        Choice::AtRandom => Some("at random"),
    };
    let parts = [
        Some(purpose(step.purpose)),
        step.group.map(group),
        domain(step.why),
        choice,
    ];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    parts.join("; ")
}

const fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Initialize => "the first Machine",
        Purpose::ScaleUp => "scale up",
        Purpose::ScaleDown => "scale down",
        Purpose::Rollout => "rollout",
        Purpose::Remediate => "replace unhealthy",
        Purpose::ComeUp => "until it has joined",
        Purpose::Recover => "until it is healthy",
        Purpose::FinishDeletion => "until it is deleted",
        Purpose::FinishUpdate => "until it is updated in place",
        Purpose::RemoveMember => "until this etcd member is removed",
    }
}

const fn group(group: Group) -> &'static str {
    match group {
        Group::OutdatedAndMarked => "outdated and marked for deletion",
        Group::Marked => "marked for deletion",
        Group::OutdatedAndFailed => "outdated and failed",
        Group::Outdated => "outdated",
        Group::Any => "oldest",
    }
}

const fn domain(why: Why) -> Option<&'static str> {
    match why {
        Why::NoneDeclared | Why::Given => None,
        Why::FewestThatStay => Some("domain has fewest that stay"),
        Why::FewestInAll => Some("domain has fewest"),
        Why::NotDeclared => Some("domain is not declared"),
        Why::MostThatMayGo => Some("domain has most that may go"),
        Why::MostInAll => Some("domain has most"),
    }
}

/// Steps during which no member may fail, a line each; single steps on one.
pub fn stretches(stretches: &[Stretch]) -> Vec<String> {
    let (single, long): (Vec<Stretch>, Vec<Stretch>) = stretches
        .iter()
        .partition(|stretch| stretch.first == stretch.last);
    let mut lines: Vec<String> = long
        .iter()
        .map(|Stretch { first, last }| {
            let from = if *first == 1 {
                String::new()
            } else {
                format!("from step {first} ")
            };
            format!("etcd cannot lose a member {from}until step {last} is done")
        })
        .collect();
    let numbers: Vec<String> = single.iter().map(|stretch| stretch.first.to_string()).collect();
    if !numbers.is_empty() {
        let steps = if numbers.len() == 1 { "step" } else { "steps" };
        lines.push(format!(
            "etcd cannot lose a member during {steps} {}",
            listed(&numbers, "and")
        ));
    }
    lines
}

pub fn no_plan(no_plan: &NoPlan) -> String {
    match no_plan {
        NoPlan::BeingDeleted => "the control plane is being deleted".to_owned(),
        NoPlan::Refused { why } => format!("the admission rules deny it: {}", why.join("; ")),
        NoPlan::NoReplicas => "the desired number of Machines is 0".to_owned(),
        NoPlan::QuorumLost { votes } => format!("etcd has lost quorum: {votes}"),
        NoPlan::LastMachine { machine } => {
            format!("Machine {machine} is the only one: deleting it deletes the cluster's data")
        }
        NoPlan::Endless {
            expiry_days,
            validity_days,
        } => format!(
            "the rollout would never end: Machines are replaced {expiry_days} days before their certificates expire, and \
             new certificates last {validity_days} days"
        ),
        NoPlan::Stuck { names } => {
            format!(
                "the controller cannot continue by itself: see {}",
                listed(names, "and")
            )
        }
    }
}

/// Why a first step is refused that the controller would take.
pub fn at_risk(votes: Votes) -> String {
    format!("the controller cannot see this, and its first step could cost etcd its quorum: {votes}")
}

pub const fn no_plan_hint(no_plan: &NoPlan) -> Option<&'static str> {
    match no_plan {
        NoPlan::QuorumLost { .. } => Some("recover etcd first: the controller cannot"),
        NoPlan::LastMachine { .. } => Some("set maxSurge to 1, or increase replicas"),
        NoPlan::Endless { .. } => Some("lower certificatesExpiryDays"),
        NoPlan::NoReplicas => Some("to delete the cluster, delete its Cluster"),
        NoPlan::BeingDeleted | NoPlan::Refused { .. } | NoPlan::Stuck { .. } => None,
    }
}

pub const fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Rollout => "replaces Machines that differ",
        Effect::Scale => "creates or deletes Machines",
        Effect::FirstMachine => "may replace the first Machine",
        Effect::NextMachine => "applies only to new Machines",
        Effect::InPlace => "is updated in place; no Machine is replaced",
        Effect::WorkloadCluster => "is updated in the workload cluster; no Machine is replaced",
        Effect::Controller => "changes how the controller works; no Machine is replaced",
        Effect::Nothing => "has no effect",
        Effect::Unknown => "unknown effect",
    }
}

pub fn summary(plan: &Plan) -> String {
    match &plan.steps {
        Err(_) => "no plan".to_owned(),
        Ok(steps) if steps.is_empty() => "nothing to do".to_owned(),
        Ok(steps) => {
            let count = |action| steps.iter().filter(|step| step.action == action).count();
            let blocked = if plan.blockers.is_empty() {
                ""
            } else {
                ", blocked now"
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
    use super::{Stretch, listed, stretches};

    #[test]
    fn lists_and_stretches() {
        assert_eq!(listed(&["a"], "or"), "a");
        assert_eq!(listed(&["a", "b", "c"], "or"), "a, b or c");
        let reported = |pairs: &[(usize, usize)]| {
            let pairs = pairs.iter().map(|&(first, last)| Stretch { first, last });
            stretches(&pairs.collect::<Vec<_>>())
        };
        assert_eq!(reported(&[]), Vec::<String>::new());
        assert_eq!(
            reported(&[(1, 2), (4, 5), (7, 7)]),
            [
                "etcd cannot lose a member until step 2 is done",
                "etcd cannot lose a member from step 4 until step 5 is done",
                "etcd cannot lose a member during step 7"
            ]
        );
        assert_eq!(
            reported(&[(1, 1), (3, 3)]),
            ["etcd cannot lose a member during steps 1 and 3"]
        );
    }
}
