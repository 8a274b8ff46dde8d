//! `kubectl kcp reconcile` under Cluster API's real controllers: it ends a wait, and without it, the controller waits. The
//! user has the shipped roles only.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kcp_tests::{management_cluster::ManagementCluster, refusing_webhook::RefusingWebhook, resources, wait};
use kube::{Api, api::DeleteParams};
use serde_json::Value;

use crate::{rollouts::Subject, shared::with_controllers};

const NAMESPACE: &str = "reconcile";

/// How long nothing must happen without the command.
const QUIET: Duration = Duration::from_secs(12);

/// How long the controller may take after the command.
const PROMPT: Duration = Duration::from_secs(10);

const ANNOTATION: &str = "/metadata/annotations/kubectl-kcp.dev~1reconcile-requested-at";

#[test]
fn a_write_ends_the_wait_of_a_controller() {
    with_controllers(NAMESPACE, async |management| {
        let subject = Subject::create(management, NAMESPACE).await?;
        only_an_annotation_changes(management, &subject).await?;
        a_deleted_kubeconfig_is_created(management, &subject).await?;
        a_refused_write_is_tried_again(management, &subject).await?;
        nothing_that_is_paused_is_written(&subject).await?;
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
    let secrets: Api<Secret> = Api::namespaced(management.client().clone(), NAMESPACE);
    let is_absent = async || anyhow::Ok(secrets.get_opt("edge-kubeconfig").await?.is_none());
    // A controller that still reconciles for another reason creates the Secret.
    wait::until("a deleted kubeconfig stays away", || async {
        secrets
            .delete("edge-kubeconfig", &DeleteParams::default())
            .await?;
        stays(&is_absent).await
    })
    .await?;
    let status = subject.kcp("status edge").await?;
    ensure!(
        joined(&status.stdout).contains(
            "let the controller create the kubeconfig again: kubectl kcp reconcile edge -n reconcile"
        ),
        "{status}"
    );
    subject.says("reconcile edge", 0, " written: ").await?;
    wait::until_within("the kubeconfig exists", PROMPT, || async {
        ensure!(!is_absent().await?, "it does not exist");
        Ok(())
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
            joined(&why.stdout).contains("kubectl kcp reconcile edge -n reconcile"),
            "{why}"
        );
        let age = age_of_failures(management).await?;
        ensure!(age >= QUIET * 2, "only for {age:?}");
        Ok(why)
    })
    .await?;
    ensure!(why.code == 1, "{why}");
    webhook.remove().await?;
    let before = subject.cluster.machines().await?;
    let is_unchanged = async || anyhow::Ok(subject.cluster.machines().await? == before);
    stays(&is_unchanged).await?;
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

/// Fails if the condition ends within [`QUIET`].
async fn stays(condition: &impl AsyncFn() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < QUIET {
        ensure!(condition().await?, "only for {:?}", started.elapsed());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
