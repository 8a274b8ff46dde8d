//! What Cluster API tells a machine to do at its first boot: cloud-config with kubeadm's files.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// kubeadm's configuration for the first machine.
const INIT: &str = "/run/kubeadm/kubeadm.yaml";
/// kubeadm's configuration for a machine that joins.
const JOIN: &str = "/run/kubeadm/kubeadm-join-config.yaml";

/// The part of cloud-config that says everything.
#[derive(Deserialize)]
struct CloudConfig {
    write_files: Vec<File>,
}

#[derive(Deserialize)]
struct File {
    path: String,
    #[serde(default)]
    content: String,
}

/// The files that a machine finds when it boots, by path.
pub(super) struct BootstrapData(HashMap<String, String>);

/// What kubeadm would be called with.
pub(super) enum Action {
    /// `kubeadm init`
    Init,
    /// `kubeadm join --control-plane`
    Join,
}

impl BootstrapData {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let config: CloudConfig = serde_saphyr::from_str(text).context("parsing cloud-config")?;
        Ok(Self(
            config
                .write_files
                .into_iter()
                .map(|file| (file.path, file.content))
                .collect(),
        ))
    }

    pub(super) fn action(&self) -> Result<Action> {
        if self.0.contains_key(INIT) {
            Ok(Action::Init)
        } else if self.0.contains_key(JOIN) {
            Ok(Action::Join)
        } else {
            bail!("bootstrap data has neither {INIT} nor {JOIN}")
        }
    }

    /// A file of `/etc/kubernetes/pki`.
    pub(super) fn pki(&self, name: &str) -> Result<&str> {
        let path = format!("/etc/kubernetes/pki/{name}");
        let content = self.0.get(&path);
        content
            .map(String::as_str)
            .with_context(|| format!("bootstrap data has no {path}"))
    }

    /// The document of kubeadm's configuration that it stores in the cluster.
    pub(super) fn cluster_configuration(&self) -> Result<&str> {
        let text = self
            .0
            .get(INIT)
            .with_context(|| format!("bootstrap data has no {INIT}"))?;
        text.split("---\n")
            .find(|document| document.lines().any(|line| line == "kind: ClusterConfiguration"))
            .with_context(|| format!("{INIT} has no ClusterConfiguration"))
    }
}
