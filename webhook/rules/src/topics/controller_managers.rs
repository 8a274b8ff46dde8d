//! The controller managers of a control plane, as [`crate::leader_migration`] models them.

use serde_json::Value;

use super::{
    extra_args,
    files::files,
    leader_migration::{Source, inline_content, source},
};
use crate::{
    api::ControlPlaneSpec,
    leader_migration::{
        Component, Flags, Manager, Side,
        workload::{MountedFile, Workload},
    },
};

/// Why a controller manager cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// A template has no version.
    #[error("the control plane has no Kubernetes version")]
    NoVersion,
    /// The image of cloud-controller-manager has no tag such as `v1.36.0`.
    #[error("the image of cloud-controller-manager has no tag with a Kubernetes version, such as v1.36.0")]
    NoCloudVersion,
    /// The configuration is not inline text in `files`.
    #[error("the leader migration configuration of {0} is not plain text in spec.kubeadmConfigSpec.files")]
    Configuration(Component),
}

/// Where kubelets read static Pods on Machines of kubeadm.
const STATIC_PODS: &str = "/etc/kubernetes/manifests/";

/// The largest number of events in the YAML of a static Pod.
const MAX_EVENTS: usize = 50_000;

/// The controller managers of a control plane: kube-controller-manager, and a cloud-controller-manager among the static Pods
/// in `files`.
///
/// # Errors
/// One of them cannot be determined.
pub fn side(spec: &ControlPlaneSpec<'_>, allocates_node_cidrs: bool) -> Result<Side, Unknown> {
    Ok(Side {
        kube: kube(spec, allocates_node_cidrs)?,
        cloud: cloud(spec)?,
    })
}

/// The kube-controller-manager that kubeadm starts. kubeadm sets `--allocate-node-cidrs` if the Cluster has a Pod network.
///
/// # Errors
/// Its version or its configuration is unknown.
pub fn kube(spec: &ControlPlaneSpec<'_>, allocates_node_cidrs: bool) -> Result<Manager, Unknown> {
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
///
/// # Errors
/// Its version or its configuration is unknown.
pub fn cloud(spec: &ControlPlaneSpec<'_>) -> Result<Option<Manager>, Unknown> {
    let manifests = files(spec)
        .filter(|(_, file)| {
            file.path
                .as_deref()
                .is_some_and(|path| path.starts_with(STATIC_PODS))
        })
        .filter_map(|(_, file)| yaml(&inline_content(file)?));
    for manifest in manifests {
        if let Some(workload) = Workload::find(&manifest) {
            return cloud_of(spec, workload).map(Some);
        }
    }
    Ok(None)
}

fn cloud_of(spec: &ControlPlaneSpec<'_>, workload: Workload<'_>) -> Result<Manager, Unknown> {
    let flags = workload.flags();
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

fn yaml(text: &str) -> Option<Value> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: 64, max_events: MAX_EVENTS },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_EVENTS },
        with_snippet: false,
    };
    let mut bytes = text.as_bytes();
    serde_saphyr::read_with_options(&mut bytes, options).next()?.ok()
}
