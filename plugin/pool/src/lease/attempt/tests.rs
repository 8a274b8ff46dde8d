//! Leases under contention and faults.

use std::{collections::BTreeSet, rc::Rc};

use kcp_client::Written;
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use serde_json::{Value, json};
use tokio::task::LocalSet;

use crate::{
    install_config::{InstallConfig, patches::Unfit},
    inventory::choice::{Candidate, Standing},
    lease::{AttemptOutcome, AttemptRequest, LeaseError, Leased, Unfits, attempt::attempt},
    objects::{
        cluster_deployment::{Deployment, References},
        entry::Holder,
        record::{LeaseClaim, first},
    },
    release::{in_use::Users, release_entries},
    store::Customizations as _,
    testing::fake::{Fake, Fault, reserved},
};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn holder(name: &str) -> Holder<'_> {
    Holder {
        pool: "pool",
        cluster_deployment: name,
    }
}

fn claim(name: &str) -> LeaseClaim<'_> {
    LeaseClaim {
        holder: holder(name),
        duration: None,
        cluster_deployment_uid: None,
        is_creating: false,
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

async fn outcome_of(fake: &Fake, request: AttemptRequest<'_>) -> Result<AttemptOutcome, LeaseError> {
    attempt(fake, request).await.map(|attempt| attempt.outcome)
}

fn lease_one(fake: &Fake, names: &[&str]) -> Result<AttemptOutcome, LeaseError> {
    block_on(outcome_of(fake, request(names, claim("us"))))
}

fn request<'r>(names: &'r [&'r str], claim: LeaseClaim<'r>) -> AttemptRequest<'r> {
    AttemptRequest {
        names,
        references: None,
        claim,
        install_config: None,
        is_new: false,
        is_run_by_hive: false,
    }
}

fn leased(name: &str) -> AttemptOutcome {
    AttemptOutcome::Leased(plain(name, false))
}

/// A lease without an install-config.
fn plain(name: &str, already: bool) -> Leased {
    Leased {
        customization: name.to_owned(),
        already,
        patched: None,
        unfit: Unfits::new(),
    }
}

/// The order in which `us` tries three entries that have never been used: see the model's tests.
const ORDER: [&str; 3] = ["b", "c", "a"];

#[test]
fn one_write_when_nobody_else_is_there() {
    let fake = Fake::free(&NAMES);
    assert_eq!(lease_one(&fake, &NAMES).unwrap(), leased(ORDER[0]));
    assert_eq!(*fake.writes.borrow(), [ORDER[0]]);
    assert_eq!(fake.holder(ORDER[0]).as_deref(), Some("us"));
}

/// The name of its record would be longer than the server takes.
#[test]
fn a_name_too_long_for_a_record_is_passed_over() {
    let (short, long) = ("n".repeat(244), "n".repeat(245));
    let fake = Fake::free(&[&short, &long]);
    let unfit = || Unfits::from([(long.clone(), Unfit::Unrecordable)]);
    let expected = AttemptOutcome::Leased(Leased {
        unfit: unfit(),
        ..plain(&short, false)
    });
    assert_eq!(lease_one(&fake, &[&long, &short]).unwrap(), expected);
    let none = AttemptOutcome::Exhausted(vec![(long.clone(), Standing::Unfit(Unfit::Unrecordable))]);
    assert_eq!(lease_one(&Fake::free(&[&long]), &[&long]).unwrap(), none);
}

#[test]
fn leasing_twice_is_leasing_once() {
    let fake = Fake::free(&NAMES);
    lease_one(&fake, &NAMES).unwrap();
    let again = AttemptOutcome::Leased(plain(ORDER[0], true));
    assert_eq!(lease_one(&fake, &NAMES).unwrap(), again);
    assert_eq!(fake.held_by("us"), [ORDER[0]]);
    assert_eq!(*fake.writes.borrow(), [ORDER[0]; 2]);
}

