//! Checks of a lease in every state, and random histories of a lease.

use jiff::{SignedDuration, Timestamp};
use kcp_api::metadata::Object as _;
use kcp_client::ServerTime;
use proptest::prelude::*;
use serde_json::json;

use super::{Rule, Transition};
use crate::{
    lease::{reuse::Reuse, usage::Usage},
    objects::{
        Holder,
        cluster_deployment::ClusterDeployment,
        entry::Entry,
        record::{LeaseRecord, LeaseState},
    },
    testing::objects::{cluster, lease, leased, named, read},
};

fn time(text: &str) -> Timestamp {
    format!("2026-11-21T{text}Z").parse().unwrap()
}

/// A rule at this time. The server's time is known to within one second.
fn rule(now: &str) -> Rule {
    let earliest = time(now);
    Rule {
        now: ServerTime {
            earliest,
            latest: earliest + SignedDuration::from_secs(1),
            is_certain: true,
        },
        grace: SignedDuration::from_mins(10),
        reuse: Reuse::Free,
    }
}

fn paris(uid: &str) -> ClusterDeployment {
    let mut object = cluster("paris", "pool", Some("a"));
    object["metadata"]["uid"] = uid.into();
    read(&object)
}

fn record(state: LeaseState, deadline: Option<&str>, has_cluster: bool) -> LeaseRecord {
    let deadline = deadline.map(|deadline| time(deadline).to_string());
    let record = lease("paris", deadline.as_deref());
    LeaseRecord {
        state,
        cluster: record.cluster.filter(|_| has_cluster),
        ..record
    }
}

fn in_use(uid: &str) -> LeaseState {
    LeaseState::InUse { uid: uid.to_owned() }
}

/// `keep`, `free`, or the state and the deadline that are written.
fn described(transition: Transition, before: &LeaseRecord) -> String {
    match transition {
        Transition::Keep => "keep".to_owned(),
        Transition::Free => "free".to_owned(),
        Transition::Clean(record) => format!("clean {}", record.message()),
        Transition::Unclear => "unclear".to_owned(),
        Transition::Write(after) => {
            let changed = LeaseRecord {
                state: before.state.clone(),
                deadline: before.deadline,
                ..after.clone()
            };
            assert_eq!(&changed, before, "nothing else changes");
            let deadline = after
                .deadline
                .map_or("never".to_owned(), |end| end.strftime("%H:%M:%S").to_string());
            match after.state {
                LeaseState::InUse { uid } => format!("in-use {uid} {deadline}"),
                state => format!("{} {deadline}", state.as_str()),
            }
        }
    }
}

#[test]
fn every_state_and_every_check() {
    let (one, two) = (paris("one"), paris("two"));
    let (used, other) = (Usage::Used(&one), Usage::Used(&two));
    let held = || LeaseState::Held;
    let gone = || LeaseState::ClusterGone;
    // The deadline is 05:00:00. For other clients, it has passed at 05:00:05.
    for (state, has_cluster, seen, now, expected) in [
        (held(), true, used, "04:00:00", "in-use one 05:00:00"),
        (held(), true, used, "06:00:00", "in-use one 05:00:00"),
        (held(), false, used, "06:00:00", "in-use one 05:00:00"),
        (in_use("one"), true, used, "06:00:00", "keep"),
        (in_use("one"), true, other, "06:00:00", "in-use two 05:00:00"),
        (gone(), true, used, "06:00:00", "in-use one 05:00:00"),
        (held(), true, Usage::Unused, "05:00:04", "keep"),
        (held(), true, Usage::Unused, "05:00:05", "gone 05:10:06"),
        (held(), false, Usage::Unused, "05:00:04", "keep"),
        (held(), false, Usage::Unused, "05:00:05", "free"),
        (in_use("one"), true, Usage::Unused, "04:00:00", "gone 05:00:00"),
        (in_use("one"), true, Usage::Unused, "04:55:00", "gone 05:05:01"),
        (in_use("one"), false, Usage::Unused, "06:00:00", "gone 06:10:01"),
        (gone(), true, Usage::Unused, "05:00:04", "keep"),
        (gone(), true, Usage::Unused, "05:00:05", "free"),
        (held(), false, Usage::Unknown, "06:00:00", "keep"),
        (held(), true, Usage::Unknown, "06:00:00", "keep"),
        (in_use("one"), true, Usage::Unknown, "06:00:00", "keep"),
        (gone(), true, Usage::Unknown, "06:00:00", "keep"),
    ] {
        let record = record(state, Some("05:00:00"), has_cluster);
        let transition = rule(now).transition(&record, seen);
        assert_eq!(
            described(transition, &record),
            expected,
            "{record:?} {seen:?} {now}"
        );
    }
}

