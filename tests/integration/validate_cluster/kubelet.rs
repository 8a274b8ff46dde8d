//! A stand-in for the scheduler, and for the kubelet's container runtime: it binds each Pod of a validation to its Node, and runs
//! the real kcp-webhook with the Pod's arguments. kwok serves the output as the Pod's log.

use std::convert::Infallible;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kcp_control_plane::validation::pod::{CONTAINER, RUN_LABEL};
use kcp_tests::kubectl::Kubectl;
use kcp_tests::{products, wait};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::POD_NAMESPACE;
use crate::objects::written;

/// What happens to the Pod of a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behavior {
    Runs,
    /// The program gets another nonce, as if the log were that of another Pod.
    Confuses,
    /// The Pod is never bound.
    Ignores,
}

pub(super) struct Kubelet {
    pub(super) client: Client,
    /// kubectl with the kubeconfig of the workload cluster.
    pub(super) kubectl: Kubectl,
    pub(super) folder: PathBuf,
}

impl Kubelet {
    /// Runs Pods until it is dropped. `behavior` is that of each Node.
    pub(super) async fn run(&self, behavior: impl Fn(&str) -> Behavior) -> Result<Infallible> {
        loop {
            let pod = wait::until("a Pod waits to be run", || self.unbound(&behavior)).await?;
            self.run_pod(&pod, &behavior)
                .await
                .with_context(|| format!("running {}", pod.name_any()))?;
        }
    }

    /// The Pods of validations.
    pub(super) async fn pods(&self) -> Result<Vec<Pod>> {
        let listed = self.api().list(&ListParams::default().labels(RUN_LABEL)).await?;
        Ok(listed.items)
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), POD_NAMESPACE)
    }

    async fn unbound(&self, behavior: &impl Fn(&str) -> Behavior) -> Result<Pod> {
        let pods = self.pods().await?;
        let mut unbound = pods.into_iter().filter(|pod| {
            let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            let node = node_of(pod).unwrap_or_default();
            !is_bound && behavior(&node) != Behavior::Ignores
        });
        unbound.next().context("no Pod")
    }

    async fn run_pod(&self, pod: &Pod, behavior: &impl Fn(&str) -> Behavior) -> Result<()> {
        let name = pod.name_any();
        let node = node_of(pod).context("no Node")?;
        self.bind(&name, &node).await?;
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let container = container.context("no container")?;
        ensure!(container.name == CONTAINER, "{container:?}");
        let mut arguments = container.args.clone().unwrap_or_default();
        if behavior(&node) == Behavior::Confuses {
            for argument in &mut arguments {
                if argument.starts_with("--nonce=") {
                    "--nonce=another".clone_into(argument);
                }
            }
        }
        // A process that is not in a Pod has no service account.
        arguments.push(format!("--kubeconfig={}", self.kubectl.kubeconfig().display()));
        let program = products::under_test("kcp-webhook")?.display().to_string();
        let ended = self.kubectl.script(&program, &arguments).await?;
        self.log(&name, &ended.stdout).await?;
        let terminated = json!({"name": CONTAINER, "image": container.image, "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": ended.code}}});
        let phase = if ended.code == 0 { "Succeeded" } else { "Failed" };
        let status = json!({"status": {"phase": phase, "containerStatuses": [terminated]}});
        self.api()
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        Ok(())
    }

    async fn bind(&self, pod: &str, node: &str) -> Result<()> {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let path = format!("/api/v1/namespaces/{POD_NAMESPACE}/pods/{pod}/binding");
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(binding.to_string().into_bytes())?;
        self.client.request::<Value>(request).await?;
        Ok(())
    }

    /// Makes kwok serve the output of a Pod.
    async fn log(&self, pod: &str, output: &str) -> Result<()> {
        let file = self.folder.join(format!("{pod}.log"));
        // The format of the container runtime interface.
        let lines = output
            .lines()
            .map(|line| format!("2026-12-01T12:00:00.000000000Z stdout F {line}\n"));
        std::fs::write(&file, lines.collect::<String>())?;
        let logs = json!({"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Logs", "metadata": {"name": pod},
            "spec": {"logs": [{"containers": [CONTAINER], "logsFile": file}]}});
        written(&self.kubectl, "create", &[logs], &["-n", POD_NAMESPACE]).await?;
        Ok(())
    }
}

/// The Node for which a Pod was created.
fn node_of(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let term = required.node_selector_terms.first()?;
    let field = term.match_fields.as_ref()?.first()?;
    field.values.as_ref()?.first().cloned()
}
