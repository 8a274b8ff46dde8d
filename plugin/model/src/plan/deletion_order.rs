//! Which Machine is deleted next.
//!
//! As `selectMachineForInPlaceUpdateOrScaleDown` of Cluster API: the oldest Machine of the fullest failure domain of the
//! first group that has a Machine.

use serde::Serialize;

use crate::plan::{
    failure_domain::{self, Why},
    state::{Deletion, Replica},
};

/// Machines of one group are deleted before those of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Group {
    /// Marked: annotated with `cluster.x-k8s.io/delete-machine`.
    OutdatedAndMarked,
    Marked,
    /// Failed: a component or its etcd member is known to be unhealthy.
    OutdatedAndFailed,
    Outdated,
    Any,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// More than one if the controller chooses at random.
    pub machines: Vec<String>,
    pub group: Group,
    pub why: Why,
}

type IsOf = fn(&Replica) -> bool;

const GROUPS: &[(Group, IsOf)] = &[
    (Group::OutdatedAndMarked, |replica| {
        replica.is_outdated && replica.deletion == Deletion::Marked
    }),
    (Group::Marked, |replica| replica.deletion == Deletion::Marked),
    (Group::OutdatedAndFailed, |replica| {
        replica.is_outdated && replica.has_failed_component()
    }),
    (Group::Outdated, |replica| replica.is_outdated),
    (Group::Any, |_| true),
];

/// None if there is no Machine. Machines that are being deleted count, too: the controller waits for them first.
pub fn next_to_delete(declared: &[String], replicas: &[Replica]) -> Option<Next> {
    let (group, may_go) = GROUPS.iter().find_map(|(group, is_of)| {
        let may_go: Vec<&Replica> = replicas.iter().filter(|replica| is_of(replica)).collect();
        (!may_go.is_empty()).then_some((*group, may_go))
    })?;
    let choice = failure_domain::next_to_empty(declared, &may_go, replicas)?;
    let machines = choice
        .domains
        .iter()
        .filter_map(|domain| {
            let inside = may_go.iter().filter(|replica| replica.failure_domain == *domain);
            inside
                .min_by(|a, b| a.age_order(b))
                .map(|replica| replica.name.clone())
        })
        .collect();
    Some(Next {
        machines,
        group,
        why: choice.why,
    })
}

#[cfg(test)]
mod tests {
    use super::{Group, next_to_delete};
    use crate::{
        plan::failure_domain::Why,
        testing::plan::{declared, replicas},
    };

    #[test]
    fn the_first_group_that_has_a_machine_gives_its_oldest() {
        type Case = (&'static str, &'static str, &'static [&'static str], Group, Why);
        // Older Machines stand first; `!` outdated, `d` marked, `f` a component failed, `u` unknown of one.
        let cases: &[Case] = &[
            (
                "a b",
                "m1@a! m2@b!d m3@bd",
                &["m2"],
                Group::OutdatedAndMarked,
                Why::MostThatMayGo,
            ),
            (
                "a b",
                "m1@a! m2@b! m3@bd",
                &["m3"],
                Group::Marked,
                Why::MostThatMayGo,
            ),
            (
                "a b",
                "m1@a!f m2@b! m3@bd",
                &["m3"],
                Group::Marked,
                Why::MostThatMayGo,
            ),
            (
                "a b",
                "m1@a! m2@b! m3@b!f",
                &["m3"],
                Group::OutdatedAndFailed,
                Why::MostThatMayGo,
            ),
            // Unknown is not failed, and up to date is not outdated.
            (
                "a b",
                "m1@a! m2@b! m3@b!u m4@af",
                &["m2"],
                Group::Outdated,
                Why::MostThatMayGo,
            ),
            (
                "a b",
                "m1@a! m2@b! m3@b",
                &["m2"],
                Group::Outdated,
                Why::MostInAll,
            ),
            ("a b", "m1@a m2@b m3@b", &["m2"], Group::Any, Why::MostThatMayGo),
            ("a b", "m1@a m2@b m3@bf", &["m2"], Group::Any, Why::MostThatMayGo),
            (
                "a b c",
                "m1@a m2@b m3@c",
                &["m1", "m2", "m3"],
                Group::Any,
                Why::MostThatMayGo,
            ),
            (
                "a b c",
                "m1@a m2@b m3@c m4@a m5@b",
                &["m1", "m2"],
                Group::Any,
                Why::MostThatMayGo,
            ),
            ("a", "m1@a m2@z m3@z", &["m2"], Group::Any, Why::NotDeclared),
            ("a", "m1@a m2 m3@z", &["m2"], Group::Any, Why::NotDeclared),
            ("", "m1 m2 m3", &["m1"], Group::Any, Why::NoneDeclared),
            ("", "m1@z m2 m3!", &["m3"], Group::Outdated, Why::NoneDeclared),
        ];
        for (domains, machines, expected, group, why) in cases {
            let next = next_to_delete(&declared(domains), &replicas(machines)).expect("one goes");
            assert_eq!(
                (
                    next.machines
                        .iter()
                        .map(String::as_str)
                        .collect::<Vec<_>>()
                        .as_slice(),
                    next.group,
                    next.why
                ),
                (*expected, *group, *why),
                "{domains}: {machines}"
            );
        }
        assert_eq!(next_to_delete(&[], &[]), None);
    }

    #[test]
    fn of_an_age_the_first_by_name_goes() {
        let mut replicas = replicas("m2 m1");
        for replica in &mut replicas {
            replica.created = None;
        }
        assert_eq!(next_to_delete(&[], &replicas).expect("one goes").machines, ["m1"]);
    }
}
