use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::{Leftover, Violation, leftovers, not_cleaned, reclaimed, violations};
use crate::pools::claim::{EventKind, LesseeEvent};
use crate::pools::version::{ClusterDeployment, Entry, Revision, Version, Versions};

/// Each revision is written, and seen, at the second of its number.
fn at(revision: Revision) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(i64::try_from(revision).unwrap())
}

fn version<T>(revision: Revision, name: &str, object: Option<T>) -> Version<T> {
    Version {
        revision,
        seen: at(revision),
        name: name.to_owned(),
        object,
    }
}

fn held(lessee: &str) -> Entry {
    Entry {
        cluster_deployment: Some(lessee.to_owned()),
        pool: Some("p".to_owned()),
        is_reserved: true,
        lease_id: Some(format!("of-{lessee}")),
        ..Entry::default()
    }
}

/// Waits for a janitor, or is held by one.
fn cleaning(janitor: Option<&str>) -> Entry {
    Entry {
        pool: Some("p".to_owned()),
        is_reserved: true,
        janitor_id: janitor.map(str::to_owned),
        ..Entry::default()
    }
}

fn free() -> Entry {
    Entry::default()
}

/// The entries' states, each from a revision on.
fn entries<E: Into<Option<Entry>>>(
    versions: impl IntoIterator<Item = (Revision, &'static str, E)>,
) -> Versions {
    let entries = versions.into_iter();
    Versions {
        entries: entries
            .map(|(revision, name, object)| version(revision, name, object.into()))
            .collect(),
        ..Versions::default()
    }
}

fn events(revision: Revision, lessee: &str, what: EventKind) -> LesseeEvent {
    LesseeEvent {
        revision,
        at: at(revision),
        lessee: lessee.to_owned(),
        what,
    }
}

/// A lease that ends before the version of this revision is written.
fn leased_until(revision: Revision, lessee: &str, entry: &str, end: Revision) -> LesseeEvent {
    let leased = EventKind::Leased {
        entry: entry.to_owned(),
        ends: at(end),
    };
    events(revision, lessee, leased)
}

fn leased(revision: Revision, lessee: &str, entry: &str) -> LesseeEvent {
    leased_until(revision, lessee, entry, 1_000)
}

fn releases(revision: Revision, lessee: &str) -> LesseeEvent {
    events(revision, lessee, EventKind::Releases)
}

fn not_named(entry: &str, lessee: &str, revision: Revision, names: Option<&str>) -> Violation {
    Violation::NotNamed {
        entry: entry.to_owned(),
        lessee: lessee.to_owned(),
        revision,
        names: names.map(str::to_owned),
    }
}

#[test]
fn accepts_one_lessee_after_the_other() {
    let versions = entries([
        (1, "x", free()),
        (2, "y", free()),
        (3, "x", held("a")),
        (5, "y", held("b")),
        (7, "x", free()),
        (8, "x", held("b")),
    ]);
    let events = [
        leased(4, "a", "x"),
        leased(5, "a", "x"),
        leased(5, "b", "y"),
        releases(6, "a"),
        releases(7, "b"),
        leased(8, "b", "x"),
    ];
    assert_eq!(violations(&versions, &events), []);
}

#[test]
fn accepts_versions_that_name_the_lessee_and_change_otherwise() {
    let versions = entries([(1, "x", held("a")), (3, "x", held("a"))]);
    assert_eq!(violations(&versions, &[leased(2, "a", "x")]), []);
}

#[test]
fn accepts_what_was_written_for_a_lessee_that_was_told_nothing() {
    let versions = entries([(1, "x", held("a")), (2, "x", free()), (3, "x", held("b"))]);
    assert_eq!(violations(&versions, &[leased(3, "b", "x")]), []);
}

#[test]
fn rejects_each_version_that_does_not_name_the_lessee() {
    let reference_alone = Some(Entry {
        is_reserved: false,
        ..held("a")
    });
    for (case, object, names) in [
        ("overwritten", Some(held("b")), Some("b")),
        ("freed", Some(free()), None),
        ("half freed", reference_alone, None),
        ("deleted", None, None),
    ] {
        // Even if a later version names it again.
        let versions = entries([
            (1, "x", Some(held("a"))),
            (3, "x", object.clone()),
            (4, "x", Some(held("a"))),
        ]);
        let expected = [not_named("x", "a", 3, names)];
        let events = [leased(2, "a", "x"), releases(5, "a")];
        assert_eq!(violations(&versions, &events), expected, "{case}");
        let events = [leased(2, "a", "x"), releases(3, "a")];
        assert_eq!(
            violations(&versions, &events),
            expected,
            "{case}, at the last moment"
        );
        let events = [leased(2, "a", "x"), releases(2, "a")];
        assert_eq!(
            violations(&versions, &events),
            [],
            "{case}, after its release was asked for"
        );
    }
}

#[test]
fn rejects_a_success_that_was_none() {
    let versions = entries([(1, "x", free()), (2, "x", held("b"))]);
    assert_eq!(
        violations(&versions, &[leased(3, "a", "x")]),
        [not_named("x", "a", 2, Some("b"))]
    );
    assert_eq!(
        violations(&versions, &[leased(3, "a", "y")]),
        [not_named("y", "a", 0, None)]
    );
}

#[test]
fn rejects_two_lessees_of_one_entry() {
    let versions = entries([(1, "x", held("a")), (3, "x", held("b"))]);
    let overlap = Violation::Overlap {
        entry: "x".to_owned(),
        lessees: ["a".to_owned(), "b".to_owned()],
    };
    let events = [leased(1, "a", "x"), leased(3, "b", "x"), releases(4, "a")];
    let taken_over = not_named("x", "a", 3, Some("b"));
    assert_eq!(violations(&versions, &events), [taken_over, overlap.clone()]);
    // Each version names the lessee whose answer came later.
    let events = [leased(1, "a", "x"), releases(2, "a"), leased(2, "b", "x")];
    let not_yet = not_named("x", "b", 1, Some("a"));
    assert_eq!(violations(&versions, &events), [not_yet, overlap]);
}

#[test]
fn accepts_a_lessee_after_the_end_of_the_lease_before() {
    let versions = entries([(1, "x", held("a")), (6, "x", held("b")), (7, "y", held("a"))]);
    let events = [
        leased_until(2, "a", "x", 6),
        leased(6, "b", "x"),
        leased(7, "a", "y"),
    ];
    assert_eq!(violations(&versions, &events), []);
    assert_eq!(reclaimed(&versions), 1);
}

#[test]
fn rejects_a_lessee_before_the_end_of_the_lease_before() {
    let versions = entries([(1, "x", held("a")), (6, "x", held("b"))]);
    let events = [leased_until(2, "a", "x", 7), leased(6, "b", "x")];
    let overlap = Violation::Overlap {
        entry: "x".to_owned(),
        lessees: ["a".to_owned(), "b".to_owned()],
    };
    assert_eq!(
        violations(&versions, &events),
        [not_named("x", "a", 6, Some("b")), overlap]
    );
}

fn cluster(entry: &str) -> ClusterDeployment {
    ClusterDeployment {
        customization: Some(entry.to_owned()),
        ..ClusterDeployment::default()
    }
}

#[test]
fn rejects_clusters_of_others() {
    for (case, clusters, expected) in [
        ("its own", vec![(3, "a", Some(cluster("x")))], vec![]),
        (
            "another's entry",
            vec![(3, "b", Some(cluster("x")))],
            vec![Violation::ClusterOfAnother {
                entry: "x".to_owned(),
                cluster: "b".to_owned(),
                names: "a".to_owned(),
            }],
        ),
        (
            "one after the other",
            vec![
                (3, "a", Some(cluster("x"))),
                (4, "a", None),
                (6, "b", Some(cluster("x"))),
            ],
            vec![],
        ),
        (
            "both",
            vec![(3, "a", Some(cluster("x"))), (6, "b", Some(cluster("x")))],
            vec![Violation::TwoClusters {
                entry: "x".to_owned(),
                clusters: ["a".to_owned(), "b".to_owned()],
            }],
        ),
    ] {
        let clusters = clusters
            .into_iter()
            .map(|(revision, name, object)| version(revision, name, object));
        let versions = Versions {
            cluster_deployments: clusters.collect(),
            ..entries([(1, "x", held("a")), (5, "x", held("b"))])
        };
        assert_eq!(violations(&versions, &[]), expected, "{case}");
    }
}

#[test]
fn rejects_an_entry_that_is_freed_within_the_grace_period() {
    // The cluster is deleted at second 4.
    for (freed, expected) in [(6, vec![not_named("x", "a", 6, None)]), (7, vec![])] {
        let versions = entries([(1, "x", held("a")), (freed, "x", free())]);
        let events = [
            leased_until(2, "a", "x", 3),
            events(3, "a", EventKind::CreatedCluster),
            events(4, "a", EventKind::DeletesCluster),
        ];
        assert_eq!(violations(&versions, &events), expected, "{freed}");
    }
}

#[test]
fn rejects_a_second_entry_for_a_lessee_that_has_one() {
    let versions = entries([(1, "x", held("a")), (2, "y", held("a"))]);
    let two = Violation::TwoEntries {
        lessee: "a".to_owned(),
        entries: ["x".to_owned(), "y".to_owned()],
    };
    let events = [leased(1, "a", "x"), leased(2, "a", "y")];
    assert_eq!(violations(&versions, &events), [two]);
}

fn left(versions: &Versions, living: &[&str]) -> Vec<Leftover> {
    let inventory = ["x", "y"].map(str::to_owned);
    let living: BTreeSet<_> = living.iter().map(|name| (*name).to_owned()).collect();
    leftovers(versions, &inventory, &living)
}

#[test]
fn accepts_entries_that_are_free_or_held_by_the_living() {
    let versions = entries([(1, "x", held("dead")), (2, "y", held("a")), (3, "x", free())]);
    assert_eq!(left(&versions, &["a"]), []);
}

#[test]
fn rejects_each_leftover() {
    let dead = || "dead".to_owned();
    let unreferenced = Some(Entry {
        cluster_deployment: None,
        ..held("a")
    });
    let stale = Some(Entry {
        is_reserved: false,
        ..held("a")
    });
    for (x, expected) in [
        (None, Leftover::Gone("x".to_owned())),
        (unreferenced, Leftover::Unclear("x".to_owned())),
        (stale, Leftover::Unclear("x".to_owned())),
        (
            Some(held("dead")),
            Leftover::HeldByDead {
                entry: "x".to_owned(),
                lessee: dead(),
            },
        ),
        (
            Some(held("a")),
            Leftover::HeldBeside {
                lessee: "a".to_owned(),
                entries: vec!["x".to_owned(), "y".to_owned()],
            },
        ),
    ] {
        let versions = entries([(1, "x", Some(free())), (2, "y", Some(held("a"))), (3, "x", x)]);
        assert_eq!(left(&versions, &["a"]), [expected]);
    }
}

#[test]
fn rejects_a_cluster_deployment_that_waits_for_our_finalizer_alone() {
    let mut versions = entries([(1, "x", free()), (1, "y", free())]);
    let deployment = |is_deleting, finalizers: &[&str]| {
        let finalizers = finalizers.iter().map(|name| (*name).to_owned()).collect();
        Some(ClusterDeployment {
            customization: None,
            is_deleting,
            finalizers,
        })
    };
    for (object, stuck) in [
        (deployment(true, &["kubectl-kcp.dev/pool-lease"]), true),
        (deployment(true, &["kubectl-kcp.dev/pool-lease", "other"]), false),
        (deployment(true, &["other"]), false),
        (deployment(false, &["kubectl-kcp.dev/pool-lease"]), false),
        (None, false),
    ] {
        versions.cluster_deployments = vec![version(2, "a", object.clone())];
        let expected: Vec<_> = stuck
            .then(|| Leftover::FinalizerStuck("a".to_owned()))
            .into_iter()
            .collect();
        assert_eq!(left(&versions, &[]), expected, "{object:?}");
    }
}

#[test]
fn rejects_a_copy_of_the_dead() {
    let mut versions = entries([(1, "x", free()), (1, "y", free())]);
    versions.copies = vec![version(2, "a/x", Some(()))];
    assert_eq!(left(&versions, &["a"]), []);
    let expected = Leftover::CopyOfDead("a/x".to_owned());
    assert_eq!(left(&versions, &[]), [expected]);
    versions.copies.push(version(3, "a/x", None));
    assert_eq!(left(&versions, &[]), []);
}

#[test]
fn an_entry_must_be_cleaned_between_two_leases_that_were_reported() {
    let cleaned = BTreeSet::from(["k4x7".to_owned()]);
    for (case, between, reported, is_violation) in [
        ("at once", vec![], true, true),
        ("freed", vec![Some(free())], true, true),
        ("not told", vec![], false, false),
        (
            "cleaned",
            vec![Some(cleaning(Some("k4x7"))), Some(free())],
            true,
            false,
        ),
        (
            "not by a command",
            vec![Some(cleaning(Some("x"))), Some(free())],
            true,
            true,
        ),
        (
            "killed before the end was recorded",
            vec![
                Some(cleaning(Some("k4x7"))),
                Some(cleaning(Some("x"))),
                Some(free()),
            ],
            true,
            true,
        ),
        (
            "interrupted",
            vec![Some(cleaning(Some("k4x7"))), Some(cleaning(None)), Some(free())],
            true,
            true,
        ),
        (
            "restored without its records",
            vec![None, Some(free())],
            true,
            false,
        ),
    ] {
        let states = [Some(held("a"))]
            .into_iter()
            .chain(between)
            .chain([Some(held("b"))]);
        let versions = entries((1..).zip(states).map(|(revision, entry)| (revision, "x", entry)));
        let events = if reported {
            vec![leased(1, "a", "x")]
        } else {
            Vec::new()
        };
        let last = versions.entries.last().unwrap().revision;
        let expected = is_violation.then(|| Violation::NotCleaned {
            entry: "x".to_owned(),
            revision: last,
            lessees: ["a", "b"].map(str::to_owned),
        });
        let found = not_cleaned(&versions.entries, &events, &cleaned);
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{case}");
    }
}

/// While a check may still find the cluster of an ended lease, its holder gets the entry again.
#[test]
fn the_holder_of_an_ended_lease_with_a_cluster_needs_no_cleaning() {
    for (cluster, expected) in [(Some("a/a"), 0), (None, 1)] {
        let lease = |id: &str| {
            Some(Entry {
                lease_id: Some(id.to_owned()),
                cluster: cluster.map(str::to_owned),
                ..held("a")
            })
        };
        let versions = entries([(1, "x", lease("k4x7")), (2, "x", lease("m2p9"))]);
        let found = not_cleaned(&versions.entries, &[leased(1, "a", "x")], &BTreeSet::new());
        assert_eq!(found.len(), expected, "{cluster:?}: {found:?}");
    }
}
