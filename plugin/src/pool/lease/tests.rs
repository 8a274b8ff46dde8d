//! Leases under contention and faults.

use std::{collections::BTreeSet, rc::Rc};

use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use tokio::task::LocalSet;

use super::{Outcome, lease};
use crate::pool::{
    entry::Holder,
    fake::{Fake, Fault, reserved},
    release::release,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn holder(name: &str) -> Holder<'_> {
    Holder {
        pool: "pool",
        cluster_deployment: name,
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn lease_one(fake: &Fake, names: &[&str]) -> anyhow::Result<Outcome> {
    block_on(lease(fake, names, None, holder("us")))
}

fn leased(name: &str) -> Outcome {
    Outcome::Leased {
        customization: name.to_owned(),
        already: false,
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

#[test]
fn leasing_twice_is_leasing_once() {
    let fake = Fake::free(&NAMES);
    lease_one(&fake, &NAMES).unwrap();
    let again = Outcome::Leased {
        customization: ORDER[0].to_owned(),
        already: true,
    };
    assert_eq!(lease_one(&fake, &NAMES).unwrap(), again);
    assert_eq!(fake.writes.borrow().len(), 1);
}

#[test]
fn what_befalls_the_first_write() {
    for (fault, gets, writes) in [
        (Fault::Overtaken, ORDER[1], &ORDER[..2]),
        (Fault::Deleted, ORDER[1], &ORDER[..2]),
        (Fault::Touched, ORDER[1], &ORDER[..2]),
        (Fault::RequestLost, ORDER[1], &ORDER[..2]),
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
fn a_server_that_refuses_for_ever_ends_the_search() {
    let fake = Fake::free(&["a"]).with_faults(&[Some(Fault::Touched); 100]);
    assert!(matches!(lease_one(&fake, &["a"]).unwrap(), Outcome::Exhausted(_)));
    assert_eq!(fake.writes.borrow().len(), super::MAX_ROUNDS);
}

#[test]
fn no_permission_is_no_contention() {
    let fake = Fake::free(&NAMES).with_faults(&[Some(Fault::Forbidden)]);
    let error = lease_one(&fake, &NAMES).unwrap_err();
    assert!(error.to_string().contains("forbidden"), "{error}");
    assert_eq!(fake.writes.borrow().len(), 1);
}

#[test]
fn another_run_for_the_same_holder_was_faster() {
    let fake = Fake::free(&NAMES);
    let overtaken = block_on(async {
        let inventory = crate::pool::store::Customizations::list(&fake).await.unwrap();
        let stale: Vec<_> = inventory.iter().filter(|entry| entry.name() == "b").collect();
        fake.put("b", &reserved("us"));
        super::try_each(&fake, &stale, holder("us"))
            .await
            .unwrap()
            .map(str::to_owned)
    });
    assert_eq!(overtaken.as_deref(), Some("b"));
}

/// Many lessees at once, each with its turns in an order that the seed gives.
fn race(seed: u64, lessees: &[String], entries: usize) -> (Rc<Fake>, Vec<Outcome>) {
    let names: Vec<String> = (0..entries).map(|entry| format!("entry-{entry}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let fake = Rc::new(Fake::shuffled(&names, seed));
    let outcomes = block_on(LocalSet::new().run_until(async {
        let tasks: Vec<_> = lessees
            .iter()
            .map(|lessee| {
                let (fake, lessee) = (Rc::clone(&fake), lessee.clone());
                let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
                tokio::task::spawn_local(async move {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    lease(&*fake, &names, None, holder(&lessee)).await.unwrap()
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

fn entries_of(outcomes: &[Outcome]) -> Vec<&str> {
    outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Leased { customization, .. } => Some(customization.as_str()),
            _ => None,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn twenty_lessees_and_eight_entries(seed in any::<u64>()) {
        let lessees: Vec<_> = (0..20).map(|lessee| format!("cluster-{lessee}")).collect();
        let (fake, outcomes) = race(seed, &lessees, 8);
        let entries = entries_of(&outcomes);
        prop_assert_eq!(entries.len(), 8);
        prop_assert_eq!(entries.iter().collect::<BTreeSet<_>>().len(), 8);
        for (lessee, outcome) in lessees.iter().zip(&outcomes) {
            match outcome {
                Outcome::Leased { customization, .. } => {
                    prop_assert_eq!(fake.holder(customization), Some(lessee.clone()));
                }
                Outcome::Exhausted(standings) => prop_assert_eq!(standings.len(), 8),
                Outcome::Bound { .. } => prop_assert!(false),
            }
        }
    }

    #[test]
    fn as_many_lessees_as_entries_all_get_one_with_few_writes(seed in any::<u64>()) {
        let lessees: Vec<_> = (0..64).map(|lessee| format!("cluster-{lessee}")).collect();
        let (fake, outcomes) = race(seed, &lessees, 64);
        prop_assert_eq!(entries_of(&outcomes).into_iter().collect::<BTreeSet<_>>().len(), 64);
        let writes = fake.writes.borrow().len();
        prop_assert!(writes <= 128, "{} writes for 64 leases", writes);
    }

    #[test]
    fn lessees_of_one_name_are_one_holder(seed in any::<u64>()) {
        let (_, outcomes) = race(seed, &vec!["us".to_owned(); 5], 8);
        let entries = entries_of(&outcomes);
        prop_assert_eq!(entries.len(), 5);
        prop_assert_eq!(entries.into_iter().collect::<BTreeSet<_>>().len(), 1);
    }

    /// Whatever befalls the writes: a lease that was told is stored, and all is free again after the releases.
    #[test]
    fn no_lease_is_told_that_is_not_stored(faults in proptest::collection::vec(0..5_usize, 0..12)) {
        let kinds = [None, Some(Fault::AnswerLost), Some(Fault::RequestLost), Some(Fault::Touched), None];
        let faults: Vec<_> = faults.into_iter().map(|fault| kinds[fault]).collect();
        let fake = Fake::free(&NAMES).with_faults(&faults);
        if let Outcome::Leased { customization, .. } = lease_one(&fake, &NAMES).unwrap() {
            prop_assert_eq!(fake.holder(&customization), Some("us".to_owned()));
        }
        if block_on(release(&fake, holder("us"))).is_ok() {
            for name in NAMES {
                prop_assert_eq!(fake.holder(name), None);
            }
        }
    }
}
