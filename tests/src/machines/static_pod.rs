//! The static pod of kube-controller-manager, as kubeadm writes it from its `ClusterConfiguration`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// What kubeadm mounts into kube-controller-manager without being asked: the same path on the host and in the pod.
const MOUNTED_BY_KUBEADM: [&str; 2] = ["/etc/kubernetes/pki", "/etc/kubernetes/controller-manager.conf"];

/// Where a path leads that no volume covers. Nothing writes there.
const NOT_MOUNTED: &str = "not-mounted";

const CONTROLLERS: &str = "controllers";

/// The controllers that `*` stands for in `--controllers`. The others would delete what tests create, such as the pods of a
/// Node that no kubelet reports.
const ALL: &str = "serviceaccount-token-controller,node-ipam-controller";

/// The flags and volumes that the control plane asks for.
pub(super) struct StaticPod {
    arguments: Vec<Argument>,
    volumes: Vec<Volume>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterConfiguration {
    #[serde(default)]
    controller_manager: Component,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Component {
    #[serde(default)]
    extra_args: Arguments,
    #[serde(default)]
    extra_volumes: Vec<Volume>,
}

/// A list from v1beta4 on, a map before.
#[derive(Deserialize)]
#[serde(untagged)]
enum Arguments {
    List(Vec<Argument>),
    Map(BTreeMap<String, String>),
}

impl Default for Arguments {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    host_path: String,
    mount_path: String,
}

impl StaticPod {
    /// Reads a `ClusterConfiguration`, from bootstrap data or from the `ConfigMap` kubeadm-config.
    pub(super) fn of(cluster_configuration: &str) -> Result<Self> {
        let value: serde_json::Value =
            serde_saphyr::from_str(cluster_configuration).context("parsing the ClusterConfiguration")?;
        let configuration: ClusterConfiguration =
            serde_json::from_value(value).context("reading the ClusterConfiguration")?;
        let Component {
            extra_args,
            extra_volumes,
        } = configuration.controller_manager;
        let arguments = match extra_args {
            Arguments::List(list) => list,
            Arguments::Map(map) => {
                let arguments = map.into_iter().map(|(name, value)| Argument { name, value });
                arguments.collect()
            }
        };
        Ok(Self {
            arguments,
            volumes: extra_volumes,
        })
    }

    /// The flags in the pod's command.
    pub(super) fn flags(&self) -> Vec<String> {
        let flags = self
            .arguments
            .iter()
            .map(|argument| format!("--{}={}", argument.name, argument.value));
        flags.collect()
    }

    /// The flags of the process, whose container's files are below `root`.
    pub(super) fn flags_below(&self, root: &Path) -> Vec<String> {
        let flags = self.arguments.iter().map(|Argument { name, value }| {
            if name == CONTROLLERS {
                format!("--{name}={}", without_star(value))
            } else if value.starts_with('/') {
                format!("--{name}={}", self.on_host(root, value).display())
            } else {
                format!("--{name}={value}")
            }
        });
        flags.collect()
    }

    fn on_host(&self, root: &Path, path: &str) -> PathBuf {
        let by_kubeadm = MOUNTED_BY_KUBEADM.map(|path| (path, path));
        let volumes = self.volumes.iter();
        let volumes = volumes.map(|volume| (volume.mount_path.as_str(), volume.host_path.as_str()));
        let covering = volumes.chain(by_kubeadm).filter_map(|(mount, host)| {
            let rest = path.strip_prefix(mount)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| (mount.len(), format!("{host}{rest}")))
        });
        let host = covering.max_by_key(|(length, _)| *length).map(|(_, host)| host);
        match host {
            Some(host) => below(root, &host),
            None => below(&root.join(NOT_MOUNTED), path),
        }
    }
}

/// A path of the host below a folder.
pub(super) fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// The first entry that names a controller decides, and `*` stands for the rest wherever it is.
fn without_star(controllers: &str) -> String {
    let entries: Vec<&str> = controllers.split(',').collect();
    let named = entries.iter().copied().filter(|entry| *entry != "*");
    let rest = entries.contains(&"*").then_some(ALL);
    named.chain(rest).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "
kind: ClusterConfiguration
controllerManager:
  extraArgs:
  - {name: enable-leader-migration, value: \"true\"}
  - {name: leader-migration-config, value: /etc/kubernetes/leader-migration.yaml}
  - {name: cloud-config, value: /etc/kubernetes/cloud/config.yaml}
  - {name: flex-volume-plugin-dir, value: /etc/kubernetes/clouds}
  - {name: tls-cert-file, value: /etc/kubernetes/pki/kcm.crt}
  - {name: controllers, value: \"*,-nodeipam\"}
  extraVolumes:
  - {name: a, hostPath: /var/migration.yaml, mountPath: /etc/kubernetes/leader-migration.yaml}
  - {name: b, hostPath: /srv/cloud, mountPath: /etc/kubernetes/cloud}
";

    #[test]
    fn paths_lead_through_volumes() {
        let pod = StaticPod::of(LIST).unwrap();
        assert_eq!(
            pod.flags_below(Path::new("/root")),
            [
                "--enable-leader-migration=true",
                "--leader-migration-config=/root/var/migration.yaml",
                "--cloud-config=/root/srv/cloud/config.yaml",
                "--flex-volume-plugin-dir=/root/not-mounted/etc/kubernetes/clouds",
                "--tls-cert-file=/root/etc/kubernetes/pki/kcm.crt",
                "--controllers=-nodeipam,serviceaccount-token-controller,node-ipam-controller",
            ]
        );
        assert_eq!(
            pod.flags().first().map(String::as_str),
            Some("--enable-leader-migration=true")
        );
    }

    #[test]
    fn arguments_were_a_map_before_v1beta4() {
        let map = "controllerManager: {extraArgs: {v: \"4\", controllers: nodeipam}}";
        let pod = StaticPod::of(map).unwrap();
        assert_eq!(pod.flags(), ["--controllers=nodeipam", "--v=4"]);
        assert_eq!(
            pod.flags_below(Path::new("/")),
            ["--controllers=nodeipam", "--v=4"]
        );
        let none = StaticPod::of("kind: ClusterConfiguration").unwrap();
        assert_eq!(none.flags(), Vec::<String>::new());
    }
}
