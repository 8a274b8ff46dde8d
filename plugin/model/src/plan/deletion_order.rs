//! Which Machine goes next when one has to.
//!
//! As `selectMachineForInPlaceUpdateOrScaleDown` of Cluster API: the first of these groups that has a Machine, of it the
//! failure domain that has most to give, of that the oldest.

use serde::Serialize;

use crate::plan::{
    failure_domain::{self, Why},
    state::{Deletion, Replica},
};

/// A group of Machines that go before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Group {
    /// Outdated, and marked by the annotation `cluster.x-k8s.io/delete-machine`.
    OutdatedAndMarked,
    /// Marked by the annotation.
    Marked,
    /// Outdated, and a component or its member of etcd is known not to work.
    OutdatedAndFailed,
    /// Outdated.
    Outdated,
    /// Any Machine.
    Any,
}

/// What may go next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// The Machines; more than one where the controller chooses at random.
    pub machines: Vec<String>,
    /// The group they are of.
    pub group: Group,
    /// Why their failure domains.
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

/// What may go next; none when there is no Machine. Nothing is asked of Machines that are being deleted: the
/// controller waits for those first.
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
    use crate::plan::{
        example::{declared, replicas},
        failure_domain::Why,
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
