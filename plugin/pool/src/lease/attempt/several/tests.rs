//! Several entries at once, under contention and with faults.

use std::{collections::BTreeMap, time::Duration};

use kcp_client::Error;
use serde_json::{Value, json};

use super::super::{Attempt, AttemptOutcome, AttemptRequest, LeasedSet, attempt};
use crate::{
    install_config::InstallConfig,
    lease::{
        LeaseError,
        choice::Availability,
        queue::{EntrySet, Queue},
    },
    objects::entry::EntryStatus as _,
    store::LeaseStore as _,
    testing::{
        attempts::{attempt_by, request, run},
        fake::{Fake, Fault, reserved},
        objects::{LONG_AGO, cluster, gone, lease, leased},
    },
};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

async fn attempt_set(fake: &Fake, holder: &str, count: usize) -> Result<Attempt, LeaseError> {
    attempt_by(fake, &NAMES, holder, |request| request.count = count).await
}

fn outcome(fake: &Fake, count: usize) -> AttemptOutcome {
    run(attempt_set(fake, "us", count)).unwrap().outcome
}

fn names(set: &LeasedSet) -> String {
    let names = set.entries.iter().map(|leased| leased.customization.as_str());
    names.collect()
}

/// The names of the set that `us` has afterwards, and of those that it had before.
fn taken(fake: &Fake, count: usize) -> (String, String) {
    match outcome(fake, count) {
        AttemptOutcome::LeasedSet(set) => {
            for leased in &set.entries {
                assert_eq!(leased.record, fake.record(&leased.customization));
            }
            assert_eq!(fake.held_by("us").concat(), names(&set));
            let before = set.entries.iter().filter(|leased| leased.was_already_held);
            (
                names(&set),
                before.map(|leased| leased.customization.as_str()).collect(),
            )
        }
        other => panic!("{other:?}"),
    }
}

/// The states of a refusal, such as `free`, `ours` or a holder.
fn refused(outcome: AttemptOutcome) -> Vec<String> {
    let AttemptOutcome::Exhausted(states) = outcome else {
        panic!("{outcome:?}");
    };
    let text = |state: Availability| match state {
        Availability::Free => "free".to_owned(),
        Availability::Ours => "ours".to_owned(),
        Availability::Held {
            cluster_deployment, ..
        } => cluster_deployment.unwrap(),
        other => format!("{other:?}"),
    };
    states.into_iter().map(|(_, state)| text(state)).collect()
}

#[test]
fn each_entry_is_one_write_and_has_an_id_of_its_own() {
    let fake = Fake::free(&NAMES);
    assert_eq!(taken(&fake, 3), ("abc".to_owned(), String::new()));
    assert_eq!(*fake.writes.borrow(), ["a", "b", "c"]);
    let ids: std::collections::BTreeSet<_> = ["a", "b", "c"].map(|name| fake.record(name).id).into();
    assert_eq!(ids.len(), 3);
}

#[test]
fn the_same_request_returns_the_same_entries() {
    let fake = Fake::free(&NAMES);
    taken(&fake, 2);
    let ids = ["a", "b"].map(|name| fake.record(name).id);
    assert_eq!(taken(&fake, 2), ("ab".to_owned(), "ab".to_owned()));
    for (name, id) in ["a", "b"].into_iter().zip(ids) {
        let record = fake.record(name);
        assert_eq!((record.id, record.renewals), (id, 1), "{name}");
    }
    // More are wanted, as after a process that was killed between two writes.
    assert_eq!(taken(&fake, 4), ("abcd".to_owned(), "ab".to_owned()));
    let held = AttemptOutcome::HeldMore {
        customizations: NAMES.map(str::to_owned).into(),
    };
    let writes = fake.writes.borrow().len();
    assert_eq!(outcome(&fake, 2), held);
    let refused = run(attempt_by(&fake, &NAMES, "us", |request| {
        (request.count, request.must_be_new) = (4, true);
    }));
    let held = AttemptOutcome::AlreadyHeld {
        customization: "a, b, c, d".to_owned(),
    };
    assert_eq!(refused.unwrap().outcome, held);
    assert_eq!(fake.writes.borrow().len(), writes);
    // A request for one entry returns the first.
    assert!(matches!(outcome(&fake, 1), AttemptOutcome::Leased(leased) if leased.customization == "a"));
}