/// A release or a repair that was decided before a lease was reported again is refused, whatever happens to the writes.
#[test]
fn no_lease_is_told_that_a_write_of_before_could_end() {
    for faults in [
        &[][..],
        &[Some(Fault::AnswerLost)],
        &[Some(Fault::RequestLost)],
        &[Some(Fault::ArrivesLate(1))],
        &[Some(Fault::ArrivesLate(3))],
        &[Some(Fault::Touched)],
        &[Some(Fault::Touched), Some(Fault::AnswerLost)],
    ] {
        let fake = Fake::free(&NAMES);
        lease_one(&fake, &NAMES).unwrap();
        let fake = fake.with_faults(faults);
        let before = block_on(fake.get(ORDER[0])).unwrap().unwrap();
        let patches = [
            before.release(fake.now()),
            before.reserve(holder("them"), fake.now()),
        ];
        let again = AttemptOutcome::Leased(plain(ORDER[0], true));
        assert_eq!(lease_one(&fake, &NAMES).unwrap(), again, "{faults:?}");
        for patch in patches {
            let late = fake.arrive(ORDER[0], &patch);
            assert!(matches!(late, Written::Changed), "{faults:?}: {late:?}");
        }
        fake.settle();
        assert_eq!(fake.held_by("us"), [ORDER[0]], "{faults:?}");
    }
}

/// If such a write is stored first, it ends the earlier lease, and the entry is leased again.
#[test]
fn what_was_freed_meanwhile_is_taken_anew() {
    let fake = Fake::free(&NAMES);
    lease_one(&fake, &NAMES).unwrap();
    let taken = block_on(async {
        let entry = fake.get(ORDER[0]).await.unwrap().unwrap();
        let held = Candidate {
            entry: &entry,
            record: None,
        };
        fake.arrive(ORDER[0], &entry.release(fake.now()));
        super::lease_again(&fake, held, request(&NAMES, claim("us"))).await
    });
    assert_eq!(taken.unwrap(), None);
    assert_eq!(lease_one(&fake, &NAMES).unwrap(), leased(ORDER[0]));
}

#[test]
fn one_holder_gets_no_second_entry() {
    let fake = Fake::free(&NAMES);
    fake.put("a", &reserved("us"));
    assert_eq!(
        lease_one(&fake, &["b"]).unwrap(),
        AttemptOutcome::Leased(plain("a", true))
    );
    let fake = Fake::free(&NAMES);
    let deployment = Deployment {
        name: "us".to_owned(),
        pool: "pool".to_owned(),
    };
    let references = References::from([("a".to_owned(), [deployment].into())]);
    let request = AttemptRequest {
        references: Some(&references),
        ..request(&["b"], claim("us"))
    };
    let bound = AttemptOutcome::Bound {
        customization: "a".to_owned(),
        standing: Standing::Unnamed,
    };
    assert_eq!(block_on(outcome_of(&fake, request)).unwrap(), bound);
    assert_eq!(fake.held_by("us"), Vec::<String>::new());
}

/// Of two lessees whose clocks are further apart than a record is fresh one replaces the other's record, and the other
/// is faster.
#[test]
fn who_is_faster_after_all_keeps_its_record() {
    let fake = Fake::free(&["a", "b"]).with_faults(&[Some(Fault::Overtaken)]);
    let by_another_clock = fake.now() - jiff::SignedDuration::from_secs(11);
    let theirs = LeaseClaim {
        duration: Some(std::time::Duration::from_secs(60)),
        ..claim("them")
    };
    fake.put_record(first("b", theirs, by_another_clock));
    let before = fake.recorded("b").unwrap();
    assert_eq!(lease_one(&fake, &["a", "b"]).unwrap(), leased("a"));
    let after = fake.recorded("b").unwrap();
    assert!(after.names(holder("them")));
    assert_eq!(
        (after.duration(), after.expires()),
        (before.duration(), before.expires())
    );
}

