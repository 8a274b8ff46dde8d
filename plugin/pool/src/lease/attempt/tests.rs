//! Leases under contention, with faults, and with clusters that are created and deleted.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{AttemptOutcome, AttemptRequest, attempt, rule, writes::confirm};
use crate::{
    install_config::InstallConfig,
    lease::{
        LeaseError, Ttl,
        choice::{Availability, UnusableReason},
        queue::{EntrySet, Place, Queue},
        reuse::Reuse,
    },
    objects::{
        entry::Reservation,
        record::{LeaseRecord, LeaseState},
    },
    store::LeaseStore as _,
    testing::{
        attempts::{attempt_by, request, run},
        fake::{Fake, Fault, reserved},
        objects::{LONG_AGO, NOW, cluster, gone, in_use, lease, leased},
    },
};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn outcome(fake: &Fake) -> AttemptOutcome {
    run(attempt_by(fake, &NAMES, "us", |_| {})).unwrap().outcome
}

/// The entry that `us` gets, and whether `us` already held it.
fn taken(fake: &Fake) -> (String, bool) {
    match outcome(fake) {
        AttemptOutcome::Leased(leased) => {
            assert_eq!(leased.record, fake.record(&leased.customization));
            assert_eq!(fake.held_by("us"), std::slice::from_ref(&leased.customization));
            (leased.customization, leased.was_already_held)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_write_reserves_an_entry_for_a_day() {
    let fake = Fake::free(&NAMES);
    let (name, already) = taken(&fake);
    assert!(!already);
    assert_eq!(*fake.writes.borrow(), std::slice::from_ref(&name));
    let record = fake.record(&name);
    assert_eq!(record.deadline.unwrap().to_string(), "2026-11-22T05:00:00Z");
    assert_eq!(
        (record.state, record.renewals, record.id.len()),
        (LeaseState::Held, 0, 16)
    );
}

#[test]
fn leasing_again_returns_the_same_lease_and_keeps_its_end() {
    let fake = Fake::free(&["a"]);
    fake.put("a", &leased(&lease("us", Some("2026-11-21T06:00:00Z")))["status"]);
    assert_eq!(taken(&fake), ("a".to_owned(), true));
    let record = fake.record("a");
    assert_eq!(
        (record.id.as_str(), record.renewals),
        ("k4x7", 1),
        "the entry has changed"
    );
    assert_eq!(record.deadline.unwrap().to_string(), "2026-11-21T06:00:00Z");
    let again = run(attempt_by(&fake, &["a"], "us", |request| {
        request.ttl = Some(Ttl::Never);
    }))
    .unwrap();
    assert!(matches!(again.outcome, AttemptOutcome::Leased(_)));
    assert_eq!(fake.record("a").deadline, None);
}

#[test]
fn a_lease_that_another_process_renews_at_the_same_time_is_told_as_it_is_stored() {
    let hours = |hours: u64| Some(Ttl::For(Duration::from_secs(hours * 3_600)));
    for (ttl, expected) in [
        (hours(1), "2026-11-21T07:00:00Z"),
        (hours(2), "2026-11-21T07:00:00Z"),
        (hours(3), "2026-11-21T08:00:00Z"),
    ] {
        let fake = Fake::free(&["a"]);
        let before = lease("us", Some("2026-11-21T06:00:00Z"));
        fake.put("a", &leased(&before)["status"]);
        let renewed = LeaseRecord {
            renewals: 1,
            ..lease("us", Some("2026-11-21T07:00:00Z"))
        };
        // clusters, list: then the other process writes.
        fake.put_late("a", &leased(&renewed)["status"], 2);
        let found = run(attempt_by(&fake, &["a"], "us", |request| request.ttl = ttl)).unwrap();
        let AttemptOutcome::Leased(leased) = found.outcome else {
            panic!("{found:?}")
        };
        assert_eq!(leased.record.deadline, fake.record("a").deadline);
        assert_eq!(leased.record.deadline.unwrap().to_string(), expected);
    }
}

#[test]
fn an_ended_lease_of_the_same_holder_gets_a_new_id() {
    let fake = Fake::free(&["a"]);
    fake.put("a", &leased(&lease("us", Some(LONG_AGO)))["status"]);
    assert_eq!(taken(&fake), ("a".to_owned(), true));
    let record = fake.record("a");
    assert_ne!(record.id, "k4x7", "what still runs under the old id has lost it");
    assert_eq!(record.deadline.unwrap().to_string(), "2026-11-22T05:00:00Z");
    // The cluster exists, so the lease has not ended.
    fake.put("a", &leased(&in_use("us", LONG_AGO, "u"))["status"]);
    taken(&fake);
    assert_eq!(fake.record("a").id, "k4x7");
}

/// Otherwise, the holder would get a new lease of an entry that was judged as held, and not as one that must be cleaned.
#[test]
fn a_lease_that_ends_after_the_choice_stays_the_same_lease() {
    let fake = Fake::free(&["a"]);
    fake.put("a", &leased(&lease("us", Some(NOW)))["status"]);
    let entry = fake.entry("a");
    // With a list of clusters, a check is made at the time of the list.
    fake.forbid_clusters();
    let record = run(async {
        let clusters = fake.clusters().await.unwrap();
        let chosen = rule(&fake, &clusters);
        fake.pass(Duration::from_secs(60));
        confirm(&fake, &entry, request(&["a"], &clusters, "us"), chosen)
            .await
            .unwrap();
        fake.record("a")
    });
    assert_eq!((record.id.as_str(), record.renewals), ("k4x7", 1));
}

/// A cluster may have been created after the list, before the end of its holder's lease.
#[test]
fn a_list_of_clusters_from_before_the_end_of_a_lease_frees_nothing() {
    let passed = Duration::from_secs(6);
    for is_old in [true, false] {
        let fake = Fake::free(&["a"]);
        // Others may free the entry 5 s later.
        fake.put("a", &leased(&gone("them", NOW))["status"]);
        if !is_old {
            fake.pass(passed);
        }
        let attempt = run(async {
            let clusters = fake.clusters().await.unwrap();
            if is_old {
                fake.pass(passed);
            }
            attempt(&fake, request(&["a"], &clusters, "us")).await.unwrap()
        });
        let is_leased = matches!(attempt.outcome, AttemptOutcome::Leased(_));
        assert_eq!(is_leased, !is_old, "{:?}", attempt.outcome);
    }
}

#[test]
fn a_request_for_a_new_lease_rejects_an_existing_one() {
    let fake = Fake::free(&NAMES);
    fake.put("b", &reserved("us"));
    let refused = run(attempt_by(&fake, &NAMES, "us", |request| {
        request.must_be_new = true;
    }))
    .unwrap()
    .outcome;
    let held = AttemptOutcome::AlreadyHeld {
        customization: "b".to_owned(),
    };
    assert_eq!(refused, held);
    assert!(fake.writes.borrow().is_empty());
}

#[test]
fn a_holder_gets_no_second_entry_and_a_refusal_names_the_first() {
    let fake = Fake::free(&NAMES);
    fake.put("b", &reserved("us"));
    let held = AttemptOutcome::HeldInstead {
        customization: "b".to_owned(),
        requested: "a".to_owned(),
    };
    let refused = run(attempt_by(&fake, &["a"], "us", |request| {
        request.only_entry = Some("a");
    }));
    assert_eq!(refused.unwrap().outcome, held);
    assert!(fake.writes.borrow().is_empty());
    let leased = run(attempt_by(&fake, &["b"], "us", |request| {
        request.only_entry = Some("b");
    }));
    let outcome = leased.unwrap().outcome;
    assert!(
        matches!(&outcome, AttemptOutcome::Leased(leased) if leased.was_already_held && leased.customization == "b"),
        "{outcome:?}"
    );
}

#[test]
fn an_ended_lease_is_replaced_and_others_are_updated() {
    let fake = Fake::free(&["a"]);
    fake.put("a", &leased(&gone("them", LONG_AGO))["status"]);
    assert_eq!(taken(&fake), ("a".to_owned(), false));
    // The lease may have had a cluster, so the first check frees nothing.
    let fake = Fake::free(&["a"]);
    fake.put("a", &leased(&lease("them", Some(LONG_AGO)))["status"]);
    assert!(matches!(outcome(&fake), AttemptOutcome::Exhausted(_)));
    let after = fake.record("a");
    assert_eq!(
        (&after.state, after.deadline.unwrap().to_string().as_str()),
        (&LeaseState::ClusterGone, "2026-11-21T05:10:00Z")
    );
    fake.pass(Duration::from_secs(604));
    assert!(matches!(outcome(&fake), AttemptOutcome::Exhausted(_)));
    assert_eq!(fake.record("a"), after, "later looks do not move it");
    fake.pass(Duration::from_secs(1));
    assert_eq!(taken(&fake), ("a".to_owned(), false));
}

#[test]
fn a_recreated_cluster_gets_its_entry_within_the_grace_period() {
    let fake = Fake::free(&["a"]);
    fake.put("a", &leased(&in_use("them", LONG_AGO, "uid-of-them"))["status"]);
    assert!(matches!(outcome(&fake), AttemptOutcome::Exhausted(_)));
    assert_eq!(fake.record("a").state, LeaseState::ClusterGone);
    fake.pass(Duration::from_secs(500));
    fake.put_cluster(cluster("them", "pool", Some("a")));
    assert!(matches!(outcome(&fake), AttemptOutcome::Exhausted(_)));
    let uid = "uid-of-them".to_owned();
    assert_eq!(fake.record("a").state, LeaseState::InUse { uid });
}

#[test]
fn no_lease_is_replaced_if_the_time_or_the_clusters_are_uncertain() {
    let ended = || {
        let fake = Fake::free(&["a"]);
        fake.put("a", &leased(&gone("them", LONG_AGO))["status"]);
        fake
    };
    let fake = ended();
    fake.disagree();
    assert!(matches!(outcome(&fake), AttemptOutcome::Exhausted(_)));
    let fake = ended();
    fake.forbid_clusters();
    assert!(matches!(outcome(&fake), AttemptOutcome::Exhausted(_)));
    assert!(fake.writes.borrow().is_empty());
    // The entry that was never used is leased.
    let fake = Fake::free(&["a"]);
    fake.forbid_clusters();
    assert_eq!(taken(&fake), ("a".to_owned(), false));
}

#[test]
fn a_cluster_that_appears_during_an_attempt_gets_the_entry() {
    let fake = Fake::free(&["a"]);
    fake.put_cluster_after_write(cluster("them", "other", Some("a")));
    let AttemptOutcome::Exhausted(availabilities) = outcome(&fake) else {
        panic!("leased");
    };
    assert!(
        matches!(&availabilities[0].1, Availability::Held { .. }),
        "{availabilities:?}"
    );
    let record = fake.record("a");
    assert_eq!(
        (record.holder.as_str(), record.state.as_str()),
        ("them", "in-use")
    );
    assert_eq!(fake.status("a")["clusterPoolRef"]["name"], "other");
    // The holder's own cluster may use the entry.
    let fake = Fake::free(&["a"]);
    fake.put_cluster_after_write(cluster("us", "pool", Some("a")));
    assert_eq!(taken(&fake), ("a".to_owned(), false));
}

/// A restore removed the entry's status, and a client that did not know the cluster yet leased the entry
/// again.
#[test]
fn a_lease_is_not_confirmed_while_another_holders_cluster_uses_the_entry() {
    let fake = Fake::free(&["a"]);
    fake.put("a", &reserved("us"));
    fake.put_cluster_after_write(cluster("them", "other", Some("a")));
    assert!(matches!(outcome(&fake), AttemptOutcome::Exhausted(_)));
    assert_eq!(fake.record("a").holder, "them");
    let fake = Fake::free(&["a"]);
    fake.put("a", &reserved("us"));
    fake.put_cluster(cluster("them", "other", Some("a")));
    let outcome = outcome(&fake);
    let AttemptOutcome::BoundButUnavailable { availability, .. } = &outcome else {
        panic!("{outcome:?}");
    };
    assert!(matches!(availability, Availability::Referenced { by } if by.name == "them"));
    assert!(fake.writes.borrow().is_empty());
}

#[test]
fn a_faulty_write_leases_exactly_one_entry() {
    for fault in [
        Fault::AnswerLost,
        Fault::RequestLost,
        Fault::RequestLostThenOvertaken,
        Fault::ArrivesLate(0),
        Fault::ArrivesLate(1),
        Fault::ArrivesLate(3),
        Fault::Overtaken,
        Fault::Touched,
        Fault::Deleted,
    ] {
        let fake = Fake::free(&NAMES).with_faults(&[Some(fault)]);
        taken(&fake);
        fake.settle();
        assert_eq!(fake.held_by("us").len(), 1, "{fault:?}");
    }
    for fault in [
        Fault::AnswerLost,
        Fault::RequestLost,
        Fault::ArrivesLate(1),
        Fault::Touched,
    ] {
        let fake = Fake::free(&NAMES).with_faults(&[Some(fault)]);
        fake.put("b", &reserved("us"));
        assert_eq!(taken(&fake), ("b".to_owned(), true), "{fault:?}");
        fake.settle();
        assert_eq!(fake.held_by("us"), ["b"], "{fault:?}");
    }
    let fake = Fake::free(&NAMES).with_faults(&[Some(Fault::Forbidden)]);
    let refused = run(attempt_by(&fake, &NAMES, "us", |_| {})).unwrap_err();
    assert!(matches!(refused, LeaseError::Api(_)), "{refused:?}");
    let fake = Fake::free(&["a"]).with_faults(&[Some(Fault::RequestLost); 9]);
    let in_doubt = run(attempt_by(&fake, &NAMES, "us", |_| {})).unwrap_err();
    assert_eq!(
        in_doubt.to_string(),
        "it is unknown whether a is leased (to find out, run the same command again)"
    );
}

#[test]
fn an_attempt_ends_even_if_others_change_its_entry_before_each_write() {
    for (names, second) in [(&["a"][..], Fault::Touched), (&["a", "b"], Fault::Overtaken)] {
        let mut faults = [Some(Fault::Touched); 128];
        (faults[0], faults[1]) = (None, Some(second));
        let fake = Fake::free(names).with_faults(&faults);
        if names.len() == 1 {
            fake.put_cluster_after_write(cluster("them", "other", Some("a")));
        }
        let change = |request: &mut AttemptRequest<'_>| request.count = names.len();
        let error = run(attempt_by(&fake, names, "us", change)).unwrap_err();
        assert_eq!(
            error.full_message(),
            "it is unknown whether a is leased (to find out, run the same command again): cannot end the lease of a: 32 \
             attempts failed, because another client changed the object each time"
        );
    }
}

#[test]
fn an_entry_that_another_client_leases_after_the_list_is_skipped_without_a_write() {
    let names = ["a", "b"];
    let (first, _) = taken(&Fake::free(&names));
    let fake = Fake::free(&names);
    fake.put_late(&first, &reserved("them"), 1);
    let (second, _) = taken(&fake);
    assert_ne!(second, first);
    assert_eq!(*fake.writes.borrow(), [second]);
}

/// A release that was decided before a lease was confirmed cannot be stored after the confirmation.
#[test]
fn the_server_refuses_a_release_decided_before_a_confirmation() {
    use crate::objects::entry::EntryStatus as _;
    let fake = Fake::free(&["a"]);
    fake.put("a", &reserved("us"));
    let release = fake.entry("a").free(fake.now().latest);
    assert_eq!(taken(&fake), ("a".to_owned(), true));
    fake.arrive("a", &release);
    assert_eq!(fake.holder("a").as_deref(), Some("us"));
}

#[test]
fn a_broken_entry_is_skipped_and_reported() {
    let fake = Fake::free(&["a"]);
    fake.put_spec(
        "a",
        &json!({"installConfigPatches": [{"op": "remove", "path": "/absent"}]}),
    );
    let install_config = InstallConfig::new(json!({}));
    let outcome = run(async {
        let clusters = fake.clusters().await.unwrap();
        let request = AttemptRequest {
            install_config: Some(&install_config),
            ..request(&["a"], &clusters, "us")
        };
        attempt(&fake, request).await.unwrap().outcome
    });
    assert_eq!(outcome.broken_entries().into_iter().collect::<Vec<_>>(), ["a"]);
    assert_eq!(fake.status("a")["conditions"][0]["reason"], "BrokenBySyntax");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Many lessees at once, in any order of their requests.
    #[test]
    fn two_holders_never_get_the_same_entry(seed in any::<u64>(), entries in 1_usize..5, ended in 0_usize..3) {
        let names: Vec<String> = (0..entries).map(|number| format!("e{number}")).collect();
        let fake = Fake::shuffled(&names, seed);
        for name in names.iter().take(ended) {
            fake.put(name, &leased(&gone("them", LONG_AGO))["status"]);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let lessees = ["p", "q", "r", "s", "t"];
        let won = run(async {
            let [p, q, r, s, t] = lessees.map(|lessee| attempt_by(&fake, &names, lessee, |_| {}));
            let (p, q, r, s, t) = tokio::join!(p, q, r, s, t);
            [p, q, r, s, t].map(|attempt| match attempt.unwrap().outcome {
                AttemptOutcome::Leased(leased) => Some(leased.customization),
                _ => None,
            })
        });
        let mut taken: Vec<&String> = won.iter().flatten().collect();
        prop_assert_eq!(taken.len(), entries.min(lessees.len()));
        taken.sort();
        taken.dedup();
        prop_assert_eq!(taken.len(), entries.min(lessees.len()), "{:?}", won);
        for (lessee, entry) in lessees.iter().zip(&won) {
            prop_assert_eq!(fake.held_by(lessee), entry.iter().cloned().collect::<Vec<_>>());
        }
    }
}

/// A lessee that waits, and the only entries that it accepts; `None` for any.
type Lessee = (&'static str, Option<&'static [&'static str]>);

fn of_any(holder: &'static str) -> Lessee {
    (holder, None)
}

fn of_some(holder: &'static str, entries: &'static [&'static str]) -> Lessee {
    (holder, Some(entries))
}

/// The request selects all entries.
const ALL: [&[&str]; 2] = [&NAMES, &[]];

/// The outcome for `us` if these lessees wait: the entry, or how many are free for others.
fn outcome_in_queue(
    fake: &Fake,
    waiting: &[Lessee],
    [names, unselected]: [&[&str]; 2],
    overtaken: &[Place],
) -> String {
    *fake.queue.borrow_mut() = json!({ "annotations": joined(fake, waiting).1 });
    let attempted = async {
        let clusters = fake.clusters().await.unwrap();
        let request = AttemptRequest {
            unselected,
            overtaken,
            ..request(names, &clusters, "us")
        };
        attempt(fake, request).await.unwrap().outcome
    };
    match run(attempted) {
        AttemptOutcome::Leased(leased) => leased.customization,
        AttemptOutcome::Exhausted(entries) => {
            let free = entries
                .iter()
                .filter(|(_, availability)| *availability == Availability::Free);
            format!("{} free for others", free.count())
        }
        other => panic!("{other:?}"),
    }
}

/// The places of these lessees, and their annotations.
fn joined(fake: &Fake, waiting: &[Lessee]) -> (Vec<Place>, Map<String, Value>) {
    let (mut places, mut annotations) = (Vec::new(), Map::new());
    let mut queue = Queue::default();
    let now = fake.now();
    for (holder, accepted) in waiting {
        let accepted = accepted.map(|names| EntrySet::new(names.iter().copied()));
        let place = queue
            .place_to_write(holder, None, accepted.as_ref(), 1, waiting.len(), now)
            .unwrap();
        annotations.extend(queue.annotations_with("pool", &place, now));
        places.push(place.clone());
        queue = queue.with(place);
    }
    (places, annotations)
}

#[test]
fn a_request_leaves_free_entries_to_those_who_have_waited_longer() {
    for (waiting, overtaken, is_leased) in [
        (&[][..], 0, true),
        (&[of_any("paris")], 0, false),
        (&[of_any("us"), of_any("paris")], 0, true),
        (&[of_any("paris"), of_any("us")], 0, false),
        (&[of_any("paris"), of_any("us")], 1, true),
        (&[of_any("paris"), of_any("rome")], 1, false),
        // This lessee holds an entry, so it does not wait.
        (&[of_any("them")], 0, true),
        (&[of_some("paris", &["b", "c"])], 0, true),
        (&[of_some("paris", &["a", "b"])], 0, false),
        (&[of_some("paris", &[])], 0, true),
    ] {
        let fake = Fake::free(&["a"]);
        fake.put("b", &reserved("them"));
        fake.put("c", &reserved("those"));
        let (places, _) = joined(&fake, waiting);
        let found = outcome_in_queue(&fake, waiting, ALL, &places[..overtaken]);
        let expected = if is_leased { "a" } else { "1 free for others" };
        assert_eq!(found, expected, "{waiting:?} {overtaken}");
    }
    let three = [of_any("paris"), of_any("rome"), of_any("bern")];
    let fake = Fake::free(&NAMES);
    assert_eq!(outcome_in_queue(&fake, &three, ALL, &[]), "3 free for others");
    assert_eq!(outcome_in_queue(&fake, &three[..2], ALL, &[]).len(), 1);
    // The holder's own cluster uses the entry, so no other lessee can get it.
    let fake = Fake::free(&NAMES);
    fake.put_cluster(cluster("us", "pool", Some("b")));
    assert_eq!(outcome_in_queue(&fake, &three, ALL, &[]), "b");
}

#[test]
fn a_request_for_one_entry_counts_the_other_free_entries() {
    let waiting = [of_any("paris"), of_any("rome")];
    for (unselected, used, expected) in [
        (&["b", "c"][..], None, "a"),
        (&["b"], None, "1 free for others"),
        // A cluster uses the entry, so the lessees ahead cannot get it.
        (&["b", "c"], Some("c"), "1 free for others"),
    ] {
        let fake = Fake::free(&NAMES);
        if let Some(used) = used {
            fake.put_cluster(cluster("oslo", "pool", Some(used)));
        }
        let found = outcome_in_queue(&fake, &waiting, [&["a"], unselected], &[]);
        assert_eq!(found, expected, "{unselected:?} {used:?}");
    }
}

#[test]
fn only_the_lessees_that_were_overtaken_are_passed() {
    let fake = Fake::free(&["a"]);
    fake.put("b", &reserved("them"));
    let waiting = [of_any("paris"), of_any("us")];
    // Another lessee under the same name began to wait at another time.
    let (mut places, _) = joined(&fake, &waiting);
    places[0].since += Duration::from_millis(1);
    let found = outcome_in_queue(&fake, &waiting, ALL, &places[..1]);
    assert_eq!(found, "1 free for others");
}

#[test]
fn an_entry_that_must_be_cleaned_is_not_leased_after_its_lease() {
    let expected = "v1 holder=them since=2026-11-21T05:00:00Z janitor=- deadline=- failures=0 user=jane";
    for (reuse, of_other, expected) in [
        (Reuse::Free, None, None),
        (Reuse::Clean, None, Some(expected)),
        (Reuse::Clean, Some(Reuse::Free), None),
        (Reuse::Free, Some(Reuse::Clean), Some(expected)),
        (Reuse::Free, Some(Reuse::Unknown), Some("")),
    ] {
        let fake = Fake::free(&["a"]);
        let mut status = leased(&gone("them", LONG_AGO))["status"].clone();
        if let Some(of_other) = of_other {
            status["clusterPoolRef"]["name"] = "other".into();
            fake.reuse.borrow_mut().insert("other".to_owned(), of_other);
        }
        fake.put("a", &status);
        let outcome = run(attempt_by(&fake, &["a"], "us", |request| request.reuse = reuse))
            .unwrap()
            .outcome;
        match (&outcome, expected) {
            (AttemptOutcome::Leased(_), None) => {}
            (AttemptOutcome::Exhausted(entries), Some("")) => {
                let pool_unknown = UnusableReason::PoolUnknown("other".to_owned());
                assert_eq!(entries[0].1, Availability::Unusable(pool_unknown));
                assert_eq!(fake.status("a"), status, "nothing is written");
            }
            (AttemptOutcome::Exhausted(entries), Some(expected)) => {
                let Availability::Cleaning(record) = &entries[0].1 else {
                    panic!("{entries:?}")
                };
                assert_eq!(record.message(), expected);
                assert_eq!(
                    fake.entry("a").status.reservation(),
                    Reservation::Cleaning(record.clone())
                );
                assert_eq!(fake.status("a")["clusterPoolRef"], status["clusterPoolRef"]);
                assert_eq!(fake.holder("a"), None);
            }
            other => panic!("{reuse:?} {of_other:?}: {other:?}"),
        }
    }
}

#[test]
fn the_last_holder_gets_no_entry_either_before_it_was_cleaned() {
    for count in [1, 2] {
        let fake = Fake::free(&["a", "b", "c"]);
        fake.put("a", &leased(&gone("us", LONG_AGO))["status"]);
        let change = |request: &mut AttemptRequest<'_>| {
            request.reuse = Reuse::Clean;
            request.count = count;
        };
        let outcome = run(attempt_by(&fake, &["a", "b", "c"], "us", change))
            .unwrap()
            .outcome;
        let names: Vec<&str> = outcome
            .leased()
            .iter()
            .map(|leased| leased.customization.as_str())
            .collect();
        assert_eq!(names.len(), count, "{outcome:?}");
        assert!(!names.contains(&"a"), "{outcome:?}");
    }
    let fake = Fake::free(&["a"]);
    fake.put("a", &leased(&gone("us", LONG_AGO))["status"]);
    let outcome = run(attempt_by(&fake, &["a"], "us", |request| {
        request.reuse = Reuse::Clean;
    }))
    .unwrap()
    .outcome;
    assert!(
        matches!(&outcome, AttemptOutcome::Exhausted(entries) if matches!(entries[0].1, Availability::Cleaning(_))),
        "{outcome:?}"
    );
}
