//! Repairs under contention and faults.

use crate::{
    lease::{rule::DEFAULT_GRACE, usage::Clusters},
    objects::record::LeaseState,
    repair::{
        apply::{RepairOutcome, apply},
        decision::findings,
        options::RepairOptions,
    },
    snapshot::Snapshot,
    store::LeaseStore as _,
    testing::{
        attempts::run,
        fake::{Fake, Fault},
        objects::{LONG_AGO, Objects, cluster, gone, in_use, leased},
    },
};

const OPTIONS: RepairOptions<'_> = RepairOptions {
    pool: None,
    grace: DEFAULT_GRACE,
    forced: &[],
    recreate: false,
};

async fn snapshot(fake: &Fake) -> Snapshot {
    Snapshot {
        entries: fake.list().await.unwrap(),
        clusters: fake.clusters().await.unwrap(),
        now: fake.now(),
        ..Objects::default().snapshot()
    }
}

/// Applies the only finding, after something has happened since it was found.
fn applied(fake: &Fake, since: impl FnOnce(&Fake)) -> RepairOutcome {
    run(async {
        let mut snapshot = snapshot(fake).await;
        let found = findings(&snapshot, &OPTIONS);
        assert_eq!(found.len(), 1, "{found:?}");
        since(fake);
        apply(fake, &mut snapshot, &OPTIONS, &found[0]).await.unwrap()
    })
}

fn ended(faults: &[Option<Fault>]) -> Fake {
    let fake = Fake::free(&["a"]).with_faults(faults);
    fake.put("a", &leased(&gone("us", LONG_AGO))["status"]);
    fake
}

#[test]
fn an_ended_lease_is_freed_despite_a_faulty_write() {
    for fault in [
        None,
        Some(Fault::AnswerLost),
        Some(Fault::RequestLost),
        Some(Fault::ArrivesLate(1)),
        Some(Fault::Touched),
    ] {
        let fake = ended(&[fault]);
        assert_eq!(applied(&fake, |_| {}), RepairOutcome::Repaired, "{fault:?}");
        fake.settle();
        assert_eq!(fake.holder("a"), None, "{fault:?}");
    }
}

#[test]
fn a_problem_that_disappeared_is_not_repaired() {
    // Its cluster was created again.
    let fake = ended(&[]);
    let came = |fake: &Fake| fake.put_cluster(cluster("us", "pool", Some("a")));
    assert_eq!(applied(&fake, came), RepairOutcome::Settled);
    assert_eq!(fake.holder("a").as_deref(), Some("us"));
    // Its holder has renewed it.
    let fake = ended(&[]);
    let renewed = |fake: &Fake| fake.put("a", &leased(&gone("us", "2026-11-22T05:00:00Z"))["status"]);
    assert_eq!(applied(&fake, renewed), RepairOutcome::Settled);
    assert_eq!(fake.holder("a").as_deref(), Some("us"));
    // The clusters can no longer be listed.
    let fake = ended(&[]);
    assert_eq!(applied(&fake, Fake::forbid_clusters), RepairOutcome::Settled);
    assert_eq!(fake.holder("a").as_deref(), Some("us"));
    let fake = ended(&[Some(Fault::Touched); 9]);
    assert_eq!(applied(&fake, |_| {}), RepairOutcome::Contended);
}

#[test]
fn the_entry_of_a_deleted_cluster_stays_reserved() {
    let fake = Fake::free(&["a"]);
    fake.put("a", &leased(&in_use("us", LONG_AGO, "u"))["status"]);
    assert_eq!(applied(&fake, |_| {}), RepairOutcome::Repaired);
    let record = fake.record("a");
    assert_eq!(record.state, LeaseState::ClusterGone);
    assert_eq!(record.deadline.unwrap().to_string(), "2026-11-21T05:10:00Z");
    let after = run(snapshot(&fake));
    assert!(matches!(after.clusters, Clusters::All(_)));
    assert_eq!(findings(&after, &OPTIONS), []);
}
