//! kwok, the kubelet of the stand-in machines: it makes Nodes and pods ready, forwards ports to members, and serves the logs of
//! pods from files.

use std::fs;

use anyhow::{Context as _, Result};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use super::workload_cluster::WorkloadCluster;
use crate::addresses::free_port;
use crate::api_server::NO_ENVIRONMENT;
use crate::process::Process;
use crate::{manifests, resources, wait};

/// The stages that kwok applies to Nodes and pods.
const STAGES: [&str; 3] = [
    "node/fast/node-initialize.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
];

impl WorkloadCluster {
    pub(super) async fn start_kwok(&self, client: &Client) -> Result<Process> {
        for name in ["portforwards", "clusterportforwards", "logs", "clusterlogs"] {
            let file = self.assets.kwok(&format!("crd/bases/kwok.x-k8s.io_{name}.yaml"));
            for definition in manifests::objects(&file)? {
                manifests::create_definition(client, &definition).await?;
            }
        }
        let forwards: Api<DynamicObject> = Api::all_with(client.clone(), &resources::port_forwards());
        wait::until("PortForwards are served", || async {
            forwards
                .list(&ListParams::default().limit(1))
                .await
                .context("listing PortForwards")
        })
        .await?;

        let configuration = self.folder.join("kwok.yaml");
        fs::write(&configuration, self.stages()?).context("writing kwok's configuration")?;
        let port = free_port()?;
        let arguments = [
            format!("--kubeconfig={}", self.kubeconfig().display()),
            format!("--config={}", configuration.display()),
            "--manage-all-nodes".to_owned(),
            // The kubelet's default. kwok renews the Leases four times in this time.
            "--node-lease-duration-seconds=40".to_owned(),
            "--node-ip=127.0.0.1".to_owned(),
            format!("--node-port={port}"),
            format!("--server-address=127.0.0.1:{port}"),
            "--enable-crds=PortForward,Logs".to_owned(),
            "--cidr=10.244.0.1/24".to_owned(),
        ];
        let log = format!("{}-kwok", self.name);
        Process::start(
            &self.run,
            &log,
            &self.assets.program("kwok"),
            arguments,
            NO_ENVIRONMENT,
        )
    }

    fn stages(&self) -> Result<String> {
        let mut text = String::new();
        for stage in STAGES {
            for mut document in manifests::read(&self.assets.kwok(&format!("stage/{stage}")))? {
                match document.pointer("/metadata/name").and_then(Value::as_str) {
                    Some("node-initialize") => leave_known_nodes_alone(&mut document)?,
                    Some("pod-delete") => leave_mirror_pods_alone(&mut document)?,
                    _ => {}
                }
                text.push_str("---\n");
                // JSON is YAML.
                text.push_str(&serde_json::to_string(&document)?);
                text.push('\n');
            }
        }
        Ok(text)
    }
}

/// The original stage makes any Node ready again within a second, which would undo the faults that tests inject. This
/// one applies only to Nodes without a Ready condition.
fn leave_known_nodes_alone(stage: &mut Value) -> Result<()> {
    let values = stage.pointer_mut("/spec/selector/matchExpressions/0/values");
    *values.context("kwok's node-initialize has no selector")? = json!(["True", "False", "Unknown"]);
    Ok(())
}

/// kwok deletes a pod by its name only, after a moment. If a mirror pod is replaced in this moment, the original stage deletes
/// the new one. A kubelet names the uid.
fn leave_mirror_pods_alone(stage: &mut Value) -> Result<()> {
    let conditions = stage.pointer_mut("/spec/selector/matchExpressions");
    let conditions = conditions.and_then(Value::as_array_mut);
    conditions.context("kwok's pod-delete has no selector")?.push(
        json!({"key": r#".metadata.annotations["kubernetes.io/config.mirror"]"#, "operator": "DoesNotExist"}),
    );
    Ok(())
}
