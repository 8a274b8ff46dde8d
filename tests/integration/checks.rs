//! `kubectl kcp status` of a real control plane: while it is healthy, during a rollout, and with each fault of an etcd
//! member or of the access to it. All share one control plane, because its three machines take longer to start than
//! everything else. Only [`dead_ends`] has its own.

mod access;
mod agreement;
mod dead_ends;
mod losses;
mod members;
mod output;
mod rollout;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;

use self::output::StatusResult;
use crate::remedies;
use crate::shared::with_controllers;

const NAMESPACE: &str = "status";

/// The name of the cluster.
const NAME: &str = "edge";

const OLD: &str = "v1.33.6";
const NEW: &str = "v1.34.2";

/// The command answers within 10 s by default, whatever the fault is. A busy machine needs the rest to start it.
const ANSWER: Duration = Duration::from_secs(40);

#[test]
#[ignore = "takes minutes: make test-long"]
fn status_reports_each_fault() {
    with_controllers(NAMESPACE, are_reported);
}

async fn are_reported(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, OLD).await?;
    cluster.settled(3).await?;
    is_healthy(management).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    rollout::is_no_fault(management, &cluster, &workload).await?;
    for replicas in [5, 3] {
        rollout::scaling_is_no_fault(management, &cluster, &workload, replicas).await?;
    }
    is_healthy(management).await?;

    let machines = cluster.machines().await?;
    let [first, second, third] = machines.as_slice() else {
        bail!("the Machines are {machines:?}");
    };
    let machines = [first.as_str(), second, third];
    losses::are_reported(management, &workload, machines).await?;
    is_healthy(management).await?;

    // Otherwise Cluster API repairs some of the faults before the test observes them.
    cluster.pause(true).await?;
    comes_to(management, "the pause", 0, "Healthy", &[PAUSED.to_owned()]).await?;
    access::are_reported(management, machines).await?;
    members::are_reported(management, &workload, machines).await?;
    cluster.pause(false).await?;
    cluster.delete().await
}

/// The only finding of a paused Cluster without faults.
const PAUSED: &str = "warn paused Cluster/edge, KubeadmControlPlane/edge";

async fn is_healthy(management: &ManagementCluster) -> Result<()> {
    let result = comes_to(management, "health", 0, "Healthy", &[]).await?;
    let checks = result.at("/checks").as_array().cloned().unwrap_or_default();
    let other = checks.iter().find(|check| {
        let outcome = output::text(check, "outcome");
        let has_findings = check
            .get("findings")
            .and_then(|findings| findings.get(0))
            .is_some();
        has_findings || !matches!(outcome, "pass" | "skipped")
    });
    // Older etcd members do not report their quota.
    let is_expected = other.is_none_or(|check| output::text(check, "id") == "etcd-space-low");
    ensure!(
        checks.len() > 40 && is_expected,
        "{other:?} of {} checks",
        checks.len()
    );
    for action in ["scaleUp", "scaleDown", "rollout"] {
        ensure!(result.allowed(action) == Some(true), "{action}: {result:?}");
    }
    Ok(())
}

/// While nothing repairs the fault, `why` never says that all is well or that a controller acts. The commands that it and
/// `status` print are accepted.
async fn needs_a_person(management: &ManagementCluster, what: &str) -> Result<()> {
    let why = management
        .kubectl()
        .run(["kcp", "why", NAME, "-n", NAMESPACE])
        .await?;
    ensure!(why.code != 0, "{what}: {why}");
    remedies::are_accepted(management, NAMESPACE, NAME)
        .await
        .with_context(|| what.to_owned())
        .map(drop)
}

/// Waits until `status` has exactly this result.
async fn comes_to(
    management: &ManagementCluster,
    what: &str,
    exit_code: i32,
    verdict: &str,
    findings: &[String],
) -> Result<StatusResult> {
    let mut findings = findings.to_vec();
    findings.sort();
    wait::until(&format!("status reports {what}"), || async {
        let result = StatusResult::take(management, &[]).await?;
        let mut found = result.findings();
        found.sort();
        ensure!(
            found == findings && result.exit_code == exit_code && result.verdict() == verdict,
            "{} {} {found:#?} instead of {exit_code} {verdict} {findings:#?}",
            result.exit_code,
            result.verdict()
        );
        Ok(result)
    })
    .await
}
