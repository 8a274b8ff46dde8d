//! Every Machine is replaced, and nothing of that is a fault.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::json;

use super::look::Look;
use super::{LIMIT, NEW};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Until the controller has seen a change, nobody can say what becomes of it.
const UNSEEN: &str = "unknown status-current KubeadmControlPlane/edge";

/// Looks again and again while a new version is rolled out with one Machine more than asked for.
pub(super) async fn is_no_fault(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    cluster.patch(&json!({"spec": {"version": NEW}})).await?;
    let end = Instant::now() + LIMIT;
    let mut looks = 0_u32;
    let mut alarms = Vec::new();
    let mut in_progress = 0_u32;
    loop {
        let look = Look::take(management, &[]).await?;
        looks += 1;
        let findings = look.findings();
        let is_unseen = findings.iter().any(|finding| finding == UNSEEN);
        let verdict = if is_unseen { (2, "Unknown") } else { (0, "Healthy") };
        let is_alarm = |finding: &&String| !finding.starts_with("info ") && *finding != UNSEEN;
        if (look.exit_code, look.verdict()) != verdict || findings.iter().any(|finding| is_alarm(&finding)) {
            alarms.push(format!(
                "look {looks}: {} {:#}",
                look.exit_code,
                look.at("/findings")
            ));
        }
        let rolls_out = "info machines-up-to-date KubeadmControlPlane/edge";
        in_progress += u32::from(findings.iter().any(|finding| finding == rolls_out));
        if cluster.settled(3, INTERVAL).await.is_ok() {
            break;
        }
        ensure!(Instant::now() < end, "the rollout has not ended: {findings:#?}");
    }
    ensure!(
        alarms.is_empty(),
        "{} false alarms of {looks} looks: {alarms:#?}",
        alarms.len()
    );
    // One for each of the six steps at least.
    ensure!(in_progress >= 6, "{in_progress} of {looks} looks saw the rollout");
    Ok(())
}
