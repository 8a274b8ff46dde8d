//! `kubectl kcp reconcile` under Cluster API's real controllers: it ends a wait, and without it, the controller waits. The
//! user has the shipped roles only.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kcp_tests::{
    cluster::Cluster, management_cluster::ManagementCluster, refusing_webhook::RefusingWebhook, resources,
    wait,
};
use kube::{Api, api::DeleteParams};
use serde_json::Value;

use crate::{rollouts::Subject, shared::with_controllers};

const NAMESPACE: &str = "reconcile";

/// Another control plane of the same controllers.
const OTHER: &str = "other";
const OTHERS_KUBECONFIG: &str = "other-kubeconfig";
const KUBECONFIG: &str = "edge-kubeconfig";

/// How long the controller's tries must have failed. Its next wait takes as long again, longer than this test needs.
const BACKOFF: Duration = Duration::from_secs(24);

/// How long the controller may take after the command.
const PROMPT: Duration = Duration::from_secs(10);

const ANNOTATION: &str = "/metadata/annotations/kubectl-kcp.dev~1reconcile-requested-at";

#[test]
fn a_write_ends_the_wait_of_a_controller() {
    with_controllers(NAMESPACE, async |management| {
        let subject = Subject::create(management, NAMESPACE).await?;
        let other = Cluster::create(management.client(), NAMESPACE, OTHER, 1, "v1.34.2").await?;
        other.settled(1).await?;
        only_an_annotation_changes(management, &subject).await?;
        a_deleted_kubeconfig_is_created(management, &subject).await?;
        a_refused_write_is_tried_again(management, &subject).await?;
        nothing_that_is_paused_is_written(&subject).await?;
        other.delete().await?;
        subject.cluster.delete().await
    });
}

async fn only_an_annotation_changes(management: &ManagementCluster, subject: &Subject<'_>) -> Result<()> {
    let before = subject.cluster.get().await?;
    let dry = "reconcile cluster/edge --dry-run=server";
    subject
        .says(
            dry,
            0,
            "edge written: its controller reconciles it now (server dry run)",
        )
        .await?;
    ensure!(subject.cluster.get().await? == before, "a dry run has written");
    subject
        .says("reconcile edge", 0, "kubeadmcontrolplane/edge written: ")
        .await?;
    let after = subject.cluster.get().await?;
    ensure!(
        after.pointer("/spec") == before.pointer("/spec"),
        "the spec has changed"
    );
    ensure!(
        after.pointer("/metadata/generation") == before.pointer("/metadata/generation"),
        "{after:#}"
    );
    ensure!(
        after.pointer(ANNOTATION).is_some_and(Value::is_string),
        "{after:#}"
    );
    let machines = subject.cluster.machines().await?;
    let machine = machines.first().context("no Machine")?;
    subject
        .says(
            &format!("reconcile machine/{machine}"),
            0,
            &format!("machine/{machine} written: "),
        )
        .await?;
    let stored = resources::machines(management.client(), NAMESPACE)
        .get(machine)
        .await?;
    let stored = serde_json::to_value(stored)?;
    ensure!(
        stored.pointer(ANNOTATION).is_some_and(Value::is_string),
        "{stored:#}"
    );
    let notes = subject.events("ReconcileRequested").await?;
    ensure!(notes.len() == 2, "{notes:?}");
    Ok(())
}

/// No controller watches the Secret, so its deletion alone has no effect.
async fn a_deleted_kubeconfig_is_created(
    management: &ManagementCluster,
    subject: &Subject<'_>,
) -> Result<()> {
    let secrets = secrets(management);
    // A controller that still reconciles for another reason creates the Secret.
    wait::until("a deleted kubeconfig stays away", || async {
        if secrets.get_opt(KUBECONFIG).await?.is_some() {
            secrets.delete(KUBECONFIG, &DeleteParams::default()).await?;
        }
        the_other_is_reconciled(management, subject).await?;
        let status = subject.kcp("status edge").await?;
        ensure!(
            status.words().contains(
                "let the controller create the kubeconfig again: kubectl kcp reconcile edge -n reconcile"
            ),
            "{status}"
        );
        Ok(())
    })
    .await?;
    subject.says("reconcile edge", 0, " written: ").await?;
    wait::until_within("the kubeconfig exists", PROMPT, || async {
        let created = secrets.get_opt(KUBECONFIG).await?;
        created.context("it does not exist").map(drop)
    })
    .await
}

