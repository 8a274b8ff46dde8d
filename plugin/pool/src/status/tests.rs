//! The state of a pool.

use serde_json::{Value, json};

use crate::{
    objects::CleaningRecord,
    status::{ClusterUseState, EntryUseState, PoolProblem},
    testing::{
        objects::{JUST_NOW, LONG_AGO, Objects, asking, being_cleaned, cleaning, entry, pool_object},
        states::{busy, claims, resuming, state, states},
    },
};

#[test]
fn the_state_of_each_entry() {
    let state = state(&busy(), &claims());
    let entries: Vec<_> = state
        .entries
        .iter()
        .map(|entry| {
            let leak = entry.finding.as_ref().map(|leak| leak.cause.as_str());
            (
                entry.name.as_str(),
                entry.state,
                entry.is_in_inventory,
                entry.holder.as_deref(),
                leak,
            )
        })
        .collect();
    assert_eq!(
        entries,
        [
            ("host-1", EntryUseState::Held, true, Some("paris"), None),
            ("host-2", EntryUseState::InUse, true, Some("rome"), None),
            (
                "host-3",
                EntryUseState::Expired,
                true,
                Some("oslo"),
                Some("cluster-gone")
            ),
            ("host-4", EntryUseState::Free, true, None, None),
            ("host-5", EntryUseState::Missing, true, None, None),
            ("host-9", EntryUseState::InUse, false, Some("lima"), None),
        ]
    );
    let ends: Vec<_> = state
        .entries
        .iter()
        .map(|entry| Some(entry.lease.as_ref()?.deadline?.to_string()))
        .collect();
    assert_eq!(ends[0].as_deref(), Some("2026-11-21T05:09:00Z"));
    assert_eq!(ends[3], None);
}

#[test]
fn which_clusters_are_stale_and_which_claims_wait() {
    let state = state(&busy(), &claims());
    let clusters: Vec<_> = state
        .clusters
        .iter()
        .flatten()
        .map(|cluster| (cluster.name.as_str(), cluster.state, cluster.staleness.is_some()))
        .collect();
    assert_eq!(
        clusters,
        [
            ("rome", ClusterUseState::Installed, false),
            ("bern", ClusterUseState::Installed, true),
            ("kyiv", ClusterUseState::Installing, false),
            ("lima", ClusterUseState::Installed, true),
        ]
    );
    let waiting: Vec<_> = state.waiting_claims().map(|claim| claim.name.as_str()).collect();
    assert_eq!(waiting, ["early", "late"]);
}

#[test]
fn lists_every_kind_of_problem() {
    let problems: Vec<_> = state(&busy(), &claims())
        .problems()
        .iter()
        .map(|problem| format!("{} {}", problem.kind, problem.object))
        .collect();
    assert_eq!(
        problems,
        [
            "short clusterpool/pool",
            "leaked cdc/host-3",
            "broken cdc/host-4",
            "shared cdc/host-4",
            "missing cdc/host-5",
        ]
    );
    let states = states();
    let are_good: Vec<_> = states
        .iter()
        .map(|(_, state)| state.problems().is_empty())
        .collect();
    assert_eq!(are_good, [false, false, false, true, true, false, false, true]);
    let stuck: Vec<_> = states[1]
        .1
        .problems()
        .iter()
        .map(|problem| problem.kind)
        .collect();
    assert_eq!(stuck, ["stuck", "failed"]);
}

fn problems(objects: &Objects) -> Vec<String> {
    let problems = state(objects, &[]).problems();
    let line = |problem: &PoolProblem| format!("{} {}: {}", problem.kind, problem.object, problem.message);
    problems.iter().map(line).collect()
}

