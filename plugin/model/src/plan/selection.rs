//! Decides which Machine the controller deletes next, and in which failure domain it creates the next Machine.
//!
//! The choice follows `selectMachineForInPlaceUpdateOrScaleDown`, `NextFailureDomainForScaleUp` and
//! `FailureDomainWithMostMachines` of Cluster API. The controller deletes the oldest Machine in the failure
//! domain with the most Machines of the first non-empty group. If several domains have the same number, the
//! controller chooses at random (the iteration order of a Go map), and the result here contains all of them.

use serde::Serialize;

use crate::plan::state::{Deletion, Replica};

/// The groups of Machines, in the order in which the controller deletes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Group {
    /// Outdated Machines that are marked, that is, have the annotation `cluster.x-k8s.io/delete-machine`.
    OutdatedAndMarked,
    Marked,
    /// Outdated Machines that have failed, that is, have a component or an etcd member that is known to be unhealthy.
    OutdatedAndFailed,
    Outdated,
    Any,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextDeletion {
    /// The names of the Machines that may be deleted next. Several if the controller chooses at random.
    pub machines: Vec<String>,
    pub group: Group,
    pub why: FailureDomainReason,
}

type GroupFilter = fn(&Replica) -> bool;

const GROUPS: &[(Group, GroupFilter)] = &[
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

/// Returns the Machines that the controller may delete next. `None` if the control plane has no Machine.
/// Machines that are being deleted are also candidates, because the controller first waits for their
/// deletion.
pub fn next_to_delete(declared: &[String], replicas: &[Replica]) -> Option<NextDeletion> {
    let (group, may_go) = GROUPS.iter().find_map(|(group, is_of)| {
        let may_go: Vec<&Replica> = replicas.iter().filter(|replica| is_of(replica)).collect();
        (!may_go.is_empty()).then_some((*group, may_go))
    })?;
    let choice = domain_to_delete_from(declared, &may_go, replicas)?;
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
    Some(NextDeletion {
        machines,
        group,
        why: choice.why,
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainChoice {
    /// The chosen failure domains. Several if the controller chooses at random. A `None` in the list means no
    /// failure domain.
    pub domains: Vec<Option<String>>,
    pub why: FailureDomainReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum FailureDomainReason {
    /// The Cluster declares no failure domains.
    NoneDeclared,
    /// The failure domain has the fewest Machines that are neither outdated nor being deleted.
    FewestThatStay,
    /// Several failure domains have the fewest Machines that are neither outdated nor being deleted; of these
    /// domains, this one has the fewest Machines in total.
    FewestInAll,
    /// The failure domain is not among those that the Cluster declares.
    NotDeclared,
    /// The failure domain has the most Machines that may be deleted.
    MostDeletable,
    /// Several failure domains have the most Machines that may be deleted; of these domains, this one has the
    /// most Machines in total.
    MostInAll,
    /// The choice of the Machine does not depend on the failure domain.
    Given,
}

struct DomainCount<'d> {
    domain: &'d str,
    primary: usize,
    tie_breaker: usize,
}

fn counts_by_domain<'d>(
    declared: &'d [String],
    primary: &[&Replica],
    tie_breaker: &[Replica],
) -> Vec<DomainCount<'d>> {
    let inside = |replica: &Replica, domain: &str| replica.failure_domain.as_deref() == Some(domain);
    declared
        .iter()
        .map(|domain| DomainCount {
            domain,
            primary: primary.iter().filter(|replica| inside(replica, domain)).count(),
            tie_breaker: tie_breaker
                .iter()
                .filter(|replica| inside(replica, domain))
                .count(),
        })
        .collect()
}

/// Returns the failure domains with the extreme `primary` count and, if several have it, with the extreme
/// `tie_breaker` count. `extreme` returns the minimum or the maximum. Also returns whether the `tie_breaker`
/// count decided.
fn best_counts<'c, 'd>(
    counts_by_domain: &'c [DomainCount<'d>],
    extreme: fn(&mut dyn Iterator<Item = usize>) -> Option<usize>,
) -> (Vec<&'c DomainCount<'d>>, bool) {
    let primary = extreme(&mut counts_by_domain.iter().map(|count| count.primary));
    let tied: Vec<&DomainCount<'_>> = counts_by_domain
        .iter()
        .filter(|count| Some(count.primary) == primary)
        .collect();
    let tie_breaker = extreme(&mut tied.iter().map(|count| count.tie_breaker));
    let decided = tied.iter().any(|count| Some(count.tie_breaker) != tie_breaker);
    let best = tied
        .into_iter()
        .filter(|count| Some(count.tie_breaker) == tie_breaker)
        .collect();
    (best, decided)
}

pub fn domain_to_create_in(declared: &[String], replicas: &[Replica]) -> DomainChoice {
    let staying: Vec<&Replica> = replicas
        .iter()
        .filter(|replica| !replica.is_outdated && !replica.is_deleting())
        .collect();
    let counts = counts_by_domain(declared, &staying, replicas);
    let (best, decided) = best_counts(&counts, |values| values.min());
    if best.is_empty() {
        return DomainChoice {
            domains: vec![None],
            why: FailureDomainReason::NoneDeclared,
        };
    }
    DomainChoice {
        domains: best.iter().map(|count| Some(count.domain.to_owned())).collect(),
        why: if decided {
            FailureDomainReason::FewestInAll
        } else {
            FailureDomainReason::FewestThatStay
        },
    }
}

pub fn domain_to_delete_from(
    declared: &[String],
    may_go: &[&Replica],
    replicas: &[Replica],
) -> Option<DomainChoice> {
    let is_declared = |replica: &Replica| {
        replica
            .failure_domain
            .as_ref()
            .is_some_and(|domain| declared.contains(domain))
    };
    let undeclared = may_go
        .iter()
        .filter(|replica| !is_declared(replica))
        .min_by(|a, b| a.age_order(b));
    if let Some(oldest) = undeclared {
        return Some(DomainChoice {
            domains: vec![oldest.failure_domain.clone()],
            why: if declared.is_empty() {
                FailureDomainReason::NoneDeclared
            } else {
                FailureDomainReason::NotDeclared
            },
        });
    }
    let counts = counts_by_domain(declared, may_go, replicas);
    let (best, decided) = best_counts(&counts, |values| values.max());
    (!may_go.is_empty()).then(|| DomainChoice {
        domains: best.iter().map(|count| Some(count.domain.to_owned())).collect(),
        why: if decided {
            FailureDomainReason::MostInAll
        } else {
            FailureDomainReason::MostDeletable
        },
    })
}

#[cfg(test)]
mod tests {
    use super::{
        FailureDomainReason::{
            self, FewestInAll, FewestThatStay, MostDeletable, MostInAll, NoneDeclared, NotDeclared,
        },
        Group, Replica, domain_to_create_in, domain_to_delete_from, next_to_delete,
    };
    use crate::testing::plan::{declared, replicas};

    #[test]
    fn the_first_group_that_has_a_machine_gives_its_oldest() {
        type Case = (
            &'static str,
            &'static str,
            &'static [&'static str],
            Group,
            FailureDomainReason,
        );
        // Older Machines stand first. `!` means outdated, `d` marked, `f` a failed component, `u` a component whose
        // health is unknown.
        let cases: &[Case] = &[
            (
                "a b",
                "m1@a! m2@b!d m3@bd",
                &["m2"],
                Group::OutdatedAndMarked,
                MostDeletable,
            ),
            ("a b", "m1@a! m2@b! m3@bd", &["m3"], Group::Marked, MostDeletable),
            ("a b", "m1@a!f m2@b! m3@bd", &["m3"], Group::Marked, MostDeletable),
            (
                "a b",
                "m1@a! m2@b! m3@b!f",
                &["m3"],
                Group::OutdatedAndFailed,
                MostDeletable,
            ),
            // Unknown is not failed, and up to date is not outdated.
            (
                "a b",
                "m1@a! m2@b! m3@b!u m4@af",
                &["m2"],
                Group::Outdated,
                MostDeletable,
            ),
            ("a b", "m1@a! m2@b! m3@b", &["m2"], Group::Outdated, MostInAll),
            ("a b", "m1@a m2@b m3@b", &["m2"], Group::Any, MostDeletable),
            ("a b", "m1@a m2@b m3@bf", &["m2"], Group::Any, MostDeletable),
            (
                "a b c",
                "m1@a m2@b m3@c",
                &["m1", "m2", "m3"],
                Group::Any,
                MostDeletable,
            ),
            (
                "a b c",
                "m1@a m2@b m3@c m4@a m5@b",
                &["m1", "m2"],
                Group::Any,
                MostDeletable,
            ),
            ("a", "m1@a m2@z m3@z", &["m2"], Group::Any, NotDeclared),
            ("a", "m1@a m2 m3@z", &["m2"], Group::Any, NotDeclared),
            ("", "m1 m2 m3", &["m1"], Group::Any, NoneDeclared),
            ("", "m1@z m2 m3!", &["m3"], Group::Outdated, NoneDeclared),
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

    fn names(choice: &super::DomainChoice) -> Vec<&str> {
        choice
            .domains
            .iter()
            .map(|domain| domain.as_deref().unwrap_or("-"))
            .collect()
    }

    /// Machines are written as `name@domain`. `!` marks an outdated Machine, and `x` a Machine that is being
    /// deleted.
    #[test]
    fn the_next_machine_comes_up_where_the_fewest_stay() {
        type Case = (
            &'static str,
            &'static str,
            &'static [&'static str],
            FailureDomainReason,
        );
        let cases: &[Case] = &[
            ("", "m1 m2", &["-"], NoneDeclared),
            ("a b c", "", &["a", "b", "c"], FewestThatStay),
            ("a b c", "m1@a m2@b", &["c"], FewestThatStay),
            // No Machine stays, so the total number decides.
            ("a b c", "m1@a! m2@a! m3@b!", &["c"], FewestInAll),
            ("a b", "m1@a! m2@a! m3@b!", &["b"], FewestInAll),
            ("a b c", "m1@a! m2@b! m3@c!", &["a", "b", "c"], FewestThatStay),
            ("a b c", "m1@a! m2@b! m3@c! n1@a", &["b", "c"], FewestThatStay),
            // A Machine that is being deleted does not stay, but counts in the total.
            ("a b", "m1@ax m2@b", &["a"], FewestThatStay),
            ("a b", "m1@ax m2@bx m3@bx", &["a"], FewestInAll),
            // Machines in other failure domains, or in none, do not count.
            ("a b", "m1@z m2 m3@a", &["b"], FewestThatStay),
        ];
        for (domains, machines, expected, why) in cases {
            let choice = domain_to_create_in(&declared(domains), &replicas(machines));
            assert_eq!(
                (names(&choice).as_slice(), choice.why),
                (*expected, *why),
                "{domains}: {machines}"
            );
        }
    }

    #[test]
    fn the_next_machine_goes_from_where_the_most_may_go() {
        type Case = (
            &'static str,
            &'static str,
            &'static [&'static str],
            FailureDomainReason,
        );
        let cases: &[Case] = &[
            ("", "m1! m2!", &["-"], NoneDeclared),
            ("", "m1@z! m2!", &["z"], NoneDeclared),
            ("a b", "m1@a! m2@a! m3@b!", &["a"], MostDeletable),
            ("a b", "m1@a! m2@b! n1@b", &["b"], MostInAll),
            ("a b c", "m1@a! m2@b! n1@c", &["a", "b"], MostDeletable),
            ("a b", "m1@a! m2@b!", &["a", "b"], MostDeletable),
            // Machines in undeclared failure domains are deleted first, the oldest of them first.
            ("a b", "m1@a! m2@a! m3@z! m4@y!", &["z"], NotDeclared),
            ("a b", "m1@a! m2!", &["-"], NotDeclared),
            // Only Machines that may be deleted count.
            ("a b", "m1@a! m2@z", &["a"], MostDeletable),
        ];
        for (domains, machines, expected, why) in cases {
            let replicas = replicas(machines);
            let may_go: Vec<&Replica> = replicas.iter().filter(|replica| replica.is_outdated).collect();
            let choice = domain_to_delete_from(&declared(domains), &may_go, &replicas).expect("one may go");
            assert_eq!(
                (names(&choice).as_slice(), choice.why),
                (*expected, *why),
                "{domains}: {machines}"
            );
        }
        assert_eq!(
            domain_to_delete_from(&declared("a"), &[], &replicas("m1@a")),
            None
        );
    }
}