#[test]
fn what_somebody_else_holds_by_the_same_name_is_left_alone() {
    let fake = Fake::free(&NAMES);
    fake.put("a", &reserved("us"));
    let request = AttemptRequest {
        is_new: true,
        ..request(&NAMES, claim("us"))
    };
    let before = AttemptOutcome::HeldBefore {
        customization: "a".to_owned(),
    };
    assert_eq!(block_on(outcome_of(&fake, request)).unwrap(), before);
    assert_eq!(fake.record_holder("a"), None);
    assert_eq!(fake.writes.borrow().len(), 0);
}

#[test]
fn of_two_who_want_a_new_lease_by_one_name_one_gets_it() {
    for seed in 0..100 {
        let fake = Fake::shuffled(&NAMES.map(str::to_owned), seed);
        let request = AttemptRequest {
            is_new: true,
            ..request(&NAMES, claim("us"))
        };
        let (one, other) =
            block_on(async { tokio::join!(outcome_of(&fake, request), outcome_of(&fake, request)) });
        let outcomes = [one.unwrap(), other.unwrap()];
        let held: Vec<_> = fake.held_by("us");
        assert_eq!(held.len(), 1, "{seed}");
        let before = AttemptOutcome::HeldBefore {
            customization: held[0].clone(),
        };
        assert!(outcomes.contains(&before), "{seed} {outcomes:?}");
        assert!(outcomes.contains(&leased(&held[0])), "{seed} {outcomes:?}");
    }
}

#[test]
fn what_befalls_the_first_write() {
    for (fault, gets, writes) in [
        (Fault::Overtaken, ORDER[1], &ORDER[..2]),
        (Fault::Deleted, ORDER[1], &ORDER[..2]),
        (Fault::Touched, ORDER[1], &ORDER[..2]),
        (Fault::RequestLost, ORDER[0], &["b", "b"]),
        (Fault::ArrivesLate(0), ORDER[0], &ORDER[..1]),
        (Fault::ArrivesLate(1), ORDER[0], &["b", "b"]),
        (Fault::ArrivesLate(2), ORDER[0], &["b", "b"]),
        (Fault::RequestLostThenOvertaken, ORDER[1], &ORDER[..2]),
        (Fault::AnswerLost, ORDER[0], &ORDER[..1]),
    ] {
        let fake = Fake::free(&NAMES).with_faults(&[Some(fault)]);
        assert_eq!(lease_one(&fake, &NAMES).unwrap(), leased(gets), "{fault:?}");
        assert_eq!(*fake.writes.borrow(), writes, "{fault:?}");
    }
}

#[test]
fn all_refused_means_a_fresh_list_not_an_empty_pool() {
    let fake = Fake::free(&NAMES).with_faults(&[Some(Fault::Touched); 3]);
    assert_eq!(lease_one(&fake, &NAMES).unwrap(), leased(ORDER[0]));
    assert_eq!(*fake.writes.borrow(), ["b", "c", "a", "b"]);
}

#[test]
fn entries_that_change_too_fast_are_no_empty_pool() {
    let fake = Fake::free(&["a"]).with_faults(&[Some(Fault::Touched); 100]);
    let error = lease_one(&fake, &["a"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot lease from the inventory of pool: another client changed it before each of 32 attempts"
    );
    assert_eq!(fake.writes.borrow().len(), super::MAX_ROUNDS);
}

#[test]
fn a_write_that_may_be_stored_yet_keeps_other_entries_from_being_taken() {
    for (name, faults) in [
        ("none_arrives", [Some(Fault::RequestLost); 5]),
        ("all_arrive_at_last", [Some(Fault::ArrivesLate(1000)); 5]),
        ("refused_after_a_lost_answer", {
            let late = Some(Fault::ArrivesLate(1000));
            [late, Some(Fault::Forbidden), None, None, None]
        }),
    ] {
        let fake = Fake::free(&NAMES).with_faults(&faults);
        let error = lease_one(&fake, &NAMES).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown whether b is leased; run the same command again to find out",
            "{name}"
        );
        let sent: BTreeSet<_> = fake.writes.take().into_iter().collect();
        assert_eq!(sent, BTreeSet::from(["b".to_owned()]), "{name}");
        fake.settle();
        assert!(fake.held_by("us").len() <= 1, "{name}");
        let AttemptOutcome::Leased(Leased { customization, .. }) = lease_one(&fake, &NAMES).unwrap() else {
            panic!("{name}");
        };
        assert_eq!(fake.held_by("us"), [customization], "{name}");
    }
}