#[test]
fn a_cluster_that_resumes_longer_than_the_resume_timeout_is_a_problem() {
    const OVERDUE: &str = "failed cd/bern: the cluster has been resuming since 2026-11-21T04:00:00Z, and has exceeded the \
                           pool's resumeTimeout; ";
    let set = |path: &str, value: Value| {
        let mut objects = resuming();
        let (of_cluster, path) = (!path.starts_with("/pool"), path.trim_start_matches("/pool"));
        let object = if of_cluster {
            &mut objects.clusters[0]
        } else {
            &mut objects.pools[0]
        };
        *object.pointer_mut(path).unwrap() = value;
        objects
    };
    let mut claimed = resuming();
    claimed.clusters[0]["spec"]["clusterPoolRef"]["claimName"] = "for-qa".into();
    for (case, objects, expected) in [
        (
            "unclaimed",
            resuming(),
            Some("Hive deletes the cluster and creates another one"),
        ),
        (
            "claimed",
            claimed,
            Some("Hive does not replace a claimed cluster; if it cannot resume, delete ClusterClaim for-qa"),
        ),
        (
            "within the timeout",
            set("/pool/spec/hibernationConfig/resumeTimeout", "1h0m1s".into()),
            None,
        ),
        ("no timeout", set("/pool/spec/hibernationConfig", json!({})), None),
        (
            "a timeout of zero",
            set("/pool/spec/hibernationConfig/resumeTimeout", "0s".into()),
            None,
        ),
        ("without Hive", set("/pool/metadata/finalizers", json!([])), None),
        (
            "resumes since a minute",
            set("/status/conditions/0/lastTransitionTime", JUST_NOW.into()),
            None,
        ),
        ("runs", set("/status/powerState", "Running".into()), None),
        ("hibernates", set("/spec/powerState", "Hibernating".into()), None),
        (
            "has not begun to resume",
            set("/status/powerState", "Hibernating".into()),
            None,
        ),
        ("is being installed", set("/spec/installed", false.into()), None),
        (
            "stops",
            set("/status/conditions/0/reason", "Stopping".into()),
            None,
        ),
    ] {
        let expected: Vec<_> = expected
            .map(|what| format!("{OVERDUE}{what}"))
            .into_iter()
            .collect();
        assert_eq!(problems(&objects), expected, "{case}");
    }
}

#[test]
fn a_cleaning_that_waits_too_long_or_failed_is_a_problem() {
    const RECENT: &str = "2026-11-21T04:00:01Z";
    let dirty = |since: &str, janitor, failures| {
        let record = CleaningRecord {
            since: since.parse().unwrap(),
            ..cleaning(janitor, failures)
        };
        Objects::entry(being_cleaned(&record))
    };
    let mut cordoned = dirty(RECENT, None, 3);
    cordoned.entries[0]["metadata"]["annotations"] = json!({"kubectl-kcp.dev/cordoned": "why"});
    let running = Some(("k4x7", "2026-11-21T05:10:00Z"));
    for (case, objects, expected) in [
        ("waits", dirty(RECENT, None, 0), None),
        (
            "waits for an hour",
            dirty(LONG_AGO, None, 0),
            Some("the entry has waited for a janitor since 2026-11-21T04:00:00Z; run pool exec --clean"),
        ),
        ("is cleaned", dirty(LONG_AGO, running, 0), None),
        (
            "its janitor has ended",
            dirty(LONG_AGO, Some(("k4x7", LONG_AGO)), 0),
            Some("the entry has waited for a janitor since 2026-11-21T04:00:00Z; run pool exec --clean"),
        ),
        (
            "failed",
            dirty(RECENT, running, 1),
            Some("cleaning failed 1 time; the next janitor tries again"),
        ),
        (
            "failed and cordoned",
            cordoned,
            Some("cleaning failed 3 times; no janitor tries again until the entry is uncordoned"),
        ),
    ] {
        let expected: Vec<_> = expected
            .map(|what| format!("dirty cdc/a: {what}"))
            .into_iter()
            .collect();
        assert_eq!(problems(&objects), expected, "{case}");
        let pool = state(&objects, &[]);
        assert_eq!(
            (pool.entries[0].state, pool.entries[0].holder.as_deref()),
            (EntryUseState::Cleaning, None)
        );
    }
    let mut renamed = dirty(LONG_AGO, None, 1);
    renamed.pools[0]["metadata"]["name"] = "new".into();
    assert_eq!(
        problems(&renamed),
        [
            "leaked cdc/a: the entry must be cleaned, but no janitor takes it, because pool pool does not exist; apply the pool \
             again, or clean the entry and run: kubectl kcp pool repair --yes --force a -n d"
        ]
    );
    let mut unclear = Objects::entry(entry("True", None));
    for (value, expected) in [("true", None), ("false", None), ("yes", Some("\"yes\""))] {
        unclear.pools[0] = asking(unclear.pools[0].clone(), value);
        let expected = expected.map(|value| {
            format!(
                "unclear clusterpool/pool: annotation kubectl-kcp.dev/clean-before-reuse is {value}, which counts as true; set it \
                 to true or false"
            )
        });
        assert_eq!(problems(&unclear), Vec::from_iter(expected));
    }
}

