//! Describes when etcd tolerates no member failure. The text names events instead of step numbers, because commands
//! that change a control plane do not print the steps of the plan.

use crate::plan::{
    Plan, StepRange, messages,
    simulate::PlanStep,
    step::{Action, Purpose},
};

const ORDINALS: [&str; 9] = [
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
];

/// Returns one line for each period in which etcd tolerates no member failure.
pub fn fragile_periods(plan: &Plan) -> Vec<String> {
    let ranges = plan.fragile_steps();
    if is_each_creation(plan.steps(), &ranges) {
        return vec!["etcd tolerates no member failure while each new Machine joins".to_owned()];
    }
    ranges
        .iter()
        .filter_map(|range| fragile_period(plan.steps(), *range))
        .collect()
}

/// Whether several steps are fragile, and they are exactly the steps that create a Machine.
fn is_each_creation(steps: &[PlanStep], ranges: &[StepRange]) -> bool {
    let creations = (1..)
        .zip(steps)
        .filter(|(_, step)| step.action == Action::Create)
        .map(|(number, _)| StepRange {
            first: number,
            last: number,
            is_open: false,
        });
    ranges.len() > 1 && creations.eq(ranges.iter().copied())
}

fn fragile_period(steps: &[PlanStep], range: StepRange) -> Option<String> {
    let StepRange { first, last, is_open } = range;
    let before = first.checked_sub(1).and_then(|before| event_after(steps, before));
    if is_open {
        let start = before.map_or_else(|| "from now on".to_owned(), |event| format!("once {event}"));
        return Some(format!("etcd tolerates no member failure {start}"));
    }
    let end = event_after(steps, last)?;
    let start = before.map_or_else(String::new, |event| format!("after {event} and "));
    Some(format!("etcd tolerates no member failure {start}until {end}"))
}

/// The event with which a step ends. `None` if the plan has no step with this number. Steps are counted from
/// one.
fn event_after(steps: &[PlanStep], number: usize) -> Option<String> {
    let steps_so_far = steps.get(..number)?;
    let step = steps_so_far.last()?;
    let is_like = |other: &&PlanStep| other.action == step.action;
    let ordinal = match (
        steps.iter().filter(is_like).count(),
        steps_so_far.iter().filter(is_like).count(),
    ) {
        (..=1, _) => String::new(),
        (_, nth) => match nth.checked_sub(1).and_then(|index| ORDINALS.get(index)) {
            Some(word) => format!("{word} "),
            None => format!("{nth}th "),
        },
    };
    Some(match step.action {
        Action::Create => format!("the {ordinal}new Machine has joined"),
        Action::Delete => format!("the {ordinal}Machine has been deleted"),
        Action::Wait => {
            let names = messages::names(step);
            match step.purpose {
                Purpose::Recover => format!("Machine {names} is healthy"),
                Purpose::FinishDeletion => format!("Machine {names} has been deleted"),
                Purpose::FinishUpdate => format!("the in-place update of Machine {names} is complete"),
                Purpose::RemoveMember => format!("the controller has removed etcd member {names}"),
                _ => format!("Machine {names} has joined"),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{fragile_period, fragile_periods};
    use crate::{
        plan::{Desired, Plan, StepRange, plan},
        testing::{
            objects::now,
            plan::{observed, spec, with_replicas},
        },
    };

    /// The plan for a control plane with `machines` Machines, of which `outdated` are outdated.
    fn of(machines: usize, outdated: usize, replicas: usize) -> Plan {
        let mut observed = observed();
        observed.machines.truncate(machines);
        for machine in observed.machines.iter_mut().take(outdated) {
            machine.spec.version = Some("v1.33.0".to_owned());
        }
        let desired = Desired {
            spec: with_replicas(spec(), replicas),
            changes: vec![],
            denials: vec![],
        };
        plan(&observed, &desired, now())
    }

    #[test]
    fn names_the_events_between_which_no_member_may_fail() {
        let cases: &[(usize, usize, usize, &[&str])] = &[
            (3, 0, 3, &[]),
            (
                1,
                0,
                3,
                &["etcd tolerates no member failure until the second new Machine has joined"],
            ),
            (
                3,
                0,
                5,
                &["etcd tolerates no member failure until the first new Machine has joined"],
            ),
            (
                3,
                1,
                3,
                &["etcd tolerates no member failure until the new Machine has joined"],
            ),
            (
                3,
                3,
                3,
                &["etcd tolerates no member failure while each new Machine joins"],
            ),
            (3, 0, 1, &["etcd tolerates no member failure from now on"]),
        ];
        for (machines, outdated, replicas, expected) in cases {
            let plan = of(*machines, *outdated, *replicas);
            assert_eq!(
                fragile_periods(&plan),
                *expected,
                "{machines} Machines, {outdated} outdated, to {replicas}"
            );
        }
    }
    #[test]
    fn a_later_period_begins_with_the_event_before_it() {
        let plan = of(3, 0, 1);
        let second = StepRange {
            first: 2,
            last: 2,
            is_open: false,
        };
        assert_eq!(
            fragile_period(plan.steps(), second).as_deref(),
            Some(
                "etcd tolerates no member failure after the first Machine has been deleted and until the \
                 second Machine has been deleted"
            )
        );
    }
}
