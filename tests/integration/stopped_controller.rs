//! What the plugin says while Cluster API's kubeadm control plane controller is stopped.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::Value;

use crate::shared::with_controllers;

const NAMESPACE: &str = "stopped-controller";
const NAME: &str = "edge";

/// How long ago the change was written, as the test makes it look.
const MINUTES: i64 = 10;

#[test]
fn a_stopped_controller_is_reported_with_its_duration() {
    with_controllers(NAMESPACE, async |management| {
        let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, "v1.34.2").await?;
        cluster.settled(1).await?;
        let stopped = management.without_control_plane_controller(NAMESPACE, async || {
            a_wait_ends_with_the_cause(management).await?;
            cluster.backdate_writes(MINUTES).await?;
            the_cause_is_reported_once(management).await
        });
        stopped.await?;
        // The controller continues.
        cluster.settled(3).await?;
        cluster.delete().await
    });
}

async fn kcp(management: &ManagementCluster, arguments: &[&str]) -> Result<CommandOutput> {
    let place = ["-n", NAMESPACE];
    let arguments = ["kcp"].iter().chain(arguments).chain(&place);
    management.kubectl().run(arguments).await
}

async fn a_wait_ends_with_the_cause(management: &ManagementCluster) -> Result<()> {
    let scaled = kcp(management, &["scale", NAME, "--replicas", "3", "--wait=5s"]).await?;
    let cause = "timed out after 5s, still waiting for:\n  Cluster API's kubeadm control plane controller has not \
                 processed the change";
    ensure!(scaled.code == 1 && scaled.stdout.contains(cause), "{scaled}");
    Ok(())
}

/// `status` and `rollout status` name the controller and since when; `status` does so in one finding.
async fn the_cause_is_reported_once(management: &ManagementCluster) -> Result<()> {
    let since = format!("for {MINUTES}m");
    let cause = ": Cluster API's kubeadm control plane controller has not processed generation ";
    let is_named = |text: &str| text.contains(&since) && text.contains(cause);
    let status = kcp(management, &["status", NAME, "-o", "json"]).await?;
    let document: Value = serde_json::from_str(&status.stdout).with_context(|| status.to_string())?;
    let findings = document.get("findings").and_then(Value::as_array);
    let findings = findings.with_context(|| status.to_string())?;
    let is_about_it = |finding: &&Value| {
        let message = finding.get("message").and_then(Value::as_str);
        message.is_some_and(|message| message.contains("has not processed generation "))
    };
    let found: Vec<&Value> = findings.iter().filter(is_about_it).collect();
    let text = |finding: &Value, field: &str| {
        let value = finding.get(field).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    ensure!(
        matches!(found.as_slice(), [only] if text(only, "id") == "controller-stopped"
            && text(only, "severity") == "fail"
            && text(only, "message").starts_with(&since)
            && is_named(&text(only, "message"))),
        "{found:?}"
    );
    ensure!(text(&document, "verdict") == "Blocked", "{status}");
    let rollout = kcp(management, &["rollout", "status", NAME]).await?;
    ensure!(
        rollout.code == 1 && rollout.stdout.contains(" rollout stuck: ") && is_named(&rollout.stdout),
        "{rollout}"
    );
    Ok(())
}
