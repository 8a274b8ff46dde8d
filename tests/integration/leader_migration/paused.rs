//! A paused control plane whose controllers migrate. What the steps write is what its kube-controller-managers run.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};

use super::steps::Steps;
use super::{MIGRATION, election};

/// The name of the cluster.
pub(super) const NAME: &str = "edge";

pub(super) struct ControlPlane<'m> {
    pub(super) management: &'m ManagementCluster,
    pub(super) cluster: &'m Cluster,
    pub(super) namespace: &'static str,
    /// The versions before and after the upgrade.
    pub(super) old: &'static str,
    pub(super) new: &'static str,
    /// Whether Node IPAM migrates.
    pub(super) node_ipam: bool,
}

impl ControlPlane<'_> {
    /// Pauses the control plane, so that no Machine has the new version and `rollback` can always return to the old one.
    /// Gives kube-controller-manager short leases and these `extraArgs`.
    pub(super) async fn pause(&self, more: &[Value]) -> Result<()> {
        self.cluster.pause(true).await?;
        let arguments = [&election()[..], more].concat();
        let component = json!({"controllerManager": {"extraArgs": arguments}});
        let patch = json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": component}}});
        self.cluster.patch(&patch).await
    }

    /// Permits both controller managers to use the migration lock, and enables leader migration.
    pub(super) async fn start(&self, workload: &Kubectl) -> Result<()> {
        let flags = ["--to", self.new, "--leader-name", MIGRATION];
        let node_ipam = self.node_ipam.then_some("--node-ipam");
        let flags: Vec<&str> = flags.into_iter().chain(node_ipam).collect();
        self.steps(workload).take("start", &flags).await.map(drop)
    }

    /// Changes the version to the new one, whose kube-controller-manager does not run what migrates.
    pub(super) async fn upgrade(&self, workload: &Kubectl) -> Result<()> {
        self.steps(workload)
            .take("upgrade", &["--to", self.new])
            .await
            .map(drop)
    }

    /// Restores the old version and leader migration.
    pub(super) async fn roll_back(&self, workload: &Kubectl) -> Result<()> {
        self.steps(workload).take("rollback", &[]).await.map(drop)
    }

    fn steps<'s>(&'s self, workload: &'s Kubectl) -> Steps<'s> {
        Steps {
            management: self.management,
            workload,
            namespace: self.namespace,
            name: NAME,
        }
    }

    /// The `kubeadmConfigSpec`, if the control plane has this version.
    pub(super) async fn kubeadm_config_spec(&self, version: &str) -> Result<Value> {
        let mut object = self.cluster.get().await?;
        let found = object.pointer("/spec/version");
        ensure!(found == Some(&json!(version)), "{version} instead of {found:?}");
        let spec = object.pointer_mut("/spec/kubeadmConfigSpec").map(Value::take);
        spec.context("the control plane has no kubeadmConfigSpec")
    }

    /// The leader migration configuration that `start` wrote.
    pub(super) async fn configuration(&self) -> Result<String> {
        let spec = self.kubeadm_config_spec(self.old).await?;
        let content = spec.pointer("/files/0/content").and_then(Value::as_str);
        content
            .map(str::to_owned)
            .context("the control plane has no file")
    }
}
