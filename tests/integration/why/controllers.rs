//! Causes that stop Cluster API's controllers: a stopped manager, a missing template, a webhook that refuses Machines, and a
//! budget that refuses evictions.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kcp_tests::cluster::Cluster;
use kcp_tests::refusing_webhook::RefusingWebhook;
use kcp_tests::{protected_pod, resources};
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

use super::{HEALTHY, NAME, NAMESPACE, NOBODY, PERSON, Questions};

const CONTROLLER: &str = "Cluster API's kubeadm control plane controller";
const TEMPLATES: &str = "standinmachinetemplates.infrastructure.cluster.x-k8s.io";

pub(super) async fn are_explained(asked: &Questions<'_>, cluster: &Cluster) -> Result<()> {
    a_stopped_controller(asked, cluster).await?;
    a_missing_template(asked).await?;
    a_refusing_webhook(asked, cluster).await?;
    a_blocked_drain(asked, cluster).await
}

/// While the manager is stopped, nobody processes a change to the spec.
async fn a_stopped_controller(asked: &Questions<'_>, cluster: &Cluster) -> Result<()> {
    let management = asked.management;
    let stopped = management.without_control_plane_controller(NAMESPACE, async || {
        is_explained_while_stopped(asked, cluster).await
    });
    stopped.await?;
    cluster
        .patch(&json!({"spec": {"rollout": {"before": null}}}))
        .await?;
    asked
        .answers("the controller continues", NOBODY, HEALTHY)
        .await
        .map(drop)
}

async fn is_explained_while_stopped(asked: &Questions<'_>, cluster: &Cluster) -> Result<()> {
    cluster
        .patch(&json!({"spec": {"rollout": {"before": {"certificatesExpiryDays": 30}}}}))
        .await?;
    let object = cluster.get().await?;
    let number = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_i64)
            .context("no number")
    };
    let (generation, observed) = (
        number("/metadata/generation")?,
        number("/status/observedGeneration")?,
    );
    let unprocessed = format!(
        "KubeadmControlPlane/{NAME}: it has not processed generation {generation} of the spec; the last processed \
         generation is {observed}; this has lasted for N; the controller has no Lease in namespace capi-kubeadm-control-plane-system (status-outdated)"
    );
    let line = format!("{CONTROLLER} acts next: {unprocessed}");
    asked
        .answers("controller stopped (SIGSTOP)", NOBODY, &line)
        .await?;
    cluster.backdate_writes(10).await?;
    let line = format!(
        "{CONTROLLER} makes no progress, so a person must act: KubeadmControlPlane/{NAME}: for N: it has not processed \
         generation {generation} of the spec; the last processed generation is {observed}; the controller has no Lease in namespace \
         capi-kubeadm-control-plane-system (controller-stopped)"
    );
    asked.answers("… ten minutes ago", PERSON, &line).await?;
    Ok(())
}

async fn a_missing_template(asked: &Questions<'_>) -> Result<()> {
    let kubectl = asked.management.kubectl();
    let get = ["get", TEMPLATES, NAME, "-n", NAMESPACE, "-o", "json"];
    let mut template: Value = serde_json::from_str(&kubectl.succeed(get).await?.stdout)?;
    *template.get_mut("metadata").context("no metadata")? = json!({"name": NAME, "namespace": NAMESPACE});
    kubectl
        .succeed(["delete", TEMPLATES, NAME, "-n", NAMESPACE])
        .await?;
    let line = format!(
        "A person must act: KubeadmControlPlane/{NAME}: infrastructure template StandInMachineTemplate {NAME} does not exist: the \
         controller neither creates nor deletes Machines without it (infrastructure-template-missing)"
    );
    asked.answers("missing template", PERSON, &line).await?;
    let file = kubectl.scratch_file("why-template.json");
    std::fs::write(&file, template.to_string())?;
    kubectl
        .succeed(["apply", "-f", &file.display().to_string()])
        .await?;
    asked
        .answers("the template is back", NOBODY, HEALTHY)
        .await
        .map(drop)
}

async fn a_refusing_webhook(asked: &Questions<'_>, cluster: &Cluster) -> Result<()> {
    let reason = "no new Machine before Monday";
    let webhook = RefusingWebhook::of_machines(asked.management.api(), NAMESPACE, reason).await?;
    // A rollout needs a new Machine first.
    let now = jiff::Timestamp::now().to_string();
    cluster
        .patch(&json!({"spec": {"rollout": {"after": now}}}))
        .await?;
    let line = format!(
        "Admission denies the controller's writes, so a person must act: KubeadmControlPlane/{NAME}: \
         webhook {NAMESPACE}.refusing.test does not let the controller create a Machine: {reason} \
         (write-refused)"
    );
    asked.answers("refusing webhook", PERSON, &line).await?;
    let document = asked.document().await?;
    ensure!(
        document.get("actor") == Some(&json!("admission"))
            && document.pointer("/cause/since").is_some_and(Value::is_string)
            && document.pointer("/cause/hint").is_some_and(Value::is_string),
        "{document:#}"
    );
    cluster
        .patch(&json!({"spec": {"rollout": {"after": null}}}))
        .await?;
    // Without the webhook, the controller could create one Machine before it notices.
    asked.answers("the rollout is withdrawn", NOBODY, HEALTHY).await?;
    webhook.remove().await
}

/// A budget that allows no disruption keeps a pod on the node of a deleted Machine.
async fn a_blocked_drain(asked: &Questions<'_>, cluster: &Cluster) -> Result<()> {
    let machines = resources::machines(asked.management.client(), NAMESPACE);
    let all = machines.list(&ListParams::default()).await?.items;
    let oldest = all
        .into_iter()
        .min_by_key(|machine| machine.metadata.creation_timestamp.clone());
    let machine = &oldest
        .and_then(|machine| machine.metadata.name)
        .context("no Machine")?;
    let workload = asked.management.machines().cluster(NAMESPACE, NAME).await?;
    let client = workload.client()?.clone();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"nodeName": machine, "containers": [{"name": "web", "image": "web"}],
            "tolerations": [{"operator": "Exists"}]},
    }))?;
    protected_pod::run(&client, "default", &pod).await?;
    machines.delete(machine, &DeleteParams::default()).await?;
    let line = format!(
        "Cluster API's Machine controller acts next: Machine/{machine}: the drain of its node is blocked: Pod default/web: cannot evict pod as it would \
         violate the pod's disruption budget. The disruption budget web needs 1 healthy pods and has 1 currently \
         (machine-drains-blocked)"
    );
    asked.answers("blocked drain", NOBODY, &line).await?;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, "default");
    budgets
        .delete(protected_pod::BUDGET, &DeleteParams::default())
        .await?;
    cluster.settled(3).await?;
    asked.answers("the drain ended", NOBODY, HEALTHY).await.map(drop)
}