#[test]
fn nothing_is_taken_if_too_few_are_free() {
    let fake = Fake::free(&NAMES);
    for name in ["a", "c"] {
        fake.put(name, &reserved("them"));
    }
    assert_eq!(refused(outcome(&fake, 3)), ["them", "free", "them", "free"]);
    assert!(fake.writes.borrow().is_empty());
    assert_eq!(taken(&fake, 2).0, "bd");
    // An earlier process of this holder was killed. Another one may use what it took.
    assert_eq!(refused(outcome(&fake, 3)), ["them", "ours", "them", "ours"]);
    assert_eq!(fake.held_by("us"), ["b", "d"]);
}

#[test]
fn an_attempt_that_is_overtaken_gives_back_what_it_has_taken() {
    // Each number is that of the write before which another client leases the entry.
    for (overtaken, count, expected) in [
        (&[0][..], 3, Some("bcd")),
        (&[1], 3, Some("acd")),
        (&[2], 3, Some("abd")),
        (&[0, 1], 3, None),
        (&[0, 2], 3, None),
        (&[1, 3], 3, None),
        (&[2, 3], 3, None),
        (&[1, 2], 2, Some("ad")),
        (&[0], 4, None),
        (&[3], 4, None),
    ] {
        let faults: Vec<_> = (0..5)
            .map(|write| overtaken.contains(&write).then_some(Fault::Overtaken))
            .collect();
        let fake = Fake::free(&NAMES).with_faults(&faults);
        let found = outcome(&fake, count);
        let ours = fake.held_by("us").concat();
        if let Some(expected) = expected {
            assert!(matches!(&found, AttemptOutcome::LeasedSet(set) if names(set) == expected));
            assert_eq!(ours, expected, "{overtaken:?}");
        } else {
            let states = refused(found);
            let theirs = fake.held_by("them");
            let expected = NAMES.map(|name| {
                let is_theirs = theirs.iter().any(|theirs| theirs == name);
                if is_theirs { "them" } else { "free" }
            });
            assert_eq!((states, ours.as_str()), (expected.map(str::to_owned).into(), ""));
        }
    }
}

#[test]
fn only_what_the_attempt_itself_has_taken_is_given_back() {
    let fake = Fake::free(&NAMES).with_faults(&[None, Some(Fault::Overtaken)]);
    for (name, holder) in [("b", "us"), ("d", "them")] {
        fake.put(name, &reserved(holder));
    }
    assert_eq!(refused(outcome(&fake, 3)), ["free", "ours", "them", "them"]);
    assert_eq!(fake.held_by("us"), ["b"]);
    assert_eq!(
        fake.record("b").renewals,
        0,
        "it is confirmed only together with the others"
    );
}

#[test]
fn faulty_writes_lease_all_or_none() {
    for fault in [
        Fault::AnswerLost,
        Fault::RequestLost,
        Fault::RequestLostThenOvertaken,
        Fault::ArrivesLate(0),
        Fault::ArrivesLate(1),
        Fault::ArrivesLate(3),
        Fault::Touched,
    ] {
        for write in 0..3 {
            let mut faults = vec![None; write];
            faults.push(Some(fault));
            let fake = Fake::free(&NAMES).with_faults(&faults);
            taken(&fake, 3);
            fake.settle();
            assert_eq!(fake.held_by("us").len(), 3, "{fault:?} {write}");
            // The fault hits the write that gives back an entry, or one before it.
            let mut faults = vec![None, Some(Fault::Overtaken)];
            faults.insert(write, Some(fault));
            let fake = Fake::free(&["a", "b", "c"]).with_faults(&faults);
            refused(outcome(&fake, 3));
            fake.settle();
            assert_eq!(fake.held_by("us").len(), 0, "{fault:?} {write}");
        }
    }
}

#[test]
fn an_attempt_that_fails_gives_back_what_it_has_taken() {
    let fake = Fake::free(&NAMES).with_faults(&[None, None, Some(Fault::Forbidden)]);
    let error = run(attempt_set(&fake, "us", 3)).unwrap_err();
    assert!(
        matches!(error, LeaseError::Api(Error::Forbidden { .. })),
        "{error:?}"
    );
    assert!(fake.held_by("us").is_empty());
    assert_eq!(*fake.writes.borrow(), ["a", "b", "c", "b", "a"]);
}

