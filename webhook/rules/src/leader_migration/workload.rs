//! A cloud-controller-manager in a manifest: a Pod, or the template of a `Deployment` or a `DaemonSet`.

use serde_json::Value;

use super::Flags;

/// The name in images, commands and names of containers.
const NAME: &str = "cloud-controller-manager";

/// The container of a cloud-controller-manager, with the Pod around it.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'v> {
    pod: &'v Value,
    container: &'v Value,
}

/// Where a file of a container comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountedFile {
    /// A path of the host.
    Host(String),
    /// A key of a `ConfigMap` in the namespace of the Pod.
    ConfigMap {
        /// The name of the `ConfigMap`.
        name: String,
        /// The key.
        key: String,
    },
    /// No volume, or one of another type, such as a Secret.
    Unknown,
}

impl<'v> Workload<'v> {
    /// Finds the cloud-controller-manager in a Pod, `Deployment`, `DaemonSet` or `StatefulSet`.
    pub fn find(manifest: &'v Value) -> Option<Self> {
        let pod = match manifest.get("kind")?.as_str()? {
            "Pod" => manifest.get("spec")?,
            "Deployment" | "DaemonSet" | "StatefulSet" => manifest.pointer("/spec/template/spec")?,
            _ => return None,
        };
        let mut containers = pod.get("containers")?.as_array()?.iter();
        let container = containers.find(|container| {
            let texts = [text(container, "name"), text(container, "image")];
            let words = words(container);
            texts.into_iter().chain(words).any(|text| text.contains(NAME))
        })?;
        Some(Self { pod, container })
    }

    /// The flags of the container.
    pub fn flags(&self) -> Flags {
        Flags::from_command(words(self.container))
    }

    /// The minor version in the image's tag. Cloud providers number their releases after Kubernetes.
    pub fn minor(&self) -> Option<u64> {
        let image = text(self.container, "image");
        let image = image.split('@').next()?;
        let tag = image.rsplit('/').next()?.split_once(':')?.1;
        let version = tag.trim_start_matches('v').strip_prefix("1.")?;
        version.split(['.', '-', '+']).next()?.parse().ok()
    }

    /// Where a file in the container comes from. The innermost mount counts.
    pub fn file(&self, path: &str) -> MountedFile {
        self.mounted(path).unwrap_or(MountedFile::Unknown)
    }

    fn mounted(&self, path: &str) -> Option<MountedFile> {
        let mounts = self.container.get("volumeMounts")?.as_array()?;
        let (mount, rest) = mounts
            .iter()
            .filter_map(|mount| {
                let rest = path.strip_prefix(text(mount, "mountPath").trim_end_matches('/'))?;
                (rest.is_empty() || rest.starts_with('/')).then_some((mount, rest))
            })
            .min_by_key(|(_, rest)| rest.len())?;
        let sub_path = text(mount, "subPath");
        let rest = match sub_path {
            "" => rest.to_owned(),
            sub_path => format!("/{sub_path}{rest}"),
        };
        let mut volumes = self.pod.get("volumes")?.as_array()?.iter();
        let volume = volumes.find(|volume| text(volume, "name") == text(mount, "name"))?;
        if let Some(host) = volume.pointer("/hostPath/path").and_then(Value::as_str) {
            return Some(MountedFile::Host(format!("{}{rest}", host.trim_end_matches('/'))));
        }
        let source = volume.get("configMap")?;
        let path = rest.trim_start_matches('/');
        let items = source.get("items").and_then(Value::as_array);
        let key = match items {
            Some(items) => text(items.iter().find(|item| text(item, "path") == path)?, "key"),
            None => path,
        };
        Some(MountedFile::ConfigMap {
            name: text(source, "name").to_owned(),
            key: key.to_owned(),
        })
    }
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The command and its arguments.
fn words(container: &Value) -> impl Iterator<Item = &str> {
    ["command", "args"]
        .into_iter()
        .filter_map(|field| container.get(field)?.as_array())
        .flatten()
        .filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn flags_version_and_files_come_from_the_manifest() {
        let manifest = json!({"kind": "DaemonSet", "spec": {"template": {"spec": {
        "containers": [{"name": "sidecar", "image": "proxy"}, {
            "name": "main",
            "image": "registry:5000/provider/cloud-controller-manager:v1.36.1-gke@sha256:0",
            "command": ["/bin/manager"],
            "args": ["--enable-leader-migration", "--leader-migration-config=/etc/m/leader.yaml"],
            "volumeMounts": [
                {"name": "m", "mountPath": "/etc/m"},
                {"name": "h", "mountPath": "/etc"},
                {"name": "one", "mountPath": "/one.yaml", "subPath": "key.yaml"},
                {"name": "items", "mountPath": "/items"},
            ]}],
        "volumes": [
            {"name": "m", "configMap": {"name": "migration"}},
            {"name": "h", "hostPath": {"path": "/host/"}},
            {"name": "one", "configMap": {"name": "single"}},
            {"name": "items", "configMap": {"name": "renamed", "items": [{"key": "k", "path": "a/p"}]}},
        ]}}}});
        let workload = Workload::find(&manifest).unwrap();
        assert_eq!(workload.minor(), Some(36));
        assert_eq!(workload.flags().get("enable-leader-migration"), Some("true"));
        let config_map = |name: &str, key: &str| MountedFile::ConfigMap {
            name: name.to_owned(),
            key: key.to_owned(),
        };
        for (path, expected) in [
            ("/etc/m/leader.yaml", config_map("migration", "leader.yaml")),
            ("/etc/other", MountedFile::Host("/host/other".to_owned())),
            ("/one.yaml", config_map("single", "key.yaml")),
            ("/items/a/p", config_map("renamed", "k")),
            ("/items/b", MountedFile::Unknown),
            ("/elsewhere", MountedFile::Unknown),
        ] {
            assert_eq!(workload.file(path), expected, "{path}");
        }
    }

    #[test]
    fn other_manifests_have_no_cloud_controller_manager() {
        for manifest in [
            json!({"kind": "Pod", "spec": {"containers": [{"name": "etcd"}]}}),
            json!({"kind": "ConfigMap", "data": {"containers": "cloud-controller-manager"}}),
            json!("cloud-controller-manager"),
        ] {
            assert!(Workload::find(&manifest).is_none(), "{manifest}");
        }
        let untagged =
            json!({"kind": "Pod", "spec": {"containers": [{"image": "cloud-controller-manager:latest"}]}});
        assert_eq!(Workload::find(&untagged).unwrap().minor(), None);
    }
}
