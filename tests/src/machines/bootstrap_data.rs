//! A machine's bootstrap data: cloud-config with kubeadm's files.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// kubeadm's configuration for the first machine.
const INIT: &str = "/run/kubeadm/kubeadm.yaml";
/// kubeadm's configuration for a machine that joins.
const JOIN: &str = "/run/kubeadm/kubeadm-join-config.yaml";

/// The part of cloud-config that we read.
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

/// The contents of files, by path.
pub(super) struct BootstrapData(HashMap<String, String>);

/// The kubeadm command of a machine.
pub(super) enum Action {
    Init,
    JoinControlPlane,
    JoinWorker,
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
        } else if let Some(join) = self.0.get(JOIN) {
            // kubeadm decides by this section too.
            let control_plane = join.lines().any(|line| line.starts_with("controlPlane:"));
            Ok(if control_plane {
                Action::JoinControlPlane
            } else {
                Action::JoinWorker
            })
        } else {
            bail!("bootstrap data has neither {INIT} nor {JOIN}")
        }
    }

    /// Every file, by path on the machine.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(path, content)| (path.as_str(), content.as_str()))
    }

    /// A file in `/etc/kubernetes/pki`.
    pub(super) fn pki(&self, name: &str) -> Result<&str> {
        let path = format!("/etc/kubernetes/pki/{name}");
        let content = self.0.get(&path);
        content
            .map(String::as_str)
            .with_context(|| format!("bootstrap data has no {path}"))
    }

    /// The document of kubeadm's configuration that kubeadm stores in the cluster.
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

#[cfg(test)]
mod tests {
    use super::{Action, BootstrapData};

    /// The form in which Cluster API's kubeadm bootstrap provider writes the data.
    const INIT: &str = "\
## template: jinja
#cloud-config

write_files:
-   path: /etc/kubernetes/pki/ca.crt
    owner: root:root
    permissions: '0640'
    content: |
      CERTIFICATE
-   path: /run/kubeadm/kubeadm.yaml
    owner: root:root
    permissions: '0640'
    content: |
      ---
      apiServer: {}
      kind: ClusterConfiguration

      ---
      kind: InitConfiguration
runcmd:
  - 'kubeadm init --config /run/kubeadm/kubeadm.yaml'
";

    #[test]
    fn finds_what_the_first_machine_needs() {
        let data = BootstrapData::parse(INIT).unwrap();
        assert!(matches!(data.action(), Ok(Action::Init)));
        assert_eq!(data.pki("ca.crt").unwrap(), "CERTIFICATE\n");
        assert_eq!(
            data.cluster_configuration().unwrap(),
            "apiServer: {}\nkind: ClusterConfiguration\n\n"
        );
    }

    #[test]
    fn tells_a_machine_that_joins() {
        let join = INIT.replace(
            "/run/kubeadm/kubeadm.yaml",
            "/run/kubeadm/kubeadm-join-config.yaml",
        );
        let data = BootstrapData::parse(&join).unwrap();
        assert!(matches!(data.action(), Ok(Action::JoinWorker)));
        let join = join.replace(
            "      apiServer: {}\n",
            "      controlPlane:\n        localAPIEndpoint: {}\n",
        );
        let data = BootstrapData::parse(&join).unwrap();
        assert!(matches!(data.action(), Ok(Action::JoinControlPlane)));
        let neither = BootstrapData::parse("write_files: []").unwrap();
        assert!(neither.action().is_err());
    }
}
