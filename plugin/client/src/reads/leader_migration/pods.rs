//! Reads the Pods of controller managers.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kcp_control_plane::snapshot::Failure;
use kcp_rules::leader_migration::{Component, workload::Workload};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::reads::workload::{
    KUBE_SYSTEM, WorkloadCluster,
    objects::{container_problem, reason_and_message},
};

/// The maximum number of controller managers. If there are more Pods, some are probably not controller
/// managers, and each Pod needs port-forwards.
const MAX_PODS: usize = 32;

/// The label with which kubeadm marks static Pods, such as `component: kube-controller-manager`.
const COMPONENT_LABEL: &str = "component";

/// A Pod of a controller manager. The Pod has neither succeeded nor failed.
#[derive(Debug)]
pub(super) struct ManagerPod {
    pub(super) component: Component,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) node: String,
    /// The whole Pod as JSON, for [`Workload::of`].
    pub(super) manifest: Value,
    /// Why the container of the controller manager does not run. `None` if it runs.
    pub(super) down_reason: Option<String>,
}

/// Reads the Pods of kube-controller-manager in `kube-system`, and those of cloud-controller-manager in `cloud_namespace`.
pub(super) async fn read(
    cluster: &WorkloadCluster,
    cloud_namespace: &str,
) -> Result<Vec<ManagerPod>, Failure> {
    let list = async |namespace: &str| {
        let pods = cluster
            .objects
            .list(Some(namespace), &ListParams::default(), manager_pod)
            .await;
        pods.map_err(|error| cluster.failures.describe("Pod", &error))
    };
    let mut pods = Box::pin(list(KUBE_SYSTEM)).await?;
    if cloud_namespace != KUBE_SYSTEM {
        pods.extend(Box::pin(list(cloud_namespace)).await?);
    }
    pods.retain(|pod| {
        let expected = match pod.component {
            Component::Kube => KUBE_SYSTEM,
            Component::Cloud => cloud_namespace,
        };
        pod.namespace == expected
    });
    pods.sort_by(|a, b| (a.component, &a.name).cmp(&(b.component, &b.name)));
    if pods.len() > MAX_PODS {
        return Err(Failure {
            object: "Pod".to_owned(),
            message: format!("more than {MAX_PODS} Pods look like controller managers"),
            hint: None,
            ..Failure::default()
        });
    }
    Ok(pods)
}

/// Returns the parts of a controller manager's Pod that this module needs. `None` for a Pod of another
/// component, and for a Pod that has ended, such as an evicted one.
fn manager_pod(pod: Pod) -> Option<ManagerPod> {
    let status = pod.status.clone().unwrap_or_default();
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let labels = pod.metadata.labels.as_ref();
    let label = labels
        .and_then(|labels| labels.get(COMPONENT_LABEL))
        .map(String::as_str);
    let mut manifest = serde_json::to_value(&pod).ok()?;
    manifest.as_object_mut()?.insert("kind".to_owned(), json!("Pod"));
    let component = if label == Some(Component::Kube.name()) {
        Component::Kube
    } else {
        Component::Cloud
    };
    let container = Workload::find_component(component, &manifest)?
        .container()
        .to_owned();
    Some(ManagerPod {
        component,
        namespace: pod.metadata.namespace.unwrap_or_default(),
        name: pod.metadata.name?,
        node: pod.spec.and_then(|spec| spec.node_name).unwrap_or_default(),
        down_reason: container_failure(status, &container),
        manifest,
    })
}

fn container_failure(status: PodStatus, container: &str) -> Option<String> {
    let containers = status.container_statuses.iter().flatten();
    match containers.into_iter().find(|status| status.name == container) {
        Some(status) => container_problem(status),
        None if status.phase.as_deref() == Some("Running") => None,
        None => Some(
            reason_and_message(status.reason, status.message)
                .unwrap_or_else(|| "the container has not started".to_owned()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(labels: &Value, image: &str, status: &Value) -> Option<(Component, Option<String>)> {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "kube-system", "labels": labels},
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": image}]},
            "status": status,
        });
        let pod = manager_pod(serde_json::from_value(pod).unwrap())?;
        assert_eq!((pod.name.as_str(), pod.node.as_str()), ("p", "n1"));
        Some((pod.component, pod.down_reason))
    }

    #[test]
    fn controller_managers_are_known_by_label_or_image() {
        let kube = json!({"component": "kube-controller-manager"});
        let running = json!({"phase": "Running"});
        let crashed = json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false, "restartCount": 4,
            "image": "", "imageID": "", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
        let kcm = "registry.k8s.io/kube-controller-manager:v1.36.3";
        let ccm = "provider/cloud-controller-manager:v1.36.0";
        for (labels, image, status, expected) in [
            (&kube, kcm, &running, Some((Component::Kube, None))),
            (
                &kube,
                kcm,
                &crashed,
                Some((Component::Kube, Some("CrashLoopBackOff".to_owned()))),
            ),
            (&json!({}), ccm, &running, Some((Component::Cloud, None))),
            (
                &json!({}),
                ccm,
                &json!({"phase": "Pending"}),
                Some((Component::Cloud, Some("the container has not started".to_owned()))),
            ),
            (
                &json!({}),
                ccm,
                &json!({"phase": "Failed", "reason": "Evicted"}),
                None,
            ),
            (&json!({"component": "etcd"}), "etcd:3", &running, None),
            (&json!({}), kcm, &running, None),
        ] {
            assert_eq!(
                found(labels, image, status),
                expected,
                "{labels} {image} {status}"
            );
        }
    }
}
