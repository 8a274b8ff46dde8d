use serde_json::json;

use super::{NodeFacts, NodeResult, Probe};
use crate::{
    audit::AuditOutcome,
    snapshot::{Reading, workload::ControllerLease},
    testing::{
        objects::{minutes_ago, now},
        snapshot::failure,
    },
};

fn node() -> NodeFacts {
    NodeFacts {
        name: "n1".to_owned(),
        ready: Some(true),
        lease: Reading::Read(Some(ControllerLease {
            name: "n1".to_owned(),
            holder: Some("n1".to_owned()),
            renewed: Some(now()),
            acquired: None,
            duration_seconds: Some(40),
        })),
    }
}

/// The log of a Pod with this nonce, in which the name has these addresses.
fn log(nonce: &str, addresses: &[&str]) -> Probe {
    let error = addresses.is_empty().then_some("not found");
    let report = json!({
        "nonce": nonce,
        "names": [{"name": "example.com", "addresses": addresses, "error": error}],
        "apiServer": {"version": "v1.34.2"},
    });
    Probe::Log(format!("a warning\n{report}\n"))
}

/// The checks that do not pass, with their messages.
fn problems(node: &NodeFacts, probe: &Probe) -> Vec<String> {
    let result = NodeResult::new(node, probe, "run-1", now());
    let ids: Vec<&str> = result.checks.iter().map(|check| check.id).collect();
    assert_eq!(
        ids,
        [
            "node-ready",
            "lease-renewed",
            "pod-completes",
            "log-matches",
            "names-resolve",
            "api-server-responds"
        ]
    );
    let problems = result
        .checks
        .iter()
        .filter(|check| check.outcome != AuditOutcome::Pass);
    problems
        .map(|check| format!("{} {}: {}", check.outcome.as_str(), check.id, check.message))
        .collect()
}

#[test]
fn a_node_passes_if_its_pod_reports_what_was_asked() {
    assert_eq!(
        problems(&node(), &log("run-1", &["10.0.0.1"])),
        Vec::<String>::new()
    );
    let result = NodeResult::new(&node(), &log("run-1", &["10.0.0.1"]), "run-1", now());
    assert_eq!(result.outcome(), AuditOutcome::Pass);
    let messages: Vec<&str> = result.checks.iter().map(|check| check.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "the Node is ready",
            "the kubelet last renewed its Lease 0s ago",
            "the Pod was scheduled, and ran to completion",
            "the log repeats the nonce",
            "example.com: 10.0.0.1",
            "version v1.34.2",
        ]
    );
}

#[test]
fn each_fault_of_a_node_is_found() {
    let passing = log("run-1", &["10.0.0.1"]);
    let with_lease = |lease| NodeFacts { lease, ..node() };
    let stale = ControllerLease {
        name: "n1".to_owned(),
        holder: None,
        renewed: Some(minutes_ago(2)),
        acquired: None,
        duration_seconds: None,
    };
    for (node, expected) in [
        (
            NodeFacts {
                ready: Some(false),
                ..node()
            },
            "FAIL node-ready: the Node is not ready",
        ),
        (
            NodeFacts {
                ready: None,
                ..node()
            },
            "FAIL node-ready: it is unknown whether the Node is ready, because its kubelet does not report",
        ),
        (
            with_lease(Reading::Read(Some(stale))),
            "FAIL lease-renewed: the kubelet last renewed its Lease 2m ago; the limit is 50s",
        ),
        (
            with_lease(Reading::Read(None)),
            "FAIL lease-renewed: the kubelet has no Lease in kube-node-lease, or has never renewed it",
        ),
        (
            with_lease(Reading::Failed(failure("Lease", "cannot list leases: forbidden"))),
            "UNKNOWN lease-renewed: the Lease could not be read: cannot list leases: forbidden",
        ),
    ] {
        assert_eq!(problems(&node, &passing), [expected]);
    }
}

#[test]
fn each_fault_of_a_pod_is_found() {
    const NO_REPORT: &str = "there is no report of a Pod";
    let unknown = |ids: &[&str]| -> Vec<String> {
        let unknown = ids.iter().map(|id| format!("UNKNOWN {id}: {NO_REPORT}"));
        unknown.collect()
    };
    let needs_report = ["names-resolve", "api-server-responds"];
    let of_log = |text: &str| Probe::Log(text.to_owned());
    for (probe, first, unknown) in [
        (
            Probe::NotCreated("the Node is not ready".to_owned()),
            "UNKNOWN pod-completes: the Node is not ready",
            unknown(&["log-matches", "names-resolve", "api-server-responds"]),
        ),
        (
            Probe::NotEnded("ErrImagePull".to_owned()),
            "FAIL pod-completes: ErrImagePull",
            unknown(&["log-matches", "names-resolve", "api-server-responds"]),
        ),
        (
            Probe::WithoutLog("no response".to_owned()),
            "FAIL log-matches: no response",
            unknown(&needs_report),
        ),
        (
            of_log("\n"),
            "FAIL log-matches: the log is empty",
            unknown(&needs_report),
        ),
        (
            of_log("hello"),
            "FAIL log-matches: the last line of the log is not a report of kcp-webhook probe",
            unknown(&needs_report),
        ),
        (
            log("run-2", &["10.0.0.1"]),
            "FAIL log-matches: the log belongs to another Pod: it contains another nonce",
            unknown(&needs_report),
        ),
        (
            log("run-1", &[]),
            "FAIL names-resolve: example.com: not found",
            Vec::new(),
        ),
        (
            of_log(r#"{"nonce": "run-1", "names": [], "apiServer": {"error": "connection refused"}}"#),
            "FAIL api-server-responds: connection refused",
            Vec::new(),
        ),
    ] {
        let expected: Vec<String> = [first.to_owned()].into_iter().chain(unknown).collect();
        assert_eq!(problems(&node(), &probe), expected, "{probe:?}");
    }
}
