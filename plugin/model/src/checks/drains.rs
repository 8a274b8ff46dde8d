//! Checks whether pods can be evicted from the nodes of Machines that are being deleted.

use jiff::Timestamp;
use kcp_api::{Condition, Machine, Object as _};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{CheckOutcome, CheckResult, Finding, machine_object, one_line},
        machine_grace::{Phase, require_machines},
    },
    snapshot::Snapshot,
    staleness::SLOW_DELETION,
};

pub const CHECKS: &[Check] = &[Check::new(
    "machine-drains-blocked",
    "A pod cannot be evicted from the node of a Machine that is being deleted.",
    check_machine_drains_blocked,
    Responsible::Step(Actor::MachineController),
)
// Cluster API retries a refused eviction every 20 seconds. Even in an ordinary drain, budgets refuse
// evictions for short periods.
.usually_within(SLOW_DELETION)
.effect_of(&[&["machine-deletions-deadlocked"]])];

/// How Cluster API reports a pod that the API server does not evict, in the condition `Deleting` of the Machine
/// (`core/reconcilers/machine/drain/drain.go`).
const REFUSED_EVICTIONS: [&str; 2] = [
    "cannot evict pod as it would violate the pod's disruption budget",
    "failed to evict Pod",
];

/// Texts of refused evictions that succeed later without any action of the user.
const RETRIED_EVICTIONS: [&str; 2] = ["eviction will be retried", "terminating namespace"];

/// The text that stands before the start time of the drain in the condition's message.
const STARTED: &str = "(started at ";

pub fn check_machine_drains_blocked(observed: &Snapshot, now: Timestamp) -> CheckResult {
    require_machines(observed)?;
    let findings = observed.machines.iter().filter_map(|machine| {
        let condition = draining(machine)?;
        let pods: Vec<&str> = condition
            .message
            .lines()
            .filter(|line| REFUSED_EVICTIONS.iter().any(|refused| line.contains(refused)))
            .filter(|line| !RETRIED_EVICTIONS.iter().any(|retried| line.contains(retried)))
            .map(|line| line.trim().trim_start_matches("* "))
            .collect();
        if pods.is_empty() {
            return None;
        }
        let outcome = if Phase::of(observed, machine, now) == Phase::Settled {
            CheckOutcome::Fail
        } else {
            CheckOutcome::Info
        };
        let message = format!("the drain of its node is blocked: {}", one_line(&pods.join("\n")));
        let hint = pods.iter().find_map(|pod| hint(observed, pod));
        Some(
            Finding::new(outcome, machine_object(machine.name()), message)
                .with_since(started(condition).or(condition.last_transition_time))
                .with_optional_hint(hint),
        )
    });
    Ok(findings.collect())
}

/// When the drain began. `None` if the condition does not contain the time.
fn started(condition: &Condition) -> Option<Timestamp> {
    let (_, rest) = condition.message.split_once(STARTED)?;
    let (time, _) = rest.split_once(')')?;
    time.parse().ok()
}

fn hint(observed: &Snapshot, refusal: &str) -> Option<String> {
    let remedy = if refusal.contains("more than one PodDisruptionBudget") {
        "change the PodDisruptionBudgets so that only one of them selects the pod"
    } else if refusal.contains("disruption budget") {
        "run more replicas of the pod, or change its PodDisruptionBudget"
    } else {
        return None;
    };
    let list = observed.kubectl_in_workload("get poddisruptionbudgets -A");
    Some(format!("{remedy}; list the PodDisruptionBudgets: {list}"))
}

fn draining(machine: &Machine) -> Option<&Condition> {
    machine.deletion_timestamp()?;
    let condition = machine.condition("Deleting")?;
    (condition.is_true() && condition.reason == "DrainingNode").then_some(condition)
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::{ConditionStatus::True, metadata::Time};

    use crate::{
        checks::tests::Case,
        snapshot::Snapshot,
        testing::objects::{condition, minutes_ago, set},
    };

    fn drains(observed: &mut Snapshot, minutes: i64, pods: &str) {
        let machine = observed.machine(2);
        machine.metadata.deletion_timestamp = Some(Time(minutes_ago(minutes)));
        let mut deleting = condition(
            "Deleting",
            True,
            &format!("Drain not completed yet (started at 2026-08-21T11:59:00Z):\n{pods}"),
        );
        deleting.reason = "DrainingNode".to_owned();
        set(&mut machine.status.conditions, deleting);
    }

    const BUDGET: &str = "* Pod d/web: cannot evict pod as it would violate the pod's disruption budget. The disruption budget \
        web needs 1 healthy pods and has 1 currently";

    pub(crate) const CASES: &[Case] = &[
        ("machine-drains-blocked", "by_a_budget", |o| drains(o, 1, BUDGET)),
        ("machine-drains-blocked", "by_a_budget_for_long", |o| {
            drains(o, 31, BUDGET);
        }),
        ("machine-drains-blocked", "by_a_webhook", |o| {
            drains(
                o,
                1,
                "* Pod d/db: deletionTimestamp set, but still not removed from the Node\n* Pods d/a, d/b: failed to evict Pod, \
                 admission webhook \"evictions.example.com\" denied the request",
            );
        }),
        ("machine-drains-blocked", "by_two_budgets", |o| {
            drains(
                o,
                1,
                "* Pod d/web: failed to evict Pod, This pod has more than one PodDisruptionBudget, which the eviction \
                 subresource does not support.",
            );
        }),
        ("machine-drains-blocked", "for_a_moment", |o| {
            drains(
                o,
                1,
                "* Pod d/web: failed to evict Pod, eviction timeout of 10s reached, eviction will be retried",
            );
        }),
        ("machine-drains-blocked", "pods_that_terminate", |o| {
            drains(
                o,
                1,
                "* Pod d/web: deletionTimestamp set, but still not removed from the Node",
            );
        }),
    ];
}