#[test]
fn an_entry_that_a_cluster_uses_is_replaced_by_another() {
    let fake = Fake::free(&NAMES);
    fake.put_cluster_after_write(cluster("them", "other", Some("a")));
    assert_eq!(taken(&fake, 2), ("bc".to_owned(), String::new()));
    assert_eq!(fake.holder("a").as_deref(), Some("them"));
    // The cluster of the holder uses one entry, so that it is one of the set.
    let fake = Fake::free(&NAMES);
    fake.put_cluster(cluster("us", "pool", Some("c")));
    assert_eq!(taken(&fake, 2), ("ac".to_owned(), String::new()));
    // The lease of one has ended.
    let fake = Fake::free(&NAMES);
    fake.put("a", &leased(&gone("them", LONG_AGO))["status"]);
    assert_eq!(taken(&fake, 4).0, "abcd");
}

#[test]
fn entries_whose_patches_do_not_fit_are_skipped_in_one_round() {
    let install_config = InstallConfig::new(json!({}));
    let attempted = |count| {
        let fake = Fake::free(&NAMES);
        for name in ["a", "c"] {
            let patches = json!({"installConfigPatches": [{"op": "remove", "path": "/absent"}]});
            fake.put_spec(name, &patches);
        }
        let outcome = run(async {
            let clusters = fake.clusters().await.unwrap();
            let request = AttemptRequest {
                count,
                install_config: Some(&install_config),
                ..request(&NAMES, &clusters, "us")
            };
            attempt(&fake, request).await.unwrap().outcome
        });
        assert_eq!(fake.held_by("us").len(), outcome.leased().len());
        outcome
    };
    let refused = attempted(3);
    assert_eq!(
        refused.broken_entries().into_iter().collect::<Vec<_>>(),
        ["a", "c"]
    );
    assert!(matches!(refused, AttemptOutcome::Exhausted(_)), "{refused:?}");
    let AttemptOutcome::LeasedSet(set) = attempted(2) else {
        panic!("not leased");
    };
    assert_eq!(names(&set), "bd");
    let skipped: String = set.patch_problems.keys().map(String::as_str).collect();
    assert_eq!(skipped, "ac");
    assert!(set.entries.iter().all(|leased| leased.patch_problems.is_empty()));
}

#[test]
fn enough_entries_are_left_for_those_who_have_waited_longer() {
    for (waiting, count, is_leased) in [
        (&[("rome", 2, None)][..], 2, true),
        (&[("rome", 2, None)], 3, false),
        (&[("rome", 3, None)], 2, false),
        (&[("rome", 3, None)], 1, true),
        (&[("rome", 4, None)], 1, false),
        (&[("us", 2, None), ("rome", 4, None)], 2, true),
        (&[("rome", 1, None), ("us", 4, None)], 4, false),
        (&[("rome", 3, Some(&["a", "b", "c"][..]))], 1, true),
        (&[("rome", 3, Some(&["a", "b", "c"]))], 2, false),
    ] {
        let fake = Fake::free(&NAMES);
        let (mut annotations, mut queue) = (serde_json::Map::new(), Queue::default());
        for (holder, count, accepted) in waiting {
            let accepted = accepted.map(|names: &[&str]| EntrySet::new(names.iter().copied()));
            let place = queue
                .place_to_write(holder, None, accepted.as_ref(), *count, waiting.len(), fake.now())
                .unwrap();
            annotations.extend(queue.annotations_with("pool", &place, fake.now()));
            queue = queue.with(place);
        }
        *fake.queue.borrow_mut() = json!({ "annotations": annotations });
        let found = outcome(&fake, count);
        assert_eq!(
            !found.leased().is_empty(),
            is_leased,
            "{waiting:?} {count}: {found:?}"
        );
    }
}

/// Two processes under the same name have the same set.
#[test]
fn two_processes_of_one_holder_get_the_same_entries() {
    for seed in 0..200 {
        let fake = Fake::shuffled(&NAMES, seed);
        let sets = run(async {
            let [one, other] = [(), ()].map(|()| attempt_set(&fake, "us", 2));
            let (one, other) = tokio::join!(one, other);
            [one, other].map(|attempt| match attempt.unwrap().outcome {
                AttemptOutcome::LeasedSet(set) => names(&set),
                other => panic!("{seed}: {other:?}"),
            })
        });
        assert_eq!(
            sets,
            [fake.held_by("us").concat(), fake.held_by("us").concat()],
            "{seed}"
        );
        assert_eq!(fake.held_by("us").len(), 2, "{seed}");
    }
}

/// What an actor did in a round.
#[derive(Debug, PartialEq)]
enum Done {
    Served,
    Refused,
    Killed,
}