#[test]
fn a_version_that_has_passed_sets_the_search_free() {
    let fake = Fake::free(&NAMES).with_faults(&[Some(Fault::ArrivesLate(1000)), Some(Fault::Overtaken)]);
    assert_eq!(lease_one(&fake, &NAMES).unwrap(), leased(ORDER[1]));
    fake.settle();
    assert_eq!(fake.held_by("us"), [ORDER[1]]);
}

#[test]
fn an_incomplete_lease_is_completed() {
    for faults in [
        &[][..],
        &[Some(Fault::RequestLost)],
        &[Some(Fault::ArrivesLate(1))],
    ] {
        let fake = Fake::free(&NAMES).with_faults(faults);
        let mut unmarked = reserved("us");
        unmarked["conditions"][0]["status"] = "True".into();
        fake.put("c", &unmarked);
        assert_eq!(lease_one(&fake, &NAMES).unwrap(), leased("c"), "{faults:?}");
        assert_eq!(fake.status("c")["conditions"][0]["status"], "False");
        assert_eq!(fake.held_by("us"), ["c"]);
    }
}

#[test]
fn no_permission_is_no_contention() {
    let fake = Fake::free(&NAMES).with_faults(&[Some(Fault::Forbidden)]);
    let error = lease_one(&fake, &NAMES).unwrap_err();
    assert!(error.to_string().contains("forbidden"), "{error}");
    assert_eq!(fake.writes.borrow().len(), 1);
    assert_eq!(
        fake.record_holder(ORDER[0]),
        None,
        "it would keep others from the entry"
    );
}

#[test]
fn another_run_for_the_same_holder_was_faster() {
    let fake = Fake::free(&NAMES);
    let overtaken = block_on(async {
        let inventory = fake.list().await.unwrap();
        let stale: Vec<_> = inventory
            .iter()
            .filter(|entry| entry.name() == "b")
            .map(|entry| Candidate { entry, record: None })
            .collect();
        fake.put("b", &reserved("us"));
        let request = request(&["b"], claim("us"));
        let taken = super::try_each(&fake, &stale, request, &mut Unfits::new()).await;
        taken.unwrap().map(|(name, _)| name.to_owned())
    });
    assert_eq!(overtaken.as_deref(), Some("b"));
}

/// What an entry is named, and the patches that it has.
fn with_patches(entries: &[(&str, Value)]) -> Fake {
    let fake = Fake::default();
    for (name, patch) in entries {
        fake.put(name, &json!({}));
        fake.put_spec(name, &json!({"installConfigPatches": [patch]}));
    }
    fake
}

fn lease_patched(fake: &Fake) -> AttemptOutcome {
    let install_config = InstallConfig::parse(b"metadata: {name: generated}", "f").unwrap();
    let request = AttemptRequest {
        install_config: Some(&install_config),
        ..request(&NAMES, claim("us"))
    };
    block_on(outcome_of(fake, request)).unwrap()
}

fn rename(op: &str, path: &str) -> Value {
    json!({"op": op, "path": path, "value": "foo"})
}

