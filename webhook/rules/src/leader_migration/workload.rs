//! A controller manager in a manifest: a Pod, or the Pod template of a `Deployment`, a `DaemonSet` or a `StatefulSet`.

use serde_json::Value;

use super::{Component, Flags};

/// The text that the names of images, programs and containers of cloud-controller-managers contain.
pub const CLOUD_CONTROLLER_MANAGER: &str = "cloud-controller-manager";

/// An image whose tags follow the versions of Kubernetes.
struct Numbering {
    /// The end of the image's path, which is the same in mirrors.
    image: &'static str,
    /// The part of a tag before the minor version of Kubernetes.
    before_minor: &'static str,
}

/// The images whose tags follow the versions of Kubernetes. Other cloud providers have versions of their own:
/// v1.20 of hcloud-cloud-controller-manager does not mean Kubernetes 1.20. Sources: the version tables in the
/// READMEs of `kubernetes/cloud-provider-aws`, `kubernetes/cloud-provider-openstack`,
/// `kubernetes-sigs/cloud-provider-azure`, `kubernetes/cloud-provider-vsphere` and
/// `kubernetes/cloud-provider-gcp`.
const NUMBERED_AS_KUBERNETES: [Numbering; 6] = [
    Numbering {
        image: "kube-controller-manager",
        before_minor: "v1.",
    },
    Numbering {
        image: "provider-aws/cloud-controller-manager",
        before_minor: "v1.",
    },
    Numbering {
        image: "openstack-cloud-controller-manager",
        before_minor: "v1.",
    },
    Numbering {
        image: "azure-cloud-controller-manager",
        before_minor: "v1.",
    },
    Numbering {
        image: "cloud-provider-vsphere",
        before_minor: "v1.",
    },
    // v35.0.8 has the libraries of Kubernetes 1.35.
    Numbering {
        image: "cloud-provider-gcp/cloud-controller-manager",
        before_minor: "v",
    },
];

/// From this minor version on, all images in [`NUMBERED_AS_KUBERNETES`] follow the versions of Kubernetes.
/// Azure's v1.1 is for Kubernetes 1.22.
const NUMBERED_SINCE: u64 = 23;

/// Shells. A shell runs a command that is one of its arguments.
const SHELLS: [&str; 4] = ["sh", "bash", "ash", "dash"];

/// The container of a controller manager, with the Pod around it.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'v> {
    pod: &'v Value,
    container: &'v Value,
}

/// Where a file of a container comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountedFile {
    /// The path of the file on the host.
    Host(String),
    /// A key of a `ConfigMap` in the namespace of the Pod.
    ConfigMap {
        name: String,
        /// The key.
        key: String,
    },
    /// The file is in no volume, or in a volume of another type, such as a Secret.
    Unknown,
}

impl<'v> Workload<'v> {
    /// Finds the cloud-controller-manager in a Pod, `Deployment`, `DaemonSet` or `StatefulSet`.
    pub fn find(manifest: &'v Value) -> Option<Self> {
        Self::find_component(Component::Cloud, manifest)
    }

    /// Finds a component in a Pod, `Deployment`, `DaemonSet` or `StatefulSet`. Prefers a container whose program contains the
    /// component's name, then a container whose image contains it, then a container whose own name contains it. Arguments do not
    /// count, because another program can mention the component in its arguments.
    pub fn find_component(component: Component, manifest: &'v Value) -> Option<Self> {
        let pod = match manifest.get("kind")?.as_str()? {
            "Pod" => manifest.get("spec")?,
            "Deployment" | "DaemonSet" | "StatefulSet" => manifest.pointer("/spec/template/spec")?,
            _ => return None,
        };
        let containers = pod.get("containers")?.as_array()?;
        // The program that a shell starts is in an argument.
        let program = |container: &'v Value| match program(container) {
            Some(shell) if is_shell(shell) => words(container)
                .find(|word| word.contains(component.name()))
                .unwrap_or(shell),
            program => program.unwrap_or_default(),
        };
        let image = |container: &'v Value| text(container, "image");
        let name = |container: &'v Value| text(container, "name");
        let having = |part: &dyn Fn(&'v Value) -> &'v str| {
            containers
                .iter()
                .find(|container| part(container).contains(component.name()))
        };
        let container = having(&program)
            .or_else(|| having(&image))
            .or_else(|| having(&name))?;
        Some(Self { pod, container })
    }