/// Leases, or is killed after this number of steps. A set that was leased is checked, and released or kept.
async fn act(fake: &Fake, holder: &str, random: u64) -> Done {
    let count = if random.is_multiple_of(2) { 2 } else { 3 };
    let steps = (random >> 8) % 120;
    let killed = async {
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        if !(random >> 16).is_multiple_of(4) {
            std::future::pending::<()>().await;
        }
    };
    let attempted = tokio::select! {
        biased;
        () = killed => return Done::Killed,
        attempted = attempt_set(fake, holder, count) => attempted.unwrap(),
    };
    let set = match attempted.outcome {
        AttemptOutcome::LeasedSet(set) => set,
        AttemptOutcome::Exhausted(_) => return Done::Refused,
        other => panic!("{other:?}"),
    };
    assert_eq!(fake.held_by(holder).concat(), names(&set));
    assert_eq!(set.entries.len(), count);
    for _ in 0..(random >> 24) % 20 {
        tokio::task::yield_now().await;
        for leased in &set.entries {
            assert_eq!(fake.record(&leased.customization), leased.record, "{holder}");
        }
    }
    if !(random >> 32).is_multiple_of(3) {
        for leased in &set.entries {
            let entry = fake.entry(&leased.customization);
            fake.arrive(&leased.customization, &entry.free(fake.now().latest));
        }
    }
    Done::Served
}

/// Each round ends, no entry has two holders, and whoever was not killed has all of its entries or none.
#[test]
fn sets_that_overlap_are_leased_all_or_none_in_any_order_of_requests() {
    const ROUNDS: u64 = 2_000;
    const ACTORS: [&str; 4] = ["p", "q", "r", "s"];
    let (mut served, mut rounds_without) = (0, 0);
    run(async {
        for seed in 0..ROUNDS {
            let random =
                |actor: u64| crate::lease::choice::stable_hash(&[&seed.to_string(), &actor.to_string()]);
            let fake = Fake::shuffled(&NAMES, seed);
            let [p, q, r, s] = ACTORS;
            let acting = async {
                tokio::join!(
                    act(&fake, p, random(0)),
                    act(&fake, q, random(1)),
                    act(&fake, r, random(2)),
                    act(&fake, s, random(3))
                )
            };
            let done = tokio::time::timeout(Duration::from_secs(60), Box::pin(acting)).await;
            let done = done.unwrap_or_else(|_| panic!("round {seed} does not end"));
            let done: [Done; 4] = done.into();
            let held: BTreeMap<_, _> = ACTORS.map(|actor| (actor, fake.held_by(actor))).into();
            for (index, (actor, done)) in ACTORS.iter().zip(&done).enumerate() {
                let count = if random(index as u64).is_multiple_of(2) {
                    2
                } else {
                    3
                };
                let held = held[actor].len();
                let is_right = match done {
                    Done::Served => held == count || held == 0,
                    Done::Refused => held == 0,
                    Done::Killed => held <= count,
                };
                assert!(
                    is_right,
                    "round {seed}: {actor} was {done:?} and holds {held} of {count}"
                );
            }
            let all = done.iter().filter(|done| **done == Done::Served).count();
            served += all;
            rounds_without += usize::from(all == 0);
            // The same request again completes the set of a killed actor, if the missing ones are free.
            for (index, (actor, done)) in ACTORS.iter().zip(&done).enumerate() {
                let count = if random(index as u64).is_multiple_of(2) {
                    2
                } else {
                    3
                };
                let free = NAMES.iter().filter(|name| fake.holder(name).is_none()).count();
                let before = fake.held_by(actor);
                if *done == Done::Killed && before.len() + free >= count {
                    let again = attempt_set(&fake, actor, count).await.unwrap();
                    assert_eq!(again.outcome.leased().len(), count, "round {seed}: {actor}");
                    break;
                }
            }
        }
    });
    println!("{served} served; {rounds_without} of {ROUNDS} rounds served nobody");
    assert!(served > 2_000, "{served}");
}

/// Another process of the holder leases the entry again.
#[test]
fn an_entry_whose_lease_another_process_has_changed_is_not_given_back() {
    // The first round takes `a`, and others take `b`.
    let fake = Fake::free(&["a", "b"]).with_faults(&[None, Some(Fault::Overtaken)]);
    let confirmed: Value = {
        let mut record = lease("us", Some("2026-11-22T05:00:00Z"));
        record.renewals = 1;
        leased(&record)["status"].clone()
    };
    // clusters, list, queue, get a, write a, clusters, get b: then the other process writes.
    fake.put_late("a", &confirmed, 7);
    let found = outcome(&fake, 2);
    assert!(matches!(found, AttemptOutcome::Exhausted(_)), "{found:?}");
    assert_eq!(fake.held_by("us"), ["a"]);
}