#[test]
fn without_a_resume_timeout_a_cluster_that_does_not_resume_is_a_problem_for_claims_that_wait() {
    let resuming_with = |timeout: Value| {
        let mut objects = resuming();
        objects.pools[0]["spec"]["hibernationConfig"] = timeout;
        objects
    };
    let waiting = |count: usize| -> Vec<Value> {
        let claim = |index| {
            json!({
                "metadata": {"name": format!("claim-{index}"), "creationTimestamp": JUST_NOW},
                "spec": {"clusterPoolName": "pool"},
            })
        };
        (0..count).map(claim).collect()
    };
    let mut claimed = resuming_with(json!({}));
    claimed.clusters[0]["spec"]["clusterPoolRef"]["claimName"] = "for-qa".into();
    let mut recent = resuming_with(json!({}));
    recent.clusters[0]["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-21T04:30:01Z".into();
    let mut being_deleted = waiting(1);
    being_deleted[0]["metadata"]["deletionTimestamp"] = JUST_NOW.into();
    for (case, objects, claims, expected) in [
        ("no claim waits", resuming_with(json!({})), waiting(0), None),
        (
            "one claim waits",
            resuming_with(json!({})),
            waiting(1),
            Some("1 ClusterClaim waits"),
        ),
        (
            "two claims wait, and the timeout is zero",
            resuming_with(json!({"resumeTimeout": "0s"})),
            waiting(2),
            Some("2 ClusterClaims wait"),
        ),
        (
            "the claim is being deleted",
            resuming_with(json!({})),
            being_deleted,
            None,
        ),
        ("the cluster is claimed", claimed, waiting(1), None),
        ("it resumes since 30 minutes", recent, waiting(1), None),
    ] {
        let expected: Vec<_> = expected
            .map(|waits| {
                format!(
                    "the cluster has been resuming since 2026-11-21T04:00:00Z, and {waits}; without \
                     spec.hibernationConfig.resumeTimeout of the pool, Hive never replaces the cluster; set it, or delete the \
                     ClusterDeployment"
                )
            })
            .into_iter()
            .collect();
        let problems = state(&objects, &claims).problems();
        let found: Vec<_> = problems.into_iter().map(|problem| problem.message).collect();
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn an_inventory_that_the_server_dropped_is_a_problem_if_the_last_manifest_has_it() {
    let mut pool = pool_object("pool", &json!({}));
    let lost = |pool: &Value, drops, applied: &[&str]| {
        let objects = Objects {
            pools: vec![pool.clone()],
            drops_inventory: drops,
            applied_inventories: [(
                "pool".to_owned(),
                applied.iter().map(|name| (*name).to_owned()).collect(),
            )]
            .into(),
            ..Objects::default()
        };
        let state = state(&objects, &[]);
        let kinds: Vec<_> = state.problems().iter().map(|problem| problem.kind).collect();
        (state.lost_inventory.is_dropped, kinds)
    };
    assert_eq!(lost(&pool, Some(true), &["host-a"]), (Some(true), vec!["lost"]));
    assert_eq!(lost(&pool, Some(false), &["host-a"]), (Some(false), vec!["lost"]));
    assert_eq!(lost(&pool, None, &["host-a"]), (None, vec!["lost"]));
    assert_eq!(lost(&pool, Some(true), &[]), (Some(true), vec![]));
    pool["spec"]["inventory"] = json!([{"name": "host-a"}]);
    assert_eq!(lost(&pool, Some(false), &["host-a"]), (None, vec!["missing"]));
}
