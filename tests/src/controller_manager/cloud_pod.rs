//! The Pod of a cloud-controller-manager, as its provider's `DaemonSet` would create it.

use serde_json::{Value, json};

/// The name of the Pod.
pub const CLOUD_POD: &str = "cloud-controller-manager-edge";

/// Where the Pod mounts the leader migration configuration.
const MOUNT: &str = "/etc/migration";

/// What differs between cloud-controller-managers.
pub struct CloudPod<'c> {
    /// The value of `--controllers`.
    pub controllers: &'c str,
    /// The leader migration configuration, if it migrates.
    pub configuration: Option<&'c str>,
}

impl CloudPod<'_> {
    /// The `ConfigMap` with the configuration.
    pub fn config_map(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "migration"},
            "data": {"leader.yaml": self.configuration.unwrap_or_default()}})
    }

    /// The flags that the Pod shows.
    pub fn flags(&self) -> Vec<String> {
        let mut flags = vec![
            "--allocate-node-cidrs=true".to_owned(),
            format!("--controllers={}", self.controllers),
        ];
        if self.configuration.is_some() {
            flags.push("--enable-leader-migration=true".to_owned());
            flags.push(format!("--leader-migration-config={MOUNT}/leader.yaml"));
        }
        flags
    }

    /// The spec of a Pod that mounts the `ConfigMap`.
    pub fn spec(&self) -> Value {
        json!({
            "hostNetwork": true,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "cloud-controller-manager",
                "image": "example.test/cloud-controller-manager:v1.36.3",
                "args": self.flags(),
                "volumeMounts": [{"name": "migration", "mountPath": MOUNT}],
            }],
            "volumes": [{"name": "migration", "configMap": {"name": "migration"}}],
        })
    }

    /// The Pod on a Node.
    pub fn pod(&self, node: &str) -> Value {
        let mut spec = self.spec();
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("nodeName".to_owned(), json!(node));
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": CLOUD_POD}, "spec": spec})
    }
}
