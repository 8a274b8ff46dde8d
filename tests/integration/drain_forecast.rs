//! The forecast of a drain, compared with what Cluster API's Machine controller reports while it drains the node. The
//! evictions are those of a real API server.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kcp_tests::{protected_pod, resources, wait};
use kube::{Api, Client, api::PostParams, core::DynamicObject};
use serde_json::{Value, from_value, json};

use crate::{rollouts::Subject, shared::with_controllers};

const NAMESPACE: &str = "drain-forecast";

/// The namespace of the pod in the workload cluster.
const SHOP: &str = "shop";

#[test]
fn a_drain_waits_for_what_the_forecast_names() {
    with_controllers(NAMESPACE, async |management| {
        let subject = Subject::create(management, NAMESPACE).await?;
        let machines = subject.cluster.machines().await?;
        let machine = machines.first().context("no Machine")?;
        let output = subject
            .says("rollout start edge --dry-run=client", 0, "rollout started")
            .await?;
        ensure!(!output.stdout.contains("drain"), "{output}");

        let workload = management.machines().cluster(NAMESPACE, "edge").await?;
        let node = node_of(management.client(), machine).await?;
        run_protected_pod(workload.client()?, &node).await?;
        is_forecast(&subject, machine).await?;

        subject
            .says("rollout start edge --yes", 0, "rollout started")
            .await?;
        is_refused(management.client(), machine).await?;
        skip_pods(management.client()).await?;
        subject.cluster.settled(1).await?;
        ensure!(
            !subject.cluster.machines().await?.contains(machine),
            "{machine} still exists"
        );
        subject.cluster.delete().await
    });
}

async fn is_forecast(subject: &Subject<'_>, machine: &str) -> Result<()> {
    let expected = [
        format!(
            "the drain of Machine {machine} waits, because PodDisruptionBudget shop/web allows no disruption \
             of pod shop/web-0; without a nodeDrainTimeout, Cluster API waits indefinitely"
        ),
        format!("the drain of Machine {machine} deletes pod shop/web-0, and no controller recreates it"),
        format!("the drain of Machine {machine} deletes the data in the emptyDir volumes of pod shop/web-0"),
    ];
    for command in [
        "rollout start edge --dry-run=client",
        "upgrade edge --to v1.34.2 --dry-run=client",
        "plan edge --restart",
    ] {
        let ended = subject.kcp(command).await?;
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let printed = words(&format!("{}\n{}", ended.stdout, ended.stderr));
        for line in &expected {
            ensure!(
                printed.contains(line),
                "{command} does not print {line:?}: {ended}"
            );
        }
    }
    Ok(())
}

async fn node_of(client: &Client, machine: &str) -> Result<String> {
    let machine = resources::machines(client, NAMESPACE).get(machine).await?;
    let node = machine
        .data
        .pointer("/status/nodeRef/name")
        .and_then(Value::as_str);
    node.map(str::to_owned).context("the Machine has no node")
}

/// Runs a pod without a controller and with local storage, whose budget allows no disruption.
async fn run_protected_pod(client: &Client, node: &str) -> Result<()> {
    let namespace: Namespace = from_value(json!({"metadata": {"name": SHOP}}))?;
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
    let pod = from_value(json!({
        "metadata": {"name": "web-0", "labels": {"app": "web"}},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "web", "image": "web"}],
            "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "cache", "emptyDir": {}}],
        },
    }))?;
    protected_pod::run(client, SHOP, &pod).await
}

/// Waits until Cluster API reports that the API server refused to evict the pod.
async fn is_refused(client: &Client, machine: &str) -> Result<()> {
    let machines = resources::machines(client, NAMESPACE);
    wait::until("Cluster API cannot drain the node", || async {
        let machine = machines.get(machine).await?;
        let conditions = machine
            .data
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        let deleting = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.get("type") == Some(&json!("Deleting")));
        let message = deleting.and_then(|condition| condition.get("message")?.as_str());
        let message = message.unwrap_or_default();
        ensure!(
            message.contains("shop/web-0: cannot evict pod as it would violate the pod's disruption budget."),
            "{message:?}"
        );
        Ok(())
    })
    .await
}

/// Lets Cluster API leave the pod on its node.
async fn skip_pods(client: &Client) -> Result<()> {
    let rule: DynamicObject = from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDrainRule",
        "metadata": {"name": "skip-web"},
        "spec": {"drain": {"behavior": "Skip"}, "pods": [{"selector": {"matchLabels": {"app": "web"}}}]},
    }))?;
    resources::machine_drain_rules(client, NAMESPACE)
        .create(&PostParams::default(), &rule)
        .await?;
    Ok(())
}
