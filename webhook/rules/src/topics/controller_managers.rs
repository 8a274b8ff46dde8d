//! The controller managers of a control plane, as [`crate::leader_migration`] models them.

use super::{
    extra_args,
    files::files,
    leader_migration::{Source, inline_content, source},
    static_pods::{self, StaticPod},
};
use crate::{
    api::ControlPlaneSpec,
    leader_migration::{
        Component, ControllerManagers, Flags, Manager,
        workload::{MountedFile, Workload},
    },
};

/// Why a controller manager cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// A template has no version.
    #[error("the control plane has no Kubernetes version")]
    NoVersion,
    /// A static Pod cannot be read, so it may be a cloud-controller-manager.
    #[error(
        "cannot read the static Pod in spec.kubeadmConfigSpec.files[{0}]. Its content must be one Pod in YAML or JSON, as plain \
         text of at most 64 KiB. The Pod must start the controller manager itself, not through a shell. Its flags must contain no \
         environment variables or placeholders"
    )]
    StaticPod(usize),
    /// More than one static Pod is a cloud-controller-manager.
    #[error("spec.kubeadmConfigSpec.files has more than one static Pod with a cloud-controller-manager")]
    SeveralClouds,
    /// The image tag of cloud-controller-manager does not show the Kubernetes version.
    #[error(
        "the image tag of cloud-controller-manager does not show its Kubernetes version; only the image tags \
         of AWS, Azure, GCP, OpenStack and vSphere show it"
    )]
    NoCloudVersion,
    /// The configuration is not inline text in `files`.
    #[error("the leader migration configuration of {0} is not in spec.kubeadmConfigSpec.files as plain text")]
    Configuration(Component),
}

/// A cloud-controller-manager that a static Pod in `files` starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudStaticPod {
    /// The cloud-controller-manager.
    pub manager: Manager,
    /// The index of the static Pod in `files`.
    pub index: usize,
}

/// The controller managers of a control plane: kube-controller-manager, and a cloud-controller-manager among the static Pods
/// in `files`. Fails if one of them cannot be determined.
pub fn controller_managers(
    spec: &ControlPlaneSpec<'_>,
    allocates_node_cidrs: bool,
) -> Result<ControllerManagers, Unknown> {
    Ok(ControllerManagers {
        kube: kube_controller_manager(spec, allocates_node_cidrs)?,
        cloud: cloud_controller_manager(spec)?.map(|cloud| cloud.manager),
    })
}

/// The kube-controller-manager that kubeadm starts. kubeadm sets `--allocate-node-cidrs` if the Cluster has a Pod network. Fails
/// if its version or its configuration is unknown.
pub fn kube_controller_manager(
    spec: &ControlPlaneSpec<'_>,
    allocates_node_cidrs: bool,
) -> Result<Manager, Unknown> {
    let minor = spec.minor().ok_or(Unknown::NoVersion)?;
    let allocates = allocates_node_cidrs.to_string();
    // kubeadm, `controlplane/manifests.go`.
    let defaults = Flags::from_pairs([
        ("leader-elect", "true"),
        ("controllers", "*,bootstrapsigner,tokencleaner"),
        ("service-account-private-key-file", "/etc/kubernetes/pki/sa.key"),
        ("allocate-node-cidrs", allocates.as_str()),
    ]);
    let flags = defaults.followed_by(Flags::from_pairs(extra_args::controller_manager(spec).pairs()));
    if flags.configuration_path().is_none() {
        return Ok(Manager::new(Component::Kube, minor, flags, None));
    }
    let file = match source(spec) {
        Some((_, Source::File(_, file))) => inline_content(file),
        _ => None,
    };
    let file = file.ok_or(Unknown::Configuration(Component::Kube))?;
    Ok(Manager::new(Component::Kube, minor, flags, Some(&file)))
}

/// The cloud-controller-manager among the static Pods in `files`, if there is one.
pub fn cloud_controller_manager(spec: &ControlPlaneSpec<'_>) -> Result<Option<CloudStaticPod>, Unknown> {
    let pods = static_pods::find_cloud_static_pods(spec);
    let mut found = pods.readable.iter().filter_map(|StaticPod { index, manifest }| {
        let workload = Workload::find(manifest)?;
        Some((*index, workload))
    });
    let (first, second) = (found.next(), found.next());
    match (first, pods.first_unreadable) {
        // The text that cannot be read mentions a cloud-controller-manager.
        (_, Some(index)) => Err(Unknown::StaticPod(index)),
        _ if second.is_some() => Err(Unknown::SeveralClouds),
        (Some((index, workload)), None) => Ok(Some(CloudStaticPod {
            manager: cloud_of(spec, index, workload)?,
            index,
        })),
        // A Secret may contain a cloud-controller-manager. If a static Pod that can be read is one, the Secret contains another
        // program.
        (None, None) => pods
            .first_not_plain_text
            .map_or(Ok(None), |index| Err(Unknown::StaticPod(index))),
    }
}

