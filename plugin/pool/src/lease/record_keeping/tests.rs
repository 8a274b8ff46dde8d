//! Records under contention and lost answers.

use kcp_client::Error;
use serde_json::Value;

use crate::{
    lease::record_keeping::{Recorded, announce, delete_ours, renew, restore, write_unchanged},
    objects::{
        entry::{Entry, Holder},
        record::{LeaseClaim, Record, first},
    },
    store::Customizations as _,
    testing::fake::{Fake, Fault, reserved},
};

fn claim(name: &str) -> LeaseClaim<'_> {
    LeaseClaim {
        holder: Holder {
            pool: "pool",
            cluster_deployment: name,
        },
        duration: None,
        cluster_deployment_uid: None,
        is_creating: false,
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(work)
}

/// A record of `them` for `a`, as old as that.
fn recorded(seconds: i64) -> (Fake, Value) {
    let fake = Fake::free(&["a"]);
    let time = fake.now() - jiff::SignedDuration::from_secs(seconds);
    let record = first("a", claim("them"), time);
    fake.put_record(record.clone());
    (fake, record)
}

fn listed_entry(fake: &Fake) -> Entry {
    run(fake.get("a")).unwrap().unwrap()
}

/// What came of it, and whose record was replaced.
fn announced(fake: &Fake, is_listed: bool) -> Result<(bool, Option<String>), Error> {
    let known = is_listed.then(|| fake.recorded("a").unwrap());
    Ok(
        match run(announce(fake, &listed_entry(fake), known.as_ref(), claim("us")))? {
            Recorded::Ours { replaced } => {
                let replaced = replaced.map(|record| record.cluster_deployment().unwrap().to_owned());
                (true, replaced)
            }
            Recorded::Another => (false, None),
        },
    )
}

const OURS: (bool, Option<String>) = (true, None);
const ANOTHERS: (bool, Option<String>) = (false, None);

fn ours_after_them() -> (bool, Option<String>) {
    (true, Some("them".to_owned()))
}

#[test]
fn a_record_is_made_once() {
    let fake = Fake::free(&["a"]);
    assert_eq!(announced(&fake, false).unwrap(), OURS);
    assert_eq!(fake.record_holder("a").as_deref(), Some("us"));
    assert_eq!(announced(&fake, true).unwrap(), OURS);
    assert_eq!(announced(&fake, false).unwrap(), OURS);
}

#[test]
fn a_fresh_record_of_another_keeps_us_from_the_entry() {
    for is_listed in [true, false] {
        let (fake, _) = recorded(1);
        assert_eq!(announced(&fake, is_listed).unwrap(), ANOTHERS);
        assert_eq!(fake.record_holder("a").as_deref(), Some("them"));
        let (fake, _) = recorded(60);
        assert_eq!(announced(&fake, is_listed).unwrap(), ours_after_them());
        assert_eq!(fake.record_holder("a").as_deref(), Some("us"));
    }
}

#[test]
fn who_comes_second_to_an_old_record_does_not_get_it() {
    let (fake, _) = recorded(60);
    let listed = fake.recorded("a").unwrap();
    run(announce(&fake, &listed_entry(&fake), Some(&listed), claim("her"))).unwrap();
    let outcome = run(announce(&fake, &listed_entry(&fake), Some(&listed), claim("us"))).unwrap();
    assert_eq!(outcome, Recorded::Another);
    assert_eq!(fake.record_holder("a").as_deref(), Some("her"));
}

#[test]
fn an_old_record_of_one_who_has_taken_the_entry_since_is_kept() {
    for is_listed in [true, false] {
        let (fake, _) = recorded(60);
        let entry = listed_entry(&fake);
        let known = is_listed.then(|| fake.recorded("a").unwrap());
        fake.put("a", &reserved("them"));
        let outcome = run(announce(&fake, &entry, known.as_ref(), claim("us"))).unwrap();
        assert_eq!(outcome, Recorded::Another, "{is_listed}");
        assert_eq!(fake.record_holder("a").as_deref(), Some("them"));
    }
}

