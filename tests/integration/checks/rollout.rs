//! A rollout, a scale up and a scale down cause no false alarm in `status`, the list and `plan`, which agree with each other, even
//! while the rollout's first new member stays a learner for some time.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::json;

use super::NEW;
use super::agreement::Others;
use super::output::StatusResult;

/// The interval between two results.
const INTERVAL: Duration = Duration::from_secs(1);

/// Before the controller has observed the change, its effect is unknown.
const UNSEEN: &str = "unknown status-outdated KubeadmControlPlane/edge";

/// The check that is unknown until then.
const OUTDATED: &str = "status-outdated";

/// The check that is unknown until a busy controller has recorded what it has compared.
const UNRECORDED: &str = "change-not-recorded";

/// The checks that report the creation and the replacement of Machines as information.
const INFO_DURING_ROLLOUT: &[&str] = &[
    "api-servers-mismatch",
    "api-servers-not-ready",
    "controller-managers-not-ready",
    "etcd-disk-slow",
    "etcd-no-leader",
    "etcd-learners-stuck",
    "etcd-member-lists-differ",
    "etcd-members-unresponsive",
    "etcd-members-mismatch",
    "etcd-pods-not-ready",
    "etcd-voters-unhealthy",
    "kubeadm-config-outdated",
    "machine-deletions-slow",
    "machines-without-node",
    "machines-outdated",
    "nodes-left-behind",
    "replicas-differ",
    "schedulers-not-ready",
];

/// Runs `status` repeatedly during a rollout with one surge Machine.
pub(super) async fn is_no_fault(
    management: &ManagementCluster,
    cluster: &Cluster,
    workload: &WorkloadCluster,
) -> Result<()> {
    let old = cluster.machines().await?;
    let any = old.first().context("there is no Machine")?;
    workload.inflict(Fault::HoldPromotions, any).await?;
    cluster.patch(&json!({"spec": {"version": NEW}})).await?;
    let end = Instant::now() + wait::LIMIT;
    let mut results = Results::default();
    let (mut is_held, mut saw_learner) = (true, false);
    loop {
        let result = results.take(management).await?;
        saw_learner |= learner(&result, &cluster.machines().await?).is_some_and(|name| !old.contains(&name));
        // While the learner is held, nothing changes. On a busy machine, results are compared only then.
        if is_held && saw_learner && results.compared > 0 {
            workload.inflict(Fault::Promote, any).await?;
            is_held = false;
        }
        let ended = wait::until_within("the rollout has ended", INTERVAL, || cluster.is_settled(3));
        if ended.await.is_ok() {
            break;
        }
        ensure!(
            Instant::now() < end,
            "the rollout has not ended: {:#?}",
            result.findings()
        );
    }
    ensure!(
        !is_held,
        "no result saw the learner, or none was compared: {results:#?}"
    );
    ensure!(results.alarms.is_empty(), "false alarms: {results:#?}");
    // At least one result for each of the six steps.
    ensure!(results.in_progress >= 6, "{results:#?}");
    Ok(())
}

/// Runs the commands repeatedly until the control plane has this number of Machines. A scale up stops at its first learner
/// until results were compared, because on a busy machine something may change during each of them.
pub(super) async fn scaling_is_no_fault(
    management: &ManagementCluster,
    cluster: &Cluster,
    workload: &WorkloadCluster,
    replicas: usize,
) -> Result<()> {
    let old = cluster.machines().await?;
    let any = old.first().context("there is no Machine")?;
    let mut is_held = replicas > old.len();
    if is_held {
        workload.inflict(Fault::HoldPromotions, any).await?;
    }
    cluster.patch(&json!({"spec": {"replicas": replicas}})).await?;
    let end = Instant::now() + wait::LIMIT;
    let mut results = Results::default();
    loop {
        let result = results.take(management).await?;
        if is_held && results.compared > 0 {
            workload.inflict(Fault::Promote, any).await?;
            is_held = false;
        }
        let ended = wait::until_within("the scaling has ended", INTERVAL, || cluster.is_settled(replicas));
        if ended.await.is_ok() {
            break;
        }
        ensure!(
            Instant::now() < end,
            "the scaling has not ended: {:#?}",
            result.findings()
        );
    }
    ensure!(!is_held, "no results were compared: {results:#?}");
    ensure!(results.alarms.is_empty(), "false alarms: {results:#?}");
    Ok(())
}

/// The Machine whose member is reported as a learner.
fn learner(result: &StatusResult, machines: &[String]) -> Option<String> {
    let findings = result.findings();
    let mut learners = findings.iter().filter_map(|finding| {
        let objects = finding.strip_prefix("info etcd-learners-stuck EtcdMember/")?;
        objects.split(',').next()
    });
    let name = learners.find(|name| machines.iter().any(|machine| machine == name))?;
    Some(name.to_owned())
}

#[derive(Debug, Default)]
struct Results {
    all: u32,
    /// Results during the rollout.
    in_progress: u32,
    /// Results that were compared with the list and the plan, because nothing changed before the next result.
    compared: u32,
    alarms: Vec<String>,
}

impl Results {
    /// Runs all three commands, and `status` again.
    async fn take(&mut self, management: &ManagementCluster) -> Result<StatusResult> {
        let before = StatusResult::take(management, &["--timeout", "30s"]).await?;
        self.judge(&before);
        let others = Others::take(management, &[]).await?;
        self.alarms.extend(
            others
                .alarms()
                .into_iter()
                .filter(|alarm| !alarm.contains(OUTDATED) && !alarm.contains(UNRECORDED)),
        );
        let after = StatusResult::take(management, &["--timeout", "30s"]).await?;
        self.judge(&after);
        if before.findings() == after.findings() && before.at("/votes") == after.at("/votes") {
            self.compared += 1;
            if let Err(error) = others.agree_with(&after) {
                self.alarms.push(format!("{error:#}"));
            }
        }
        Ok(after)
    }

    fn judge(&mut self, result: &StatusResult) {
        self.all += 1;
        let findings = result.findings();
        // In later results the controller has observed the change.
        let is_unseen = self.in_progress == 0 && findings.iter().any(|finding| finding == UNSEEN);
        let is_unrecorded = findings.iter().any(|finding| finding.contains(UNRECORDED));
        let verdict = if is_unseen || is_unrecorded {
            (2, "Unknown")
        } else {
            (0, "Healthy")
        };
        let is_expected = |finding: &String| {
            let mut words = finding.split(' ');
            let (severity, id) = (words.next(), words.next().unwrap_or_default());
            severity == Some("info") && INFO_DURING_ROLLOUT.contains(&id)
                || severity == Some("unknown") && id == UNRECORDED
                || is_unseen && finding == UNSEEN
        };
        if (result.exit_code, result.verdict()) != verdict || !findings.iter().all(is_expected) {
            let told = result.at("/findings");
            self.alarms
                .push(format!("result {}: {} {told:#}", self.all, result.exit_code));
        }
        let rolls_out = "info machines-outdated KubeadmControlPlane/edge";
        self.in_progress += u32::from(findings.iter().any(|finding| finding == rolls_out));
    }
}
