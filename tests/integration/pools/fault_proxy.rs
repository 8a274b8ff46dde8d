//! Each fault has exactly its effect: on what etcd stores, on the proxy's records, and on the command's exit code.

use anyhow::Result;
use http::{Method, StatusCode};
use kcp_tests::pools::fault::{Fault, FaultPlan};
use kcp_tests::pools::fault_proxy::{ForwardedWrite, Traffic};
use kcp_tests::pools::pool::Pool;
use kcp_tests::pools::server::PoolServer;
use kcp_tests::pools::verb::LEASE;
use kcp_tests::pools::version::Entry;

use crate::shared::with_pools;

/// Runs one lease with a fault at its first write. Returns the exit code, the proxy's records, and whether etcd names
/// the lessee.
async fn lease_with(
    server: &PoolServer,
    namespace: &str,
    fault: Option<Fault>,
) -> Result<(Option<i32>, Traffic, bool)> {
    let pool = Pool::create(server, namespace, 1).await?;
    let plan = fault.map(|fault| FaultPlan { write: 1, fault });
    let ended = pool.run(&LEASE, "a", plan).await?;
    let versions = server.history().take(namespace).await?;
    let is_named = |entry: &Entry| {
        entry.cluster_deployment.as_deref() == Some("a") && entry.is_reserved && entry.lease_id.is_some()
    };
    let stored = versions
        .entries
        .iter()
        .filter(|version| version.object.as_ref().is_some_and(is_named));
    let stored: Vec<_> = stored.map(|version| version.revision.to_string()).collect();
    let forwarded = status_writes(&ended.traffic);
    let told: Vec<_> = forwarded
        .iter()
        .filter_map(|write| write.resource_version.clone())
        .collect();
    assert_eq!(told, stored, "{ended}");
    Ok((ended.code, ended.traffic, !stored.is_empty()))
}

/// Writes of customizations. A command may write other objects too.
fn status_writes(traffic: &Traffic) -> Vec<&ForwardedWrite> {
    let is_of_entry = |write: &&ForwardedWrite| {
        write.path.contains("/clusterdeploymentcustomizations/") && write.path.ends_with("/status")
    };
    traffic.forwarded.iter().filter(is_of_entry).collect()
}

#[test]
fn a_command_without_a_fault_is_recorded_completely() {
    with_pools(async |server| {
        let (code, traffic, is_stored) = lease_with(server, "proxy-none", None).await.unwrap();
        assert_eq!(
            (code, traffic.faulted.is_some(), is_stored),
            (Some(0), false, true)
        );
        let [write] = status_writes(&traffic)[..] else {
            panic!("{traffic:?}")
        };
        assert_eq!(
            (&write.method, write.path.as_str(), write.status),
            (
                &Method::PATCH,
                "/apis/hive.openshift.io/v1/namespaces/proxy-none/clusterdeploymentcustomizations/host-1/status",
                StatusCode::OK
            )
        );
    });
}

#[test]
fn a_command_killed_before_its_write_has_written_nothing() {
    with_pools(async |server| {
        let (code, traffic, is_stored) = lease_with(
            server,
            "proxy-killed-before-write",
            Some(Fault::KilledBeforeWrite),
        )
        .await
        .unwrap();
        assert_eq!((code, is_stored), (None, false));
        let expected = Traffic {
            forwarded: Vec::new(),
            faulted: Some(
                "/apis/hive.openshift.io/v1/namespaces/proxy-killed-before-write/clusterdeploymentcustomizations/host-1/status"
                    .to_owned(),
            ),
        };
        assert_eq!(traffic, expected);
    });
}

#[test]
fn a_command_killed_before_the_answer_has_written_once() {
    with_pools(async |server| {
        let (code, traffic, _) = lease_with(
            server,
            "proxy-killed-before-answer",
            Some(Fault::KilledBeforeAnswer),
        )
        .await
        .unwrap();
        assert_eq!(
            (code, traffic.faulted.is_some(), traffic.forwarded.len()),
            (None, true, 1)
        );
    });
}

#[test]
fn a_command_whose_answer_is_lost_finds_what_it_wrote() {
    with_pools(async |server| {
        for (namespace, fault) in [
            ("proxy-answer-cut", Fault::AnswerCut),
            ("proxy-gateway-timeout", Fault::GatewayTimeout),
        ] {
            let (code, traffic, is_stored) = lease_with(server, namespace, Some(fault)).await.unwrap();
            assert_eq!(
                (code, traffic.faulted.is_some(), is_stored),
                (Some(0), true, true),
                "{fault:?}"
            );
            let statuses: Vec<_> = status_writes(&traffic).iter().map(|write| write.status).collect();
            assert_eq!(statuses, [StatusCode::OK], "{fault:?}");
        }
    });
}

/// The command ends without a fault, and the proxy reports that.
#[test]
fn a_fault_at_a_write_that_never_happens_is_not_injected() {
    with_pools(async |server| {
        let pool = Pool::create(server, "proxy-unreached", 1).await.unwrap();
        let fault = Fault::KilledBeforeWrite;
        let ended = pool
            .run(&LEASE, "a", Some(FaultPlan { write: 99, fault }))
            .await
            .unwrap();
        assert_eq!(
            (ended.code, ended.traffic.faulted.is_some()),
            (Some(0), false),
            "{ended}"
        );
    });
}
