//! Workers of a cluster.

use anyhow::{Context as _, Result, ensure};
use kube::api::ListParams;
use serde_json::{Value, json};

use super::{Cluster, create};
use crate::resources::{self, BOOTSTRAP_GROUP, CLUSTER_GROUP, INFRASTRUCTURE_GROUP};
use crate::wait;

impl Cluster {
    /// Adds a `MachineDeployment` with one Machine and waits until the Machine has joined.
    pub async fn add_worker(&self, version: &str) -> Result<()> {
        create(
            &resources::kubeadm_config_templates(&self.client, &self.namespace),
            worker_template(&self.name),
        )
        .await?;
        let deployments = resources::machine_deployments(&self.client, &self.namespace);
        create(&deployments, self.machine_deployment(version)).await?;
        wait::until("the worker has joined", || async {
            let deployment = deployments
                .get(&self.name)
                .await
                .context("reading the MachineDeployment")?;
            let ready = deployment
                .data
                .pointer("/status/readyReplicas")
                .unwrap_or(&Value::Null);
            ensure!(*ready == json!(1), "status.readyReplicas is {ready}");
            Ok(())
        })
        .await
    }

    /// Waits until each `MachineDeployment` of the namespace has this version, and all its Machines are ready and up to date.
    pub async fn workers_ready(&self, version: &str) -> Result<()> {
        let deployments = resources::machine_deployments(&self.client, &self.namespace);
        wait::until(&format!("the workers are ready at {version}"), || async {
            let listed = deployments.list(&ListParams::default()).await;
            let listed = listed.context("listing MachineDeployments")?.items;
            ensure!(!listed.is_empty(), "there is no MachineDeployment");
            for deployment in listed {
                let field = |pointer| deployment.data.pointer(pointer);
                ensure!(
                    field("/spec/template/spec/version") == Some(&json!(version)),
                    "{:?}",
                    deployment.data
                );
                for count in ["replicas", "readyReplicas", "upToDateReplicas"] {
                    let status = field("/status");
                    ensure!(
                        status.and_then(|status| status.get(count)) == field("/spec/replicas"),
                        "status.{count}: {status:?}"
                    );
                }
            }
            Ok(())
        })
        .await
    }

    fn machine_deployment(&self, version: &str) -> Value {
        json!({
            "apiVersion": format!("{CLUSTER_GROUP}/v1beta2"),
            "kind": "MachineDeployment",
            "metadata": {"name": self.name},
            "spec": {
                "clusterName": self.name,
                "replicas": 1,
                "selector": {"matchLabels": {}},
                "template": {"spec": {
                    "clusterName": self.name,
                    "version": version,
                    "bootstrap": {"configRef": {
                        "apiGroup": BOOTSTRAP_GROUP, "kind": "KubeadmConfigTemplate", "name": self.name,
                    }},
                    "infrastructureRef": {
                        "apiGroup": INFRASTRUCTURE_GROUP, "kind": "StandInMachineTemplate", "name": self.name,
                    },
                }},
            },
        })
    }
}

/// The template of a worker's kubeadm configuration.
pub(super) fn worker_template(name: &str) -> Value {
    json!({
        "apiVersion": format!("{BOOTSTRAP_GROUP}/v1beta2"),
        "kind": "KubeadmConfigTemplate",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"joinConfiguration": {"nodeRegistration": {"kubeletExtraArgs": [
            {"name": "v", "value": "2"},
        ]}}}}},
    })
}
