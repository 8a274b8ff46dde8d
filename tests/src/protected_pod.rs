//! A pod that no eviction may disrupt.

use anyhow::{Result, ensure};
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{from_value, json};

use crate::wait;

/// The name of the budget.
pub const BUDGET: &str = "web";

/// Runs a pod with the label `app: web`, and creates a budget that allows no disruption of it. The budget's status is written
/// here, because no kube-controller-manager runs.
pub async fn run(client: &Client, namespace: &str, pod: &Pod) -> Result<()> {
    let parameters = PostParams::default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.create(&parameters, pod).await?;
    wait::until("the pod is ready", || async {
        let read = pods.get(&pod.name_any()).await?;
        let conditions = read.status.and_then(|status| status.conditions);
        let conditions = conditions.unwrap_or_default();
        let is_ready = conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        ensure!(is_ready, "{conditions:?}");
        Ok(())
    })
    .await?;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
    let budget = from_value(json!({
        "metadata": {"name": BUDGET},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }))?;
    let budget = budgets.create(&parameters, &budget).await?;
    let status = json!({"status": {"observedGeneration": budget.metadata.generation, "disruptionsAllowed": 0,
        "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    budgets
        .patch_status(BUDGET, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}
