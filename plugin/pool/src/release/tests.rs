//! Releases under contention and faults.

use kcp_client::Error;
use serde_json::json;

use crate::{
    hive::HiveMode,
    lease::reuse::Reuse,
    objects::entry::Reservation,
    release::{
        ReleasedEntries,
        decision::{ReleaseRequest, ReleaseTarget},
        release_entries,
    },
    testing::{
        attempts::run,
        fake::{Fake, Fault, reserved},
        objects::cluster,
    },
};

fn released(fake: &Fake, target: &ReleaseTarget) -> Result<ReleasedEntries, Error> {
    let request = ReleaseRequest {
        target,
        cluster_deployment: "us",
        id: None,
        force: false,
        delete_cluster: false,
        hive: HiveMode::Auto,
    };
    run(release_entries(fake, &request))
}

fn release_all(fake: &Fake) -> Result<Vec<String>, Error> {
    released(fake, &ReleaseTarget::Pool("pool".to_owned())).map(|released| released.customizations)
}

fn held(faults: &[Option<Fault>]) -> Fake {
    let fake = Fake::free(&["a"]).with_faults(faults);
    fake.put("b", &reserved("us"));
    fake.put("c", &reserved("them"));
    fake
}

#[test]
fn releases_only_entries_of_the_holder() {
    let fake = held(&[]);
    assert_eq!(release_all(&fake).unwrap(), ["b"]);
    assert_eq!(*fake.writes.borrow(), ["b"]);
    assert_eq!(fake.holder("b"), None);
    assert_eq!(fake.status("b")["conditions"].as_array().unwrap().len(), 1);
    assert_eq!(fake.holder("c").as_deref(), Some("them"));
}

#[test]
fn a_repeated_release_changes_nothing() {
    let fake = held(&[]);
    release_all(&fake).unwrap();
    assert!(release_all(&fake).unwrap().is_empty());
    assert_eq!(fake.writes.borrow().len(), 1);
}

#[test]
fn releases_all_entries_of_a_holder_or_the_named_one() {
    let fake = held(&[]);
    fake.put("d", &reserved("us"));
    let one = released(&fake, &ReleaseTarget::Customization("d".to_owned())).unwrap();
    assert_eq!(one.customizations, ["d"]);
    assert_eq!(fake.held_by("us"), ["b"]);
    fake.put("d", &reserved("us"));
    assert_eq!(release_all(&fake).unwrap(), ["b", "d"]);
}

#[test]
fn keeps_an_entry_that_a_cluster_uses() {
    let fake = held(&[Some(Fault::Touched)]);
    fake.put("d", &reserved("us"));
    fake.put_cluster(cluster("us", "pool", Some("b")));
    let outcome = released(&fake, &ReleaseTarget::Pool("pool".to_owned())).unwrap();
    assert_eq!(outcome.customizations, ["d"]);
    assert_eq!(outcome.in_use[0].customization, "b");
    assert_eq!(fake.held_by("us"), ["b"]);
}

/// The account is not allowed to list clusters.
#[test]
fn keeps_entries_if_clusters_cannot_be_listed() {
    let fake = held(&[]);
    fake.forbid_clusters();
    let outcome = released(&fake, &ReleaseTarget::Pool("pool".to_owned())).unwrap();
    assert_eq!(
        (outcome.customizations.len(), outcome.possibly_in_use),
        (0, vec!["b".to_owned()])
    );
    assert!(fake.writes.borrow().is_empty());
}

#[test]
fn the_same_name_in_another_pool_is_another_holder() {
    let fake = Fake::default();
    let mut status = reserved("us");
    status["clusterPoolRef"] = json!({"name": "other"});
    fake.put("a", &status);
    assert!(release_all(&fake).unwrap().is_empty());
    assert_eq!(fake.holder("a").as_deref(), Some("us"));
}

#[test]
fn a_release_is_decided_again_after_a_faulty_write() {
    for (fault, released, writes) in [
        (Fault::Touched, &["b"][..], 2),
        (Fault::RequestLost, &["b"], 2),
        (Fault::AnswerLost, &["b"], 1),
        (Fault::ArrivesLate(0), &["b"], 1),
        (Fault::ArrivesLate(1), &["b"], 2),
        (Fault::Deleted, &[], 1),
        (Fault::Overtaken, &[], 1),
    ] {
        let fake = held(&[Some(fault)]);
        assert_eq!(release_all(&fake).unwrap(), released, "{fault:?}");
        assert_eq!(fake.writes.borrow().len(), writes, "{fault:?}");
    }
}

#[test]
fn a_release_fails_if_an_entry_keeps_changing() {
    let error = release_all(&held(&[Some(Fault::Touched); 100])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot release the customizations of us: 8 attempts failed, because another client changed the \
         object each time"
    );
}

#[test]
fn a_release_has_entries_cleaned_first_if_their_pool_asks_for_it() {
    let record = "v1 holder=us since=2026-11-21T05:00:00Z janitor=- deadline=- failures=0 user=jane";
    for (reuse, fault, expected) in [
        (Reuse::Free, None, None),
        (Reuse::Clean, None, Some(record)),
        (Reuse::Clean, Some(Fault::AnswerLost), Some(record)),
        (Reuse::Clean, Some(Fault::Touched), Some(record)),
    ] {
        let fake = held(&[fault]);
        fake.reuse.borrow_mut().insert("pool".to_owned(), reuse);
        let all = released(&fake, &ReleaseTarget::Pool("pool".to_owned())).unwrap();
        assert_eq!(all.customizations, ["b"]);
        assert_eq!(all.cleaned_first.is_empty(), expected.is_none());
        let message = match fake.entry("b").status.reservation() {
            Reservation::Free => None,
            Reservation::Cleaning(record) => Some(record.message()),
            other => panic!("{other:?}"),
        };
        assert_eq!(message.as_deref(), expected, "{reuse:?} {fault:?}");
        assert_eq!(
            release_all(&fake).unwrap(),
            Vec::<String>::new(),
            "a repeated release changes nothing"
        );
    }
    let fake = held(&[]);
    fake.reuse.borrow_mut().insert("pool".to_owned(), Reuse::Unknown);
    let all = released(&fake, &ReleaseTarget::Pool("pool".to_owned())).unwrap();
    assert_eq!(
        (all.customizations.len(), all.of_unknown_pools.as_slice()),
        (0, &["b".to_owned()][..])
    );
    assert_eq!(fake.holder("b").as_deref(), Some("us"));
}