/// `b` is the first that is tried, then `c`, then `a`.
#[test]
fn what_cannot_be_patched_is_passed_over() {
    let fake = with_patches(&[
        ("b", rename("replace", "/nowhere/name")),
        ("c", rename("replace", "/metadata/nmae")),
        ("a", rename("replace", "/metadata/name")),
    ]);
    let outcome = lease_patched(&fake);
    assert_eq!(outcome.broken(), BTreeSet::from(["b"]));
    let AttemptOutcome::Leased(leased) = outcome else {
        panic!();
    };
    assert_eq!(leased.customization, "a");
    let name = leased.patched.unwrap().install_config.value()["metadata"]["name"].clone();
    assert_eq!(name, "foo");
    assert_eq!(leased.unfit.keys().collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(
        fake.status("b"),
        json!({"conditions": [{
            "type": "ApplySucceeded", "status": "False", "reason": "BrokenBySyntax",
            "message": "spec.installConfigPatches[0] (replace \"/nowhere/name\"): its path does not exist",
            "lastTransitionTime": "2026-11-21T05:00:00Z",
        }]})
    );
    assert_eq!(fake.status("c"), json!({}), "Hive could apply it");
    assert_eq!(*fake.writes.borrow(), ["b", "a"]);
    lease_patched(&fake);
    assert_eq!(*fake.writes.borrow(), ["b", "a", "a"], "said once");
}

#[test]
fn a_pool_of_broken_entries_is_exhausted() {
    let broken = rename("paint", "/x");
    let fake = with_patches(&NAMES.map(|name| (name, broken.clone())));
    let outcome = lease_patched(&fake);
    assert_eq!(outcome.broken(), BTreeSet::from(NAMES));
    let AttemptOutcome::Exhausted(standings) = outcome else {
        panic!();
    };
    assert!(
        standings
            .iter()
            .all(|(_, standing)| matches!(standing, Standing::Unfit(_)))
    );
    assert_eq!(standings.len(), 3);
}

#[test]
fn what_is_held_is_kept_though_it_cannot_be_patched() {
    let fake = with_patches(&[("a", rename("remove", "/x")), ("b", rename("add", "/x"))]);
    fake.put("a", &reserved("us"));
    fake.put_spec("a", &json!({"installConfigPatches": [rename("remove", "/x")]}));
    let AttemptOutcome::HeldUnfit { customization, .. } = lease_patched(&fake) else {
        panic!();
    };
    assert_eq!(customization, "a");
    assert_eq!(fake.held_by("us"), ["a"]);
}

/// A record of `them` for each, as old as that.
fn sought(names: &[&str], seconds: i64) -> Fake {
    let fake = Fake::free(&NAMES);
    for name in names {
        let time = fake.now() - jiff::SignedDuration::from_secs(seconds);
        fake.put_record(first(name, claim("them"), time));
    }
    fake
}

#[test]
fn a_lease_is_recorded() {
    let fake = Fake::free(&NAMES);
    lease_one(&fake, &NAMES).unwrap();
    assert_eq!(fake.record_holder("b").as_deref(), Some("us"));
    block_on(release_entries(&fake, &Users::new(), holder("us"), None)).unwrap();
    assert_eq!(fake.record_holder("b"), None);
}

#[test]
fn what_another_is_about_to_take_comes_last() {
    let fake = sought(&["b"], 0);
    assert_eq!(lease_one(&fake, &NAMES).unwrap(), leased("c"));
    assert_eq!(fake.record_holder("b").as_deref(), Some("them"));
    let fake = sought(&["b"], 60);
    assert_eq!(lease_one(&fake, &NAMES).unwrap(), leased("b"));
}

#[test]
fn a_record_of_one_who_is_about_to_take_what_we_had_is_left_alone() {
    let fake = Fake::free(&["a"]);
    fake.put("a", &reserved("us"));
    let announced = fake.now();
    fake.put_record(first("a", claim("them"), announced));
    assert_eq!(
        lease_one(&fake, &["a"]).unwrap(),
        AttemptOutcome::Leased(plain("a", true))
    );
    let waited = fake.now().duration_since(announced);
    assert!(waited >= jiff::SignedDuration::from_secs(10), "{waited}");
    assert_eq!(fake.record_holder("a").as_deref(), Some("us"));
}

/// A pool is not exhausted because a client was killed between two writes.
#[test]
fn what_another_did_not_take_after_all_is_taken() {
    let fake = sought(&NAMES, 0);
    assert_eq!(lease_one(&fake, &NAMES).unwrap(), leased("b"));
    assert_eq!(*fake.writes.borrow(), ["b"]);
    assert_eq!(fake.record_holder("b").as_deref(), Some("us"));
}

#[test]
fn a_record_without_a_lease_is_taken_back() {
    let fake = Fake::free(&NAMES).with_faults(&[Some(Fault::Overtaken)]);
    assert_eq!(lease_one(&fake, &NAMES).unwrap(), leased("c"));
    assert_eq!(fake.record_holder("b"), None);
    assert_eq!(fake.record_holder("c").as_deref(), Some("us"));
}

#[test]
fn a_record_that_is_missing_is_made_for_a_lease_that_there_is() {
    for record in [None, Some(first("a", claim("them"), Fake::free(&NAMES).now()))] {
        let fake = Fake::free(&NAMES);
        fake.put("a", &reserved("us"));
        if let Some(record) = record {
            fake.put_record(record);
        }
        lease_one(&fake, &NAMES).unwrap();
        assert_eq!(fake.record_holder("a").as_deref(), Some("us"));
    }
}

fn entry_names(entries: usize) -> Vec<String> {
    (0..entries).map(|entry| format!("entry-{entry}")).collect()
}

/// Many lessees at once.
fn race(
    fake: Fake,
    lessees: &[String],
    entries: usize,
) -> (Rc<Fake>, Vec<Result<AttemptOutcome, LeaseError>>) {
    let fake = Rc::new(fake);
    let outcomes = block_on(LocalSet::new().run_until(async {
        let tasks: Vec<_> = lessees
            .iter()
            .map(|lessee| {
                let (fake, lessee, names) = (Rc::clone(&fake), lessee.clone(), entry_names(entries));
                tokio::task::spawn_local(async move {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    outcome_of(&fake, request(&names, claim(&lessee))).await
                })
            })
            .collect();
        let mut outcomes = Vec::new();
        for task in tasks {
            outcomes.push(task.await.unwrap());
        }
        outcomes
    }));
    (fake, outcomes)
}

/// All their writes succeed; the seed decides the order of the tasks.
fn race_without_faults(seed: u64, lessees: &[String], entries: usize) -> (Rc<Fake>, Vec<AttemptOutcome>) {
    let (fake, outcomes) = race(Fake::shuffled(&entry_names(entries), seed), lessees, entries);
    (fake, outcomes.into_iter().map(Result::unwrap).collect())
}

fn entries_of(outcomes: &[AttemptOutcome]) -> Vec<&str> {
    outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            AttemptOutcome::Leased(Leased { customization, .. }) => Some(customization.as_str()),
            _ => None,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn twenty_lessees_and_eight_entries(seed in any::<u64>()) {
        let lessees: Vec<_> = (0..20).map(|lessee| format!("cluster-{lessee}")).collect();
        let (fake, outcomes) = race_without_faults(seed, &lessees, 8);
        let entries = entries_of(&outcomes);
        prop_assert_eq!(entries.len(), 8);
        prop_assert_eq!(entries.iter().collect::<BTreeSet<_>>().len(), 8);
        for (lessee, outcome) in lessees.iter().zip(&outcomes) {
            match outcome {
                AttemptOutcome::Leased(Leased { customization, .. }) => {
                    prop_assert_eq!(fake.holder(customization), Some(lessee.clone()));
                }
                AttemptOutcome::Exhausted(standings) => prop_assert_eq!(standings.len(), 8),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    #[test]
    fn as_many_lessees_as_entries_all_get_one_with_few_writes(seed in any::<u64>()) {
        let lessees: Vec<_> = (0..64).map(|lessee| format!("cluster-{lessee}")).collect();
        let (fake, outcomes) = race_without_faults(seed, &lessees, 64);
        prop_assert_eq!(entries_of(&outcomes).into_iter().collect::<BTreeSet<_>>().len(), 64);
        let writes = fake.writes.borrow().len();
        prop_assert!(writes <= 128, "{} writes for 64 leases", writes);
    }

    #[test]
    fn lessees_of_one_name_are_one_holder(seed in any::<u64>()) {
        let (_, outcomes) = race_without_faults(seed, &vec!["us".to_owned(); 5], 8);
        let entries = entries_of(&outcomes);
        prop_assert_eq!(entries.len(), 5);
        prop_assert_eq!(entries.into_iter().collect::<BTreeSet<_>>().len(), 1);
    }

    /// Whatever happens to the writes, and whenever the late ones arrive: a holder never gets two entries, a reported
    /// lease is stored, and all entries are free after the releases.
    #[test]
    fn a_lease_is_stored_once_and_given_back(faults in proptest::collection::vec(fault(), 0..12)) {
        let fake = Fake::free(&NAMES).with_faults(&faults);
        let outcome = lease_one(&fake, &NAMES);
        fake.settle();
        let held = fake.held_by("us");
        match outcome {
            Ok(AttemptOutcome::Leased(Leased { customization, .. })) => prop_assert_eq!(held, [customization]),
            Ok(other) => prop_assert!(false, "{:?}", other),
            Err(_) => prop_assert!(held.len() <= 1, "{:?}", held),
        }
        let released = block_on(release_entries(&fake, &Users::new(), holder("us"), None));
        fake.settle();
        if released.is_ok() {
            prop_assert_eq!(fake.held_by("us"), Vec::<String>::new());
        }
    }

    /// The same with others at the same entries.
    #[test]
    fn faults_among_many_lessees_leak_nothing(
        seed in any::<u64>(),
        faults in proptest::collection::vec(fault(), 0..40),
    ) {
        let lessees: Vec<_> = (0..8).map(|lessee| format!("cluster-{lessee}")).collect();
        let (fake, outcomes) = race(Fake::shuffled(&entry_names(4), seed).with_faults(&faults), &lessees, 4);
        fake.settle();
        for (lessee, outcome) in lessees.iter().zip(&outcomes) {
            let held = fake.held_by(lessee);
            match outcome {
                Ok(AttemptOutcome::Leased(Leased { customization, .. })) => prop_assert_eq!(&held, std::slice::from_ref(customization)),
                Ok(_) => prop_assert_eq!(held, Vec::<String>::new()),
                Err(_) => prop_assert!(held.len() <= 1, "{:?}", held),
            }
        }
    }
}

fn fault() -> impl Strategy<Value = Option<Fault>> {
    prop_oneof![
        2 => Just(None),
        1 => Just(Some(Fault::AnswerLost)),
        1 => Just(Some(Fault::RequestLost)),
        1 => Just(Some(Fault::Touched)),
        3 => (0..12_usize).prop_map(|before| Some(Fault::ArrivesLate(before))),
    ]
}

#[test]
fn what_was_broken_and_applies_says_so_in_the_write_that_takes_it() {
    let install_config = InstallConfig::parse(b"metadata: {name: generated}", "f").unwrap();
    for (install_config, is_run_by_hive, reason) in [
        (Some(&install_config), false, "InstallationPending"),
        (Some(&install_config), true, "BrokenBySyntax"),
        (None, false, "BrokenBySyntax"),
    ] {
        let fake = Fake::free(&["a"]);
        fake.put_spec(
            "a",
            &json!({"installConfigPatches": [{"op": "replace", "path": "/metadata/name", "value": "foo"}]}),
        );
        fake.put(
            "a",
            &json!({"conditions": [{"type": "ApplySucceeded", "status": "False", "reason": "BrokenBySyntax"}]}),
        );
        let request = AttemptRequest {
            install_config,
            is_run_by_hive,
            ..request(&["a"], claim("us"))
        };
        let outcome = block_on(outcome_of(&fake, request)).unwrap();
        assert!(matches!(outcome, AttemptOutcome::Leased(_)), "{outcome:?}");
        assert_eq!(fake.status("a")["conditions"][0]["reason"], reason);
        assert_eq!(*fake.writes.borrow(), ["a"], "{reason}");
    }
}