fn cloud_of(spec: &ControlPlaneSpec<'_>, index: usize, workload: Workload<'_>) -> Result<Manager, Unknown> {
    let flags = workload.flags().ok_or(Unknown::StaticPod(index))?;
    let minor = workload.minor().ok_or(Unknown::NoCloudVersion)?;
    let Some(path) = flags.configuration_path() else {
        return Ok(Manager::new(Component::Cloud, minor, flags, None));
    };
    let text = match workload.file(path) {
        MountedFile::Host(path) => files(spec)
            .find(|(_, file)| file.path.as_deref() == Some(path.as_str()))
            .and_then(|(_, file)| inline_content(file)),
        MountedFile::ConfigMap { .. } | MountedFile::Unknown => None,
    };
    let text = text.ok_or(Unknown::Configuration(Component::Cloud))?;
    Ok(Manager::new(Component::Cloud, minor, flags, Some(&text)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        api::{KubeadmControlPlane, decode},
        testing::case::{Base, V1BETA2},
    };

    const OPENSTACK: &str = "openstack-cloud-controller-manager:v1.36.0";

    fn pod(image: &str, command: &Value) -> String {
        json!({"kind": "Pod", "spec": {"containers": [{"name": "main", "image": image, "command": command}]}})
            .to_string()
    }

    fn with_files(files: &Value) -> String {
        let mut object = Base::ControlPlane(V1BETA2).object();
        json_patch::merge(
            &mut object,
            &json!({"spec": {"kubeadmConfigSpec": {"files": files}}}),
        );
        object.to_string()
    }

    /// The index of the file with the cloud-controller-manager.
    fn found(files: &Value) -> Result<Option<usize>, Unknown> {
        let text = with_files(files);
        let control_plane: KubeadmControlPlane<'_> = decode(&text).unwrap();
        Ok(cloud_controller_manager(&control_plane.common_spec())?.map(|cloud| cloud.index))
    }

    #[test]
    fn a_static_pod_that_cannot_be_read_is_no_absent_cloud_controller_manager() {
        const PATH: &str = "/etc/kubernetes/manifests/ccm.yaml";
        let ccm = pod(
            OPENSTACK,
            &json!(["/bin/openstack-cloud-controller-manager", "--v=2"]),
        );
        let vip = json!({"path": "/etc/kubernetes/manifests/vip.yaml",
            "contentFrom": {"secret": {"name": "vip", "key": "vip.yaml"}}});
        let file = |content: &str| json!({"path": PATH, "content": content});
        let unknown = |index| Err(Unknown::StaticPod(index));
        for (case, files, expected) in [
            ("no files", json!([]), Ok(None)),
            ("a static Pod in plain text", json!([file(&ccm)]), Ok(Some(0))),
            ("another static Pod", json!([file("kind: Pod")]), Ok(None)),
            ("a Secret", json!([vip]), unknown(0)),
            ("a Secret beside it", json!([vip, file(&ccm)]), Ok(Some(1))),
            (
                "an encoded file",
                json!([{"path": PATH, "encoding": "base64", "content": "e30="}]),
                unknown(0),
            ),
            (
                "invalid YAML",
                json!([file("kind: Pod # cloud-controller-manager\nspec: {containers: [")]),
                unknown(0),
            ),
            (
                "invalid YAML of another program",
                json!([file("kind: Pod\nspec: {containers: [")]),
                Ok(None),
            ),
            (
                "a placeholder of a template",
                json!([file(&pod(
                    OPENSTACK,
                    &json!([
                        "/bin/openstack-cloud-controller-manager",
                        "--controllers={{ names }}"
                    ])
                ))]),
                unknown(0),
            ),
            (
                "a shell",
                json!([file(&pod(
                    OPENSTACK,
                    &json!(["sh", "-c", "/bin/openstack-cloud-controller-manager --v=2"])
                ))]),
                unknown(0),
            ),
            (
                "too long",
                json!([file(&format!("{ccm}{}", " ".repeat(70_000)))]),
                unknown(0),
            ),
            (
                "a version of its own",
                json!([file(&pod(
                    "hcloud-cloud-controller-manager:v1.20.0",
                    &json!(["/bin/hcloud-cloud-controller-manager"])
                ))]),
                Err(Unknown::NoCloudVersion),
            ),
            (
                "two of them",
                json!([file(&ccm), {"path": "/etc/kubernetes/manifests/second.yaml", "content": ccm}]),
                Err(Unknown::SeveralClouds),
            ),
            (
                "files that the kubelet does not read",
                json!([
                    {"path": "/etc/kubernetes/manifests/.ccm.yaml", "content": ccm},
                    {"path": "/etc/kubernetes/manifests/old/ccm.yaml", "content": ccm},
                    {"path": "/etc/ccm.yaml", "content": ccm},
                ]),
                Ok(None),
            ),
            (
                "another kind",
                json!([file(&ccm.replace("\"Pod\"", "\"Deployment\""))]),
                Ok(None),
            ),
        ] {
            assert_eq!(found(&files), expected, "{case}");
        }
    }
}
