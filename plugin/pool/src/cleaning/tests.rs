//! Which entry a janitor cleans next, and what becomes of the entry.

use std::time::Duration;

use kcp_client::ServerTime;
use serde_json::{Value, json};

use super::{After, Cleaner, CommandEnd, JanitorId, Next, after_command, take};
use crate::{
    lease::{Ttl, renewal::renew, usage::Clusters},
    objects::{
        CleaningRecord,
        cluster_deployment::ClusterDeployments,
        entry::{Entry, Reservation},
    },
    store::LeaseStore as _,
    testing::{
        attempts::run,
        fake::{Fake, Fault, lost},
        objects::{
            JUST_NOW, LONG_AGO, NOW, asking, being_cleaned, cleaning, cluster, entry, gone, in_use, lease,
            leased, named, pool_object, read,
        },
    },
};

const LATER: &str = "2026-11-21T05:10:00Z";

fn pool() -> Value {
    asking(
        pool_object("pool", &json!({"inventory": [{"name": "a"}, {"name": "b"}]})),
        "true",
    )
}

fn next(pool: &Value, only: Option<&str>, entries: &[Value], clusters: &Clusters) -> String {
    let pool = read(pool);
    let cleaner = Cleaner {
        pool: &pool,
        only,
        ttl: Duration::from_secs(900),
    };
    let now = NOW.parse().unwrap();
    let now = ServerTime {
        earliest: now,
        latest: now,
        is_certain: true,
    };
    let entries: Vec<Entry> = entries.iter().map(read).collect();
    match cleaner.next(&entries, Some(clusters), now) {
        Next::Take(entry, record) => {
            let janitor = record.janitor.unwrap();
            assert_eq!(janitor.id.len(), 16);
            assert_eq!(janitor.deadline.to_string(), "2026-11-21T05:15:00Z");
            let name = entry.metadata.name.as_deref().unwrap();
            format!("{name} of {} after {}", record.holder.unwrap(), record.failures)
        }
        Next::Nothing(others) => {
            let others: Vec<_> = others
                .iter()
                .map(|(name, why)| format!("{name}: {why}"))
                .collect();
            others.join("; ")
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn which_entry_is_next() {
    let known =
        |clusters: &[Value]| Clusters::All(ClusterDeployments::new("d", clusters.iter().map(read).collect()));
    let waiting = |name: &str, failures| named(name, being_cleaned(&cleaning(None, failures)));
    let running = |until: &str| being_cleaned(&cleaning(Some(("k4x7", until)), 1));
    let since = |name: &str, since: &str| {
        let record = CleaningRecord {
            since: since.parse().unwrap(),
            ..cleaning(None, 0)
        };
        named(name, being_cleaned(&record))
    };
    let mut cordoned = waiting("a", 3);
    cordoned["metadata"]["annotations"] = json!({"kubectl-kcp.dev/cordoned": "fan"});
    let mut unreadable = waiting("a", 0);
    unreadable["status"]["conditions"][1]["message"] = "v2".into();
    let mut of_another = waiting("a", 0);
    of_another["status"]["clusterPoolRef"]["name"] = "other".into();
    let mut of_none = waiting("a", 0);
    of_none["status"]["clusterPoolRef"].take();
    let mut unasked = pool();
    unasked["metadata"]["annotations"].take();
    let ended = || leased(&gone("us", LONG_AGO));
    for (case, pool, only, entries, clusters, expected) in [
        ("nothing", pool(), None, vec![entry("True", None)], known(&[]), ""),
        (
            "waits",
            pool(),
            None,
            vec![waiting("a", 0)],
            known(&[]),
            "a of us after 0",
        ),
        (
            "the only one",
            pool(),
            Some("b"),
            vec![waiting("a", 0), waiting("b", 2)],
            known(&[]),
            "b of us after 2",
        ),
        (
            "fewer failures first",
            pool(),
            None,
            vec![waiting("a", 2), waiting("b", 1)],
            known(&[]),
            "b of us after 1",
        ),
        (
            "the longest wait first",
            pool(),
            None,
            vec![since("a", JUST_NOW), since("b", LONG_AGO)],
            known(&[]),
            "b of us after 0",
        ),
        (
            "not listed any more",
            pool(),
            None,
            vec![waiting("x", 0)],
            known(&[]),
            "x of us after 0",
        ),
        ("of another pool", pool(), None, vec![of_another], known(&[]), ""),
        (
            "of no pool, but listed",
            pool(),
            None,
            vec![of_none],
            known(&[]),
            "a of us after 0",
        ),
        (
            "another janitor",
            pool(),
            None,
            vec![running("2026-11-21T04:59:56Z")],
            known(&[]),
            "a: another janitor cleans it, at least until 2026-11-21T04:59:56Z",
        ),
        (
            "a janitor that has ended",
            pool(),
            None,
            vec![running("2026-11-21T04:59:55Z")],
            known(&[]),
            "a of us after 1",
        ),
        (
            "cordoned",
            pool(),
            None,
            vec![cordoned],
            known(&[]),
            "a: it is cordoned: fan",
        ),
        (
            "used by a cluster",
            pool(),
            None,
            vec![waiting("a", 0)],
            known(&[cluster("lima", "other", Some("a"))]),
            "a: ClusterDeployment lima uses it",
        ),
        (
            "clusters unknown",
            pool(),
            None,
            vec![waiting("a", 0)],
            Clusters::Unknown(lost()),
            "a: a cluster may use it, and you are not allowed to list clusterdeployments.hive.openshift.io to check this",
        ),
        (
            "unreadable",
            pool(),
            None,
            vec![unreadable],
            known(&[]),
            "a: its record cannot be read; to see what to do, run: kubectl kcp pool repair",
        ),
        (
            "held",
            pool(),
            None,
            vec![leased(&lease("us", Some(LATER)))],
            known(&[]),
            "",
        ),
        (
            "in use",
            pool(),
            None,
            vec![leased(&in_use("us", LONG_AGO, "uid-of-us"))],
            known(&[cluster("us", "pool", Some("a"))]),
            "",
        ),
        (
            "ended",
            pool(),
            None,
            vec![ended()],
            known(&[]),
            "a of us after 0",
        ),
        (
            "ended, in a pool that does not ask",
            unasked.clone(),
            None,
            vec![ended()],
            known(&[]),
            "",
        ),
        (
            "waits, in a pool that no longer asks",
            unasked,
            None,
            vec![waiting("a", 0)],
            known(&[]),
            "a of us after 0",
        ),
        (
            "reserved by hand",
            pool(),
            None,
            vec![entry("False", Some("us"))],
            known(&[]),
            "",
        ),
    ] {
        assert_eq!(next(&pool, only, &entries, &clusters), expected, "{case}");
    }
}

#[test]
fn what_becomes_of_an_entry() {
    let after =
        |failures, limit, end| match after_command(&cleaning(Some(("k4x7", LATER)), failures), end, limit) {
            After::Free => "free".to_owned(),
            After::Wait(record) => {
                assert_eq!(record, cleaning(None, record.failures));
                format!("wait {}", record.failures)
            }
            After::Cordon(reason, record) => {
                assert_eq!(record, cleaning(None, record.failures));
                format!("{} {reason}", record.failures)
            }
        };
    for (failures, limit, end, expected) in [
        (0, 3, CommandEnd::Exited(0), "free"),
        (9, 3, CommandEnd::Exited(0), "free"),
        (0, 3, CommandEnd::Exited(7), "wait 1"),
        (1, 3, CommandEnd::Exited(137), "wait 2"),
        (
            2,
            3,
            CommandEnd::Exited(7),
            "3 cleaning failed 3 times, last with exit code 7",
        ),
        (
            3,
            3,
            CommandEnd::Exited(1),
            "4 cleaning failed 4 times, last with exit code 1",
        ),
        (
            0,
            1,
            CommandEnd::Exited(1),
            "1 cleaning failed 1 time, last with exit code 1",
        ),
        (0, 3, CommandEnd::Aborted, "wait 0"),
        (2, 3, CommandEnd::Aborted, "wait 2"),
    ] {
        assert_eq!(
            after(failures, limit, end),
            expected,
            "{failures} {limit} {end:?}"
        );
    }
}

#[test]
fn only_one_janitor_takes_an_entry() {
    for (fault, expected) in [
        (None, true),
        (Some(Fault::AnswerLost), true),
        (Some(Fault::RequestLost), true),
        (Some(Fault::Overtaken), false),
        (Some(Fault::Touched), false),
        (Some(Fault::Deleted), false),
    ] {
        let fake = Fake::free(&["a"]).with_faults(&[fault]);
        fake.put("a", &being_cleaned(&cleaning(None, 1))["status"]);
        let record = cleaning(Some(("k4x7", LATER)), 1);
        let taken = run(async {
            let entry = fake.get("a").await.unwrap().unwrap();
            take(&fake, &entry, &record).await.unwrap()
        });
        assert_eq!(taken, expected, "{fault:?}");
    }
}

#[test]
fn a_janitor_renews_its_own_hold_only() {
    for (id, expected) in [("k4x7", Some("2026-11-21T06:00:00Z")), ("other", None)] {
        let fake = Fake::free(&["a"]);
        fake.put("a", &being_cleaned(&cleaning(Some(("k4x7", LATER)), 1))["status"]);
        let renewed = run(renew(
            &fake,
            "a",
            JanitorId(id),
            Ttl::For(Duration::from_secs(3600)),
        ))
        .unwrap();
        let record = cleaning(Some(("k4x7", expected.unwrap_or(LATER))), 1);
        assert_eq!(renewed, expected.map(|_| record.clone()), "{id}");
        assert_eq!(
            fake.entry("a").status.reservation(),
            Reservation::Cleaning(record),
            "{id}"
        );
    }
}