#[test]
fn an_ended_lease_becomes_what_its_pool_asks_for() {
    let record = record(LeaseState::ClusterGone, Some("05:00:00"), true);
    for (reuse, now, expected) in [
        (Reuse::Free, "05:00:05", "free"),
        (
            Reuse::Clean,
            "05:00:05",
            "clean v1 holder=paris since=2026-11-21T05:00:06Z janitor=- deadline=- failures=0 user=jane",
        ),
        (Reuse::Clean, "05:00:04", "keep"),
        (Reuse::Unknown, "05:00:05", "unclear"),
        (Reuse::Unknown, "05:00:04", "keep"),
    ] {
        let rule = Rule { reuse, ..rule(now) };
        assert_eq!(
            described(rule.transition(&record, Usage::Unused), &record),
            expected,
            "{reuse:?} {now}"
        );
    }
}

/// The deadline of each lease of `paris` is 05:00:00.
#[test]
fn another_holders_cluster_gets_the_entry_unless_the_lease_is_contested() {
    let lima: ClusterDeployment = read(&cluster("lima", "other", Some("a")));
    let mut with_id = cluster("lima", "other", Some("a"));
    with_id["metadata"]["annotations"] = json!({"kubectl-kcp.dev/lease-id": "k4x7"});
    let with_id: ClusterDeployment = read(&with_id);
    let uid = lima.uid();
    for (state, cluster, now, expected) in [
        (LeaseState::Held, &lima, "04:00:00", "pool: keep"),
        (LeaseState::Held, &lima, "05:00:05", "other: lima in-use"),
        (in_use("one"), &lima, "04:00:00", "other: lima in-use"),
        (in_use(uid), &lima, "04:00:00", "other: lima in-use"),
        (LeaseState::ClusterGone, &lima, "04:00:00", "other: lima in-use"),
        (LeaseState::Held, &with_id, "04:00:00", "pool: paris in-use"),
    ] {
        let record = record(state, Some("05:00:00"), true);
        let entry: Entry = read(&named("a", leased(&record)));
        let (pool, transition) = rule(now).check(&entry, Usage::Used(cluster), || "id".to_owned());
        let found = match transition {
            Transition::Keep => "keep".to_owned(),
            Transition::Free => "free".to_owned(),
            other @ (Transition::Clean(_) | Transition::Unclear) => panic!("{other:?}"),
            Transition::Write(after) => format!("{} {}", after.holder, after.state.as_str()),
        };
        assert_eq!(format!("{pool}: {found}"), expected, "{record:?} {now}");
    }
}

#[test]
fn a_lease_without_a_deadline_never_ends() {
    for state in [LeaseState::Held, LeaseState::ClusterGone] {
        let record = record(state, None, true);
        assert_eq!(
            rule("23:00:00").transition(&record, Usage::Unused),
            Transition::Keep
        );
    }
    let record = record(in_use("one"), None, true);
    assert_eq!(
        described(rule("23:00:00").transition(&record, Usage::Unused), &record),
        "gone never"
    );
}

/// The dates of two responses disagree.
#[test]
fn no_lease_ends_if_the_time_is_uncertain() {
    let mut rule = rule("23:00:00");
    rule.now.is_certain = false;
    for state in [LeaseState::Held, LeaseState::ClusterGone] {
        let record = record(state, Some("05:00:00"), false);
        assert_eq!(rule.transition(&record, Usage::Unused), Transition::Keep);
    }
}