async fn a_refused_write_is_tried_again(management: &ManagementCluster, subject: &Subject<'_>) -> Result<()> {
    let webhook = RefusingWebhook::of_machines(management.api(), NAMESPACE, "change freeze").await?;
    subject
        .says("rollout start edge --yes", 0, "rollout started")
        .await?;
    // The waits of the controller add up to the time since the first failure. The next one takes as long once more.
    let why = wait::until("the controller waits for long", || async {
        let why = subject.kcp("why edge").await?;
        ensure!(
            why.words().contains("kubectl kcp reconcile edge -n reconcile"),
            "{why}"
        );
        let age = age_of_failures(management).await?;
        ensure!(age >= BACKOFF, "only for {age:?}");
        Ok(why)
    })
    .await?;
    ensure!(why.code == 1, "{why}");
    webhook.remove().await?;
    let before = subject.cluster.machines().await?;
    let is_unchanged = async || anyhow::Ok(subject.cluster.machines().await? == before);
    the_other_is_reconciled(management, subject).await?;
    ensure!(is_unchanged().await?, "the controller does not wait");
    subject.says("reconcile edge", 0, " written: ").await?;
    wait::until_within("a Machine is created", PROMPT, || async {
        ensure!(!is_unchanged().await?, "still {before:?}");
        Ok(())
    })
    .await?;
    subject.cluster.settled(1).await
}

/// The time between the first and the last Event about a Machine that could not be created.
async fn age_of_failures(management: &ManagementCluster) -> Result<Duration> {
    let list = ["get", "events.v1.", "-n", NAMESPACE, "-o", "json"];
    let events: Value = serde_json::from_str(&management.kubectl().succeed(list).await?.stdout)?;
    let events = events
        .get("items")
        .and_then(Value::as_array)
        .context("no items")?;
    let failed = events.iter().filter(|event| {
        event
            .pointer("/message")
            .and_then(Value::as_str)
            .is_some_and(|text| text.contains("change freeze"))
    });
    let times = failed.flat_map(|event| {
        [
            "/firstTimestamp",
            "/lastTimestamp",
            "/eventTime",
            "/series/lastObservedTime",
        ]
        .into_iter()
        .filter_map(|pointer| event.pointer(pointer)?.as_str()?.parse::<jiff::Timestamp>().ok())
    });
    let times: Vec<jiff::Timestamp> = times.collect();
    let (earliest, latest) = (
        times.iter().min().context("no failure")?,
        times.iter().max().context("no failure")?,
    );
    Duration::try_from(latest.duration_since(*earliest)).context("a duration")
}

async fn nothing_that_is_paused_is_written(subject: &Subject<'_>) -> Result<()> {
    subject.says("rollout pause edge", 0, "paused").await?;
    let refused = subject
        .says(
            "reconcile edge",
            1,
            "the control plane is paused: no controller reconciles it",
        )
        .await?;
    ensure!(
        refused
            .stderr
            .contains("kubectl kcp rollout resume edge -n reconcile"),
        "{refused}"
    );
    subject.says("rollout resume edge", 0, "resumed").await.map(drop)
}

/// Writes the other control plane, and waits until the controller has reconciled it. Then it has also handled all that
/// happened before.
async fn the_other_is_reconciled(management: &ManagementCluster, subject: &Subject<'_>) -> Result<()> {
    let secrets = secrets(management);
    secrets
        .delete(OTHERS_KUBECONFIG, &DeleteParams::default())
        .await?;
    subject
        .says(&format!("reconcile {OTHER}"), 0, " written: ")
        .await?;
    wait::until("the kubeconfig of the other cluster exists", || async {
        let created = secrets.get_opt(OTHERS_KUBECONFIG).await?;
        created.context("it does not exist").map(drop)
    })
    .await
}

fn secrets(management: &ManagementCluster) -> Api<Secret> {
    Api::namespaced(management.client().clone(), NAMESPACE)
}
