//! What the plugin says while Cluster API's kubeadm control plane controller is stopped.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};

use crate::remedies;
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
            let expiry = json!({"spec": {"rollout": {"before": {"certificatesExpiryDays": 30}}}});
            cluster.patch(&expiry).await?;
            a_wait_ends_with_the_cause(management).await?;
            cluster.backdate_writes(MINUTES).await?;
            the_cause_is_reported_once(management).await
        });
        stopped.await?;
        // The controller continues.
        cluster.settled(1).await?;
        a_scale_is_as_old_as_its_own_write(management, &cluster).await?;
        cluster.delete().await
    });
}

/// An annotation, which is all that a client wrote long ago, says nothing about the age of a scale: the API server writes no time
/// into the entry of the subresource `scale`.
async fn a_scale_is_as_old_as_its_own_write(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let annotate = ["annotate", "kubeadmcontrolplane", NAME, "note=1", "-n", NAMESPACE];
    management.kubectl().succeed(annotate).await?;
    cluster.backdate_writes(MINUTES).await?;
    let words = [
        "kcp",
        "scale",
        NAME,
        "--replicas",
        "3",
        "--wait=5m",
        "-n",
        NAMESPACE,
    ];
    let stopped = management.without_control_plane_controller(NAMESPACE, async || {
        let mut scale = management.kubectl().spawn(words)?;
        // The first lines say that the scale is written, and what the wait sees.
        while !scale.line().await?.contains("1/3 Machines") {}
        let rollout = kcp(management, &["rollout", "status", NAME, "--watch=false"]).await?;
        ensure!(
            rollout.stdout.contains("has not processed the change yet") && !rollout.stdout.contains("stuck"),
            "{rollout}"
        );
        anyhow::Ok(scale)
    });
    let code = stopped.await?.exit_code().await?;
    ensure!(code == 0, "the scale ends with {code}");
    cluster.settled(3).await
}

async fn kcp(management: &ManagementCluster, arguments: &[&str]) -> Result<CommandOutput> {
    let place = ["-n", NAMESPACE];
    let arguments = ["kcp"].iter().chain(arguments).chain(&place);
    management.kubectl().run(arguments).await
}

async fn a_wait_ends_with_the_cause(management: &ManagementCluster) -> Result<()> {
    let waited = kcp(management, &["rollout", "status", NAME, "--timeout", "5s"]).await?;
    let cause = "timed out after 5s, still waiting for:\n  Cluster API's kubeadm control plane controller has not \
                 processed the change";
    ensure!(waited.code == 1 && waited.stdout.contains(cause), "{waited}");
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
    remedies::are_accepted(management, NAMESPACE, NAME).await?;
    let rollout = kcp(management, &["rollout", "status", NAME]).await?;
    ensure!(
        rollout.code == 1 && rollout.stdout.contains(" rollout stuck: ") && is_named(&rollout.stdout),
        "{rollout}"
    );
    Ok(())
}
