//! Reports of a kubelet. kwok does not change a pod that it once made ready.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::wait;

/// Reports whether a machine's etcd pod is ready. A workload API server that lost its etcd leader accepts the report
/// only after an election.
pub(super) async fn report_etcd(client: &Client, machine: &str, ready: bool) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    let pod = format!("etcd-{machine}");
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (status, reason) = if ready {
        ("True", "")
    } else {
        ("False", "ContainersNotReady")
    };
    let status = json!({"status": {"conditions": [{
        "type": "Ready", "status": status, "reason": reason, "lastTransitionTime": now,
    }]}});
    wait::until("the workload cluster accepts the pod's status", || async {
        let patched = pods
            .patch_status(&pod, &PatchParams::default(), &Patch::Strategic(&status))
            .await;
        patched.context("patching the pod's status").map(drop)
    })
    .await
}