    /// The name of the container.
    pub fn container(&self) -> &'v str {
        text(self.container, "name")
    }

    /// The flags of the container. `None` if the manifest does not show them, because a shell starts the
    /// program, or because the flags refer to environment variables or contain template placeholders.
    pub fn flags(&self) -> Option<Flags> {
        let is_complete = !program(self.container).is_some_and(is_shell)
            && words(self.container).all(|word| !word.contains("$(") && !word.contains("{{"));
        is_complete.then(|| Flags::from_command(words(self.container)))
    }

    /// The minor version of the program's Kubernetes libraries, if the tags of its image follow the versions
    /// of Kubernetes.
    pub fn minor(&self) -> Option<u64> {
        let image = text(self.container, "image").split('@').next()?;
        let (path, tag) = image.rsplit_once(':')?;
        let numbering = NUMBERED_AS_KUBERNETES.iter().find(|numbering| {
            let before = path.strip_suffix(numbering.image);
            before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
        })?;
        let version = tag.strip_prefix(numbering.before_minor)?;
        let minor = version.split(['.', '-', '+']).next()?.parse().ok()?;
        (minor >= NUMBERED_SINCE).then_some(minor)
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

/// The program that the container starts; `None` if the manifest does not name it.
fn program(container: &Value) -> Option<&str> {
    words(container).next().filter(|word| !word.starts_with('-'))
}

fn is_shell(program: &str) -> bool {
    program
        .rsplit('/')
        .next()
        .is_some_and(|name| SHELLS.contains(&name))
}

/// The words of the container's command and arguments.
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
            "image": "registry:5000/provider-aws/cloud-controller-manager:v1.36.1-eks@sha256:0",
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
        assert_eq!((workload.container(), workload.minor()), ("main", Some(36)));
        assert!(Workload::find_component(Component::Kube, &manifest).is_none());
        assert_eq!(
            workload.flags().unwrap().get("enable-leader-migration"),
            Some("true")
        );
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
    }

    fn pod(containers: &Value) -> Value {
        json!({"kind": "Pod", "spec": {"containers": containers}})
    }

    #[test]
    fn the_version_is_that_of_kubernetes_or_unknown() {
        for (image, expected) in [
            (
                "registry.k8s.io/provider-aws/cloud-controller-manager:v1.30.8",
                Some(30),
            ),
            (
                "mirror:5000/k8s/provider-os/openstack-cloud-controller-manager:v1.34.0@sha256:0",
                Some(34),
            ),
            (
                "mcr.microsoft.com/oss/kubernetes/azure-cloud-controller-manager:v1.30.1",
                Some(30),
            ),
            (
                "mcr.microsoft.com/oss/kubernetes/azure-cloud-controller-manager:v1.1.18",
                None,
            ),
            (
                "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.35.0",
                Some(35),
            ),
            (
                "registry.k8s.io/cloud-provider-gcp/cloud-controller-manager:v35.0.8",
                Some(35),
            ),
            ("openstack-cloud-controller-manager:v1.36.0", Some(36)),
            // Versions of their own.
            ("hetznercloud/hcloud-cloud-controller-manager:v1.30.0", None),
            ("digitalocean/digitalocean-cloud-controller-manager:v0.1.64", None),
            ("example.com/my-openstack-cloud-controller-manager:v1.30.0", None),
            ("cloud-controller-manager:v1.36.0", None),
            // No tag, or none with a version.
            ("openstack-cloud-controller-manager", None),
            ("mirror:5000/openstack-cloud-controller-manager", None),
            ("openstack-cloud-controller-manager:latest", None),
        ] {
            let manifest = pod(&json!([{"name": CLOUD_CONTROLLER_MANAGER, "image": image}]));
            assert_eq!(Workload::find(&manifest).unwrap().minor(), expected, "{image}");
        }
    }

    #[test]
    fn the_container_is_found_by_its_program_image_or_name_and_not_by_arguments() {
        let proxy = json!({"name": "proxy", "image": "proxy", "args": ["--upstream=cloud-controller-manager", "--v=1"]});
        for (case, containers, expected) in [
            (
                "a sidecar that mentions it",
                json!([proxy, {"name": "main", "image": "aws/cloud-controller-manager", "args": ["--v=2"]}]),
                Some("2"),
            ),
            (
                "a sidecar with a similar image",
                json!([
                    {"name": "a", "image": "cloud-controller-manager-proxy", "command": ["/proxy", "--v=1"]},
                    {"name": "b", "image": "mirror/ccm", "command": ["/bin/cloud-controller-manager", "--v=2"]},
                ]),
                Some("2"),
            ),
            (
                "a name",
                json!([proxy, {"name": "hcloud-cloud-controller-manager", "image": "ccm", "args": ["--v=2"]}]),
                Some("2"),
            ),
            (
                "arguments with the program",
                json!([{"name": "c", "image": "ccm", "args": ["/cloud-controller-manager", "--v=2"]}]),
                Some("2"),
            ),
            ("arguments alone", json!([proxy]), None),
        ] {
            let manifest = pod(&containers);
            let workload = Workload::find(&manifest);
            let flags = workload.and_then(|workload| workload.flags());
            assert_eq!(
                flags.as_ref().and_then(|flags| flags.get("v")),
                expected,
                "{case}"
            );
        }
    }

    #[test]
    fn a_program_that_a_shell_starts_is_found_without_its_flags() {
        let script = "exec /bin/openstack-cloud-controller-manager --v=2";
        let manifest = pod(&json!([{"name": "main", "image": "ccm", "command": ["/bin/sh", "-c", script]}]));
        assert!(Workload::find(&manifest).unwrap().flags().is_none());
    }

    #[test]
    fn flags_that_the_manifest_does_not_show_are_unknown() {
        for (command, is_known) in [
            (json!(["/bin/cloud-controller-manager", "--v=2"]), true),
            (
                json!(["/bin/sh", "-c", "/bin/cloud-controller-manager --v=2"]),
                false,
            ),
            (
                json!(["/bin/cloud-controller-manager", "--controllers=$(CONTROLLERS)"]),
                false,
            ),
            (
                json!(["/bin/cloud-controller-manager", "--controllers={{ controllers }}"]),
                false,
            ),
        ] {
            let manifest = pod(&json!([{"name": CLOUD_CONTROLLER_MANAGER, "command": command}]));
            assert_eq!(
                Workload::find(&manifest).unwrap().flags().is_some(),
                is_known,
                "{command}"
            );
        }
    }
}
