//! `kubectl kcp status` of a real control plane: while it is healthy, during a rollout, and with each fault of an etcd
//! member or of the access to it. All share one control plane, because its three machines take longer to start than
//! everything else.

mod access;
mod look;
mod losses;
mod members;
mod rollout;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;

use self::look::Look;
use crate::shared::with_controllers;

const NAMESPACE: &str = "status";

/// The name of the cluster.
const NAME: &str = "edge";

const OLD: &str = "v1.33.6";
const NEW: &str = "v1.34.2";

/// The command answers within 10 s by default, whatever the fault is. A busy machine needs the rest to start it.
const ANSWER: Duration = Duration::from_secs(40);

#[test]
fn a_control_plane_is_told_as_it_is() {
    with_controllers(NAMESPACE, is_told);
}

async fn is_told(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, OLD).await?;
    cluster.settled(3).await?;
    is_healthy(management).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    rollout::is_no_fault(management, &cluster, &workload).await?;
    is_healthy(management).await?;

    let machines = cluster.machines().await?;
    let [first, second, third] = machines.as_slice() else {
        bail!("the Machines are {machines:?}");
    };
    let machines = [first.as_str(), second, third];
    losses::are_told(management, &workload, machines).await?;
    is_healthy(management).await?;

    // Otherwise Cluster API repairs some of the faults before the test observes them.
    cluster.pause(true).await?;
    comes_to(management, "the pause", 0, "Healthy", &[PAUSED.to_owned()]).await?;
    access::is_told(management, machines).await?;
    members::are_told(management, &workload, machines).await?;
    cluster.pause(false).await?;
    cluster.delete().await
}

/// The only finding of a paused Cluster without faults.
const PAUSED: &str = "warn not-paused KubeadmControlPlane/edge, Cluster/edge";

async fn is_healthy(management: &ManagementCluster) -> Result<()> {
    let look = comes_to(management, "health", 0, "Healthy", &[]).await?;
    let checks = look.at("/checks").as_array().cloned().unwrap_or_default();
    let other = checks.iter().find(|check| {
        let outcome = look::text(check, "outcome");
        let has_findings = check
            .get("findings")
            .and_then(|findings| findings.get(0))
            .is_some();
        has_findings || !matches!(outcome, "pass" | "skipped")
    });
    // Older etcd members do not report their quota.
    let is_expected = other.is_none_or(|check| look::text(check, "id") == "etcd-space");
    ensure!(
        checks.len() > 40 && is_expected,
        "{other:?} of {} checks",
        checks.len()
    );
    for action in ["scaleUp", "scaleDown", "rollout"] {
        ensure!(look.allowed(action) == Some(true), "{action}: {look:?}");
    }
    Ok(())
}

/// Waits until `status` has exactly this result.
async fn comes_to(
    management: &ManagementCluster,
    what: &str,
    exit_code: i32,
    verdict: &str,
    findings: &[String],
) -> Result<Look> {
    let mut findings = findings.to_vec();
    findings.sort();
    wait::until(&format!("status tells {what}"), || async {
        let look = Look::take(management, &[]).await?;
        let mut found = look.findings();
        found.sort();
        ensure!(
            found == findings && look.exit_code == exit_code && look.verdict() == verdict,
            "{} {} {found:#?} instead of {exit_code} {verdict} {findings:#?}",
            look.exit_code,
            look.verdict()
        );
        Ok(look)
    })
    .await
}
