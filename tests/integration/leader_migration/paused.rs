//! A paused control plane that the guided verbs change. What they write is what its kube-controller-managers run.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};

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

    /// Writes leader migration.
    pub(super) async fn start(&self) -> Result<()> {
        let written = "leader migration enabled with Lease migration";
        self.runs("start", &self.start_flags(), written).await
    }

    /// Succeeds if every kube-controller-manager uses leader migration.
    pub(super) async fn is_started(&self) -> Result<()> {
        let started = "every kube-controller-manager uses leader migration with Lease migration";
        self.runs("start", &self.start_flags(), started).await
    }

    fn start_flags(&self) -> Vec<&'static str> {
        let flags = ["--to", self.new, "--leader-name", MIGRATION];
        let node_ipam = self.node_ipam.then_some("--node-ipam");
        flags.into_iter().chain(node_ipam).collect()
    }

    /// Grants cloud-controller-manager the permissions for the migration lock.
    pub(super) async fn permit(&self) -> Result<()> {
        let flags = ["--leader-name", MIGRATION, "--apply"];
        self.runs("rbac", &flags, "leader-migration created").await
    }

    /// Writes the new version, whose kube-controller-manager does not run Node IPAM.
    pub(super) async fn upgrade(&self) -> Result<()> {
        let written = "with the handover to cloud-controller-manager";
        self.runs("upgrade", &["--to", self.new], written).await
    }

    /// Writes the old version and leader migration again.
    pub(super) async fn roll_back(&self) -> Result<()> {
        let written = format!("rolled back to {} with leader migration", self.old);
        self.runs("rollback", &[], &written).await
    }

    async fn runs(&self, verb: &str, more: &[&str], text: &str) -> Result<()> {
        let arguments = ["kcp", "leader-migration", verb, NAME, "-n", self.namespace];
        let yes = (verb != "rbac").then_some(&"--yes");
        let arguments = arguments.iter().chain(more).chain(yes);
        let ended = self.management.kubectl().run(arguments).await?;
        ensure!(
            ended.code == 0 && ended.stdout.contains(text),
            "{verb} {text}: {ended}"
        );
        Ok(())
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
