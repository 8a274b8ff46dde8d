//! What is written of a lease, and what is read from it.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::objects::{
    entry::Holder,
    record::{LeaseClaim, Record, first},
};

const US: Holder<'_> = Holder {
    pool: "pool",
    cluster_deployment: "us",
};
const THEM: Holder<'_> = Holder {
    pool: "pool",
    cluster_deployment: "them",
};

fn at(time: &str) -> Timestamp {
    format!("2026-11-21T{time}Z").parse().unwrap()
}

fn claim(holder: Holder<'static>, seconds: Option<f64>) -> LeaseClaim<'static> {
    LeaseClaim {
        holder,
        duration: seconds.map(Duration::from_secs_f64),
        cluster_deployment_uid: None,
        is_creating: false,
    }
}

/// As the server would store it.
fn stored(record: Value) -> Record {
    let mut record = record;
    record["metadata"]["resourceVersion"] = "7".into();
    serde_json::from_value(record).unwrap()
}

#[test]
fn a_first_record() {
    assert_eq!(
        first("host-a", claim(US, Some(89.5)), at("05:00:00.5")),
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": "kcp-pool-host-a",
                "labels": {"app.kubernetes.io/managed-by": "kubectl-kcp", "kubectl-kcp.dev/pool-lease": "true"},
                "annotations": {"kubectl-kcp.dev/cluster-pool": "pool"},
            },
            "spec": {
                "holderIdentity": "us", "leaseDurationSeconds": 90, "leaseTransitions": 0,
                "acquireTime": "2026-11-21T05:00:00.500000Z", "renewTime": "2026-11-21T05:00:00.500000Z",
            },
        })
    );
}

#[test]
fn a_renewal_keeps_when_the_lease_was_taken_and_what_was_seen() {
    let seen = LeaseClaim {
        cluster_deployment_uid: Some("uid"),
        ..claim(US, Some(60.0))
    };
    let record = stored(first("a", seen, at("05:00:00")));
    let patch = record.claimed(claim(US, None), at("05:01:00"));
    assert_eq!(
        patch,
        json!({
            "metadata": {
                "resourceVersion": "7",
                "labels": {"app.kubernetes.io/managed-by": "kubectl-kcp", "kubectl-kcp.dev/pool-lease": "true"},
                "annotations": {
                    "kubectl-kcp.dev/cluster-pool": "pool", "kubectl-kcp.dev/revoked": null,
                    "kubectl-kcp.dev/creating": null, "kubectl-kcp.dev/cluster-deployment-uid": "uid",
                },
            },
            "spec": {
                "holderIdentity": "us", "leaseDurationSeconds": null, "leaseTransitions": 0,
                "acquireTime": "2026-11-21T05:00:00.000000Z", "renewTime": "2026-11-21T05:01:00.000000Z",
            },
        })
    );
}

#[test]
fn another_holder_starts_anew() {
    let seen = LeaseClaim {
        cluster_deployment_uid: Some("uid"),
        ..claim(THEM, Some(60.0))
    };
    let record = stored(first("a", seen, at("05:00:00")));
    let patch = record.claimed(claim(US, Some(30.0)), at("05:01:00"));
    assert_eq!(patch["spec"]["acquireTime"], "2026-11-21T05:01:00.000000Z");
    assert_eq!(patch["spec"]["leaseTransitions"], 1);
    assert_eq!(
        patch["metadata"]["annotations"]["kubectl-kcp.dev/cluster-deployment-uid"],
        Value::Null
    );
}

#[test]
fn a_record_says_that_a_cluster_is_being_made_until_it_is() {
    let annotation = "kubectl-kcp.dev/creating";
    let passing = LeaseClaim {
        is_creating: true,
        ..claim(US, Some(600.0))
    };
    let record = first("a", passing, at("05:00:00"));
    assert_eq!(record["metadata"]["annotations"][annotation], "true");
    let record = stored(record);
    assert!(record.is_creating());
    for (claim, expected) in [(passing, json!("true")), (claim(US, None), Value::Null)] {
        let patch = record.claimed(claim, at("05:01:00"));
        assert_eq!(patch["metadata"]["annotations"][annotation], expected);
    }
    assert!(!stored(first("a", claim(US, None), at("05:00:00"))).is_creating());
}

#[test]
fn when_a_lease_ends() {
    for (seconds, expected) in [
        (Some(60.0), Some("05:01:00")),
        (Some(0.0), Some("05:00:01")),
        (None, None),
    ] {
        let record = stored(first("a", claim(US, seconds), at("05:00:00")));
        assert_eq!(record.expires(), expected.map(at), "{seconds:?}");
    }
    let written_by_nobody = stored(json!({"metadata": {"name": "kcp-pool-a"}, "spec": {}}));
    assert_eq!(written_by_nobody.expires(), None);
    assert_eq!(written_by_nobody.cluster_deployment(), None);
    assert_eq!(written_by_nobody.customization(), Some("a"));
}

#[test]
fn who_is_about_to_take_an_entry() {
    let record = stored(first("a", claim(THEM, None), at("05:00:00")));
    for (now, expected) in [
        ("05:00:00", true),
        ("05:00:09.9", true),
        ("05:00:10", false),
        ("04:59:55", true),
        ("04:59:50", false),
    ] {
        assert_eq!(
            record.is_being_reserved_by_another(US, at(now)),
            expected,
            "{now}"
        );
        assert!(!record.is_being_reserved_by_another(THEM, at(now)), "{now}");
    }
    let elsewhere = Holder {
        pool: "other",
        ..THEM
    };
    assert!(record.is_being_reserved_by_another(elsewhere, at("05:00:00")));
    let mut revoked = first("a", claim(THEM, None), at("05:00:00"));
    revoked["metadata"]["annotations"]["kubectl-kcp.dev/revoked"] = "2026-11-21T05:00:00.000000Z".into();
    assert!(!stored(revoked).is_being_reserved_by_another(US, at("05:00:01")));
}

#[test]
fn what_was_taken_away_is_taken_anew() {
    let mut record = first("a", claim(US, Some(60.0)), at("05:00:00"));
    record["metadata"]["annotations"]["kubectl-kcp.dev/revoked"] = "2026-11-21T05:00:30.000000Z".into();
    let record = stored(record);
    assert!(record.is_revoked());
    assert_eq!(
        record.revoked(at("05:00:30")),
        json!({"metadata": {
            "resourceVersion": "7",
            "annotations": {"kubectl-kcp.dev/revoked": "2026-11-21T05:00:30.000000Z"},
        }})
    );
    let patch = record.claimed(claim(US, None), at("05:01:00"));
    assert_eq!(patch["spec"]["acquireTime"], "2026-11-21T05:01:00.000000Z");
    assert_eq!(patch["spec"]["leaseTransitions"], 1);
}
