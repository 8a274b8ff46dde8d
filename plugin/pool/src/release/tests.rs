//! Releases under contention and faults.

use kcp_client::Error;
use serde_json::json;

use crate::{
    objects::{
        entry::Holder,
        record::{LeaseClaim, first},
    },
    release::{
        Released,
        in_use::{Cluster, Users},
        release_entries,
    },
    store::Customizations as _,
    testing::fake::{Fake, Fault, reserved},
};

const HOLDER: Holder<'_> = Holder {
    pool: "pool",
    cluster_deployment: "us",
};

fn release_but(fake: &Fake, users: &Users) -> Result<Released, Error> {
    run(release_entries(fake, users, HOLDER, None))
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(work)
}

fn release_all(fake: &Fake) -> Result<Vec<String>, Error> {
    release_but(fake, &Users::new()).map(|outcome| outcome.released)
}

fn held(faults: &[Option<Fault>]) -> Fake {
    let fake = Fake::free(&["a"]).with_faults(faults);
    fake.put("b", &reserved("us"));
    fake.put("c", &reserved("them"));
    fake
}

#[test]
fn gives_back_the_holders_own_only() {
    let fake = held(&[]);
    assert_eq!(release_all(&fake).unwrap(), ["b"]);
    assert_eq!(*fake.writes.borrow(), ["b"]);
    assert_eq!(fake.holder("b"), None);
    assert_eq!(fake.status("b")["conditions"][0]["status"], "True");
    assert_eq!(fake.holder("c").as_deref(), Some("them"));
}

#[test]
fn twice_is_once() {
    let fake = held(&[]);
    release_all(&fake).unwrap();
    assert!(release_all(&fake).unwrap().is_empty());
    assert_eq!(fake.writes.borrow().len(), 1);
}

#[test]
fn gives_back_all_that_the_holder_has() {
    let fake = held(&[]);
    fake.put("d", &reserved("us"));
    assert_eq!(release_all(&fake).unwrap(), ["b", "d"]);
}

#[test]
fn gives_back_the_one_that_is_meant() {
    let fake = held(&[]);
    fake.put("d", &reserved("us"));
    let released = run(release_entries(&fake, &Users::new(), HOLDER, Some("d"))).unwrap();
    assert_eq!(released.released, ["d"]);
    assert_eq!(fake.held_by("us"), ["b"]);
}

/// As after a release that was killed before it came to the record.
#[test]
fn a_record_without_a_lease_goes_and_others_stay() {
    let fake = held(&[]);
    let claim = |holder| LeaseClaim {
        holder,
        duration: None,
        cluster_deployment_uid: None,
        is_creating: false,
    };
    let them = Holder {
        cluster_deployment: "them",
        ..HOLDER
    };
    fake.put_record(first("a", claim(HOLDER), fake.now()));
    fake.put_record(first("c", claim(them), fake.now()));
    release_all(&fake).unwrap();
    assert_eq!(fake.record_holder("a"), None);
    assert_eq!(fake.record_holder("c").as_deref(), Some("them"));
}

#[test]
fn the_record_of_what_is_kept_stays() {
    let fake = held(&[]);
    let claim = LeaseClaim {
        holder: HOLDER,
        duration: None,
        cluster_deployment_uid: None,
        is_creating: false,
    };
    fake.put_record(first("b", claim, fake.now()));
    let cluster = Cluster {
        namespace: "us".to_owned(),
        name: "us".to_owned(),
        finalizers: Vec::new(),
        is_ours: true,
    };
    release_but(&fake, &[("b".to_owned(), cluster)].into()).unwrap();
    assert_eq!(fake.record_holder("b").as_deref(), Some("us"));
}

#[test]
fn what_a_cluster_needs_is_kept() {
    let fake = held(&[Some(Fault::Touched)]);
    fake.put("d", &reserved("us"));
    let cluster = Cluster {
        namespace: "us".to_owned(),
        name: "us".to_owned(),
        finalizers: Vec::new(),
        is_ours: false,
    };
    // The holder has nothing of `a`, whatever its cluster says.
    let users = ["a", "b"].map(|name| (name.to_owned(), cluster.clone())).into();
    let outcome = release_but(&fake, &users).unwrap();
    assert_eq!(
        (outcome.released, outcome.in_use),
        (vec!["d".to_owned()], vec!["b".to_owned()])
    );
    assert_eq!(fake.held_by("us"), ["b"]);
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
fn what_befalls_the_write() {
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
fn an_entry_that_keeps_changing_ends_it() {
    let error = release_all(&held(&[Some(Fault::Touched); 100])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot release the customizations of us: another client changed it before each of 8 attempts"
    );
}