#[test]
fn a_reservation_without_a_record_gets_the_grace_period() {
    let holder = Holder {
        pool: "pool",
        cluster_deployment: "rome",
    };
    let one = paris("one");
    let adopted = |holder, seen| {
        let record = rule("04:00:00").new_record(holder, seen, "id".to_owned())?;
        assert_eq!(record.deadline, Some(time("04:10:01")));
        Some((record.holder, record.state))
    };
    let rome = Some(holder);
    assert_eq!(
        adopted(rome, Usage::Used(&one)),
        Some(("paris".to_owned(), in_use("one")))
    );
    assert_eq!(
        adopted(None, Usage::Used(&one)),
        Some(("paris".to_owned(), in_use("one")))
    );
    assert_eq!(
        adopted(rome, Usage::Unused),
        Some(("rome".to_owned(), LeaseState::ClusterGone))
    );
    assert_eq!(adopted(None, Usage::Unused), None);
    assert_eq!(adopted(rome, Usage::Unknown), None);
}

/// An event in the history of a lease: time passes, and then a client checks the lease.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// The seconds since the previous event.
    passed: i64,
    /// Whether a cluster uses the entry; none if the clusters could not be listed.
    cluster: Option<bool>,
}

fn moments() -> impl Strategy<Value = Vec<Moment>> {
    let moment = (0_i64..1_200, proptest::option::weighted(0.8, any::<bool>()))
        .prop_map(|(passed, cluster)| Moment { passed, cluster });
    proptest::collection::vec(moment, 1..40)
}

proptest! {
    /// An entry is freed only after its deadline, and only after the grace period has passed since a check
    /// found that no cluster uses it. No check in between may have found a cluster.
    #[test]
    fn an_entry_stays_reserved_for_a_recreated_cluster(
        moments in moments(), ttl in 1_i64..2_000, has_cluster in any::<bool>(),
    ) {
        let one = paris("one");
        let mut rule = rule("00:00:00");
        let begin = rule.now.earliest;
        let mut record = record(LeaseState::Held, None, has_cluster);
        let first_deadline = begin + SignedDuration::from_secs(ttl);
        record.deadline = Some(first_deadline);
        let mut was_used = false;
        let mut unused_since = None;
        for moment in moments {
            let passed = SignedDuration::from_secs(moment.passed);
            rule.now.earliest += passed;
            rule.now.latest += passed;
            let seen = match moment.cluster {
                None => Usage::Unknown,
                Some(true) => Usage::Used(&one),
                Some(false) => Usage::Unused,
            };
            match seen {
                Usage::Used(_) => {
                    was_used = true;
                    unused_since = None;
                }
                Usage::Unused => {
                    unused_since.get_or_insert(rule.now.earliest);
                }
                Usage::Unknown => {}
            }
            match rule.transition(&record, seen) {
                Transition::Keep => {}
                other @ (Transition::Clean(_) | Transition::Unclear) => panic!("{other:?}"),
                Transition::Write(after) => {
                    prop_assert!(seen != Usage::Unknown);
                    prop_assert!(after.deadline >= record.deadline, "a deadline moves forward only");
                    if record.state == LeaseState::ClusterGone {
                        prop_assert_eq!(after.deadline, record.deadline, "later looks do not move it");
                    }
                    record = after;
                }
                Transition::Free => {
                    prop_assert_eq!(seen, Usage::Unused);
                    prop_assert!(rule.now.earliest > first_deadline);
                    if was_used {
                        let since = unused_since.expect("it is unused now");
                        prop_assert!(rule.now.earliest.duration_since(since) >= rule.grace);
                    } else if has_cluster {
                        prop_assert_eq!(&record.state, &LeaseState::ClusterGone, "the first look does not free it");
                    }
                    break;
                }
            }
        }
    }
}