#[test]
fn a_lost_answer_is_read_back() {
    for fault in [Fault::AnswerLost, Fault::RequestLost] {
        for (fake, expected) in [(Fake::free(&["a"]), OURS), (recorded(60).0, ours_after_them())] {
            let fake = fake.with_record_faults(&[Some(fault)]);
            assert_eq!(announced(&fake, false).unwrap(), expected, "{fault:?}");
            assert_eq!(fake.record_holder("a").as_deref(), Some("us"), "{fault:?}");
        }
    }
    let fake = Fake::free(&["a"]).with_record_faults(&[Some(Fault::RequestLost); 5]);
    assert_eq!(
        announced(&fake, false).unwrap_err().to_string(),
        "cannot patch clusterdeploymentcustomizations in all namespaces: no answer from https://s: cut"
    );
}

#[test]
fn a_lease_that_there_is_is_recorded_whatever_stood_there() {
    let (fake, _) = recorded(1);
    let listed = fake.recorded("a").unwrap();
    run(renew(&fake, "a", Some(&listed), claim("us"))).unwrap();
    assert_eq!(fake.record_holder("a").as_deref(), Some("us"));
    let fake = Fake::free(&["a"]).with_record_faults(&[Some(Fault::AnswerLost)]);
    run(renew(&fake, "a", None, claim("us"))).unwrap();
    assert_eq!(fake.record_holder("a").as_deref(), Some("us"));
}

#[test]
fn a_record_that_was_read_is_written_unless_another_was_faster() {
    let creating = LeaseClaim {
        is_creating: true,
        ..claim("us")
    };
    let write = |fake: &Fake, read: Option<&Record>| run(write_unchanged(fake, "a", read, creating)).unwrap();
    for fault in [None, Some(Fault::AnswerLost), Some(Fault::RequestLost)] {
        let fake = Fake::free(&["a"]).with_record_faults(&[fault, fault]);
        assert!(write(&fake, None), "{fault:?}");
        let (fake, _) = recorded(60);
        let fake = fake.with_record_faults(&[fault, fault]);
        let read = fake.recorded("a").unwrap();
        assert!(write(&fake, Some(&read)), "{fault:?}");
        assert!(fake.recorded("a").unwrap().is_creating(), "{fault:?}");
        assert!(!write(&fake, None), "{fault:?}");

        let read = fake.recorded("a").unwrap();
        run(renew(&fake, "a", Some(&read), claim("us"))).unwrap();
        assert!(!write(&fake, Some(&read)), "{fault:?}");
        assert!(!fake.recorded("a").unwrap().is_creating(), "{fault:?}");
    }
    let fake = Fake::free(&["a"]).with_record_faults(&[Some(Fault::RequestLost); 5]);
    assert!(run(write_unchanged(&fake, "a", None, creating)).is_err());
}

#[test]
fn only_ones_own_record_is_taken_back() {
    let (fake, _) = recorded(1);
    run(delete_ours(&fake, "a", claim("us").holder)).unwrap();
    assert_eq!(fake.record_holder("a").as_deref(), Some("them"));
    run(delete_ours(&fake, "a", claim("them").holder)).unwrap();
    assert_eq!(fake.record_holder("a"), None);
    run(delete_ours(&fake, "a", claim("them").holder)).unwrap();
}

#[test]
fn what_was_replaced_is_put_back() {
    let (fake, _) = recorded(60);
    let before = fake.recorded("a").unwrap();
    let Recorded::Ours { replaced } =
        run(announce(&fake, &listed_entry(&fake), Some(&before), claim("us"))).unwrap()
    else {
        panic!();
    };
    let fake = fake.with_record_faults(&[Some(Fault::RequestLost)]);
    run(restore(&fake, "a", claim("us").holder, &replaced.unwrap())).unwrap();
    let after = fake.recorded("a").unwrap();
    assert_eq!(after.cluster_deployment(), Some("them"));
    assert_eq!(
        (after.acquired(), after.renewed()),
        (before.acquired(), before.renewed())
    );
    assert_eq!(after.duration(), before.duration());
    // Another has written since: it stays.
    run(restore(&fake, "a", claim("us").holder, &before)).unwrap();
    assert_eq!(fake.recorded("a").unwrap(), after);
}
