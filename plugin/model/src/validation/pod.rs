//! The Pod that validates a Node.

use std::time::Duration;

use serde_json::{Value, json};

/// The label of all Pods of a run. The value is the id of the run.
pub const RUN_LABEL: &str = "kubectl-kcp.dev/validation";

/// The only container of a Pod.
pub const CONTAINER: &str = "probe";

/// How many seconds longer than the command waits the Pods may run. If the command is killed, the Pods still end.
const GRACE_SECONDS: u64 = 60;

/// The Pods of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePods {
    /// The id of the run: lowercase letters and digits.
    pub run: String,
    /// An image whose entrypoint is kcp-webhook.
    pub image: String,
    /// The names that the Pods resolve.
    pub names: Vec<String>,
    /// How long the command waits for the Pods.
    pub timeout: Duration,
}

impl ProbePods {
    /// The name of the Pod of the Node with this number.
    pub fn name(&self, number: usize) -> String {
        format!("kcp-validation-{}-{number}", self.run)
    }

    /// The text that the Pod on this Node must print.
    pub fn nonce(&self, number: usize) -> String {
        format!("{}-{number}", self.run)
    }

    /// The Pod for a Node. The scheduler places it, as it places other Pods, but on this Node only. It tolerates all taints, and
    /// meets the Pod Security Standard `restricted`.
    pub fn pod(&self, node: &str, number: usize) -> Value {
        let is_node = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [is_node]}]}}});
        let nonce = format!("--nonce={}", self.nonce(number));
        let names = self.names.iter().map(|name| format!("--name={name}"));
        let arguments: Vec<String> = ["probe".to_owned(), nonce].into_iter().chain(names).collect();
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name(number),
                "labels": {RUN_LABEL: self.run, "app.kubernetes.io/managed-by": "kubectl-kcp"},
            },
            "spec": {
                "affinity": affinity,
                "tolerations": [{"operator": "Exists"}],
                "restartPolicy": "Never",
                "activeDeadlineSeconds": self.timeout.as_secs() + GRACE_SECONDS,
                // The API server then deletes the Pod at once, also on a Node that has died.
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": true,
                "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [{
                    "name": CONTAINER,
                    "image": self.image,
                    "args": arguments,
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": false,
                        "readOnlyRootFilesystem": true,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }],
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::ProbePods;

    #[test]
    fn a_pod_is_bound_to_its_node_and_ends() {
        let pods = ProbePods {
            run: "a1b2".to_owned(),
            image: "registry.example.com/kcp-webhook:0.1.0".to_owned(),
            names: vec!["kubernetes.default.svc".to_owned(), "example.com".to_owned()],
            timeout: Duration::from_secs(120),
        };
        let pod = pods.pod("n1", 3);
        let get = |pointer: &str| pod.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(get("/metadata/name"), json!("kcp-validation-a1b2-3"));
        assert_eq!(get("/metadata/labels/kubectl-kcp.dev~1validation"), json!("a1b2"));
        let terms =
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        assert_eq!(
            get(terms),
            json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}])
        );
        assert_eq!(get("/spec/activeDeadlineSeconds"), json!(180));
        assert_eq!(
            get("/spec/containers/0/args"),
            json!([
                "probe",
                "--nonce=a1b2-3",
                "--name=kubernetes.default.svc",
                "--name=example.com"
            ])
        );
        // Every field is one of Kubernetes.
        let decoded: Pod = serde_json::from_value(pod.clone()).expect("a Pod");
        assert_eq!(serde_json::to_value(decoded).expect("JSON"), pod);
    }
}
