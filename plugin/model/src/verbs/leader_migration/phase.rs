//! How far a migration has come, according to the control plane and its Machines.

use kcp_api::Object as _;
use kcp_rules::{
    api::{DecodeError, KubeadmControlPlane, decode},
    leader_migration::{Manager, steps::CONFIGURATION_PATH},
    topics::controller_managers::{self, CloudStaticPod, Unknown},
};
use serde_json::Value;

use crate::snapshot::change::ChangeSnapshot;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The control plane does not use leader migration: before the first step, or after the last one.
    Off,
    /// kube-controller-manager uses leader migration.
    Enabled,
    /// The upgrade has begun, and not every Machine has the new version.
    Upgrading,
    /// Every Machine has the new version, and the control plane still has the configuration.
    Settling,
}

/// The migration of a control plane.
#[derive(Debug)]
pub struct Migration {
    pub phase: Phase,
    /// The control plane.
    pub control_plane: Value,
    pub managers: Managers,
}

/// The controller managers of a control plane, according to its spec.
#[derive(Debug)]
pub struct Managers {
    pub kube: Manager,
    /// The static Pod of cloud-controller-manager in `files`, or why it is unknown whether there is one.
    pub cloud: Result<Option<CloudStaticPod>, Unknown>,
    /// The path of that static Pod.
    pub cloud_path: Option<String>,
}

impl Migration {
    /// Reads a migration. The inner error says why the spec does not show its phase.
    pub fn from_snapshot(snapshot: &ChangeSnapshot) -> Result<Result<Self, Unknown>, DecodeError> {
        let object: Value = decode(&snapshot.json)?;
        Ok(Managers::from_control_plane(&object)?.map(|managers| Self {
            phase: phase(snapshot, &object, &managers.kube),
            control_plane: object,
            managers,
        }))
    }

    /// The Machines that have a different version than the control plane, one line each.
    pub fn machines_behind(snapshot: &ChangeSnapshot) -> Vec<String> {
        let version = snapshot.control_plane().spec.version();
        let machines = snapshot.observed.machines.iter();
        machines
            .filter(|machine| machine.spec.version.as_deref() != Some(version))
            .map(|machine| {
                let found = machine.spec.version.as_deref().unwrap_or("no version");
                format!("Machine {} has {found}, not yet {version}", machine.name())
            })
            .collect()
    }
}

impl Managers {
    /// The controller managers of a control plane. Almost every Cluster has a Pod network, so kubeadm lets
    /// kube-controller-manager allocate the addresses of Nodes.
    pub fn from_control_plane(control_plane: &Value) -> Result<Result<Self, Unknown>, DecodeError> {
        let text = control_plane.to_string();
        let decoded: KubeadmControlPlane<'_> = decode(&text)?;
        let spec = decoded.common_spec();
        let cloud = controller_managers::cloud_controller_manager(&spec);
        let index = cloud.as_ref().ok().and_then(|cloud| Some(cloud.as_ref()?.index));
        let entry = index.and_then(|index| files(control_plane).get(index));
        let cloud_path = entry.and_then(|entry| Some(entry.get("path")?.as_str()?.to_owned()));
        Ok(
            controller_managers::kube_controller_manager(&spec, true).map(|kube| Self {
                kube,
                cloud,
                cloud_path,
            }),
        )
    }
}

fn files(control_plane: &Value) -> &[Value] {
    let files = control_plane.pointer("/spec/kubeadmConfigSpec/files");
    files
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn phase(snapshot: &ChangeSnapshot, object: &Value, kube: &Manager) -> Phase {
    let has_configuration = files(object)
        .iter()
        .any(|file| file.get("path").and_then(Value::as_str) == Some(CONFIGURATION_PATH));
    if kube.flags.is_leader_migration_enabled() {
        Phase::Enabled
    } else if !has_configuration {
        Phase::Off
    } else if Migration::machines_behind(snapshot).is_empty() {
        Phase::Settling
    } else {
        Phase::Upgrading
    }
}

/// The text of the configuration that `start` installed.
pub fn configuration(control_plane: &Value) -> Option<&str> {
    let mut files = files(control_plane).iter();
    let file = files.find(|file| file.get("path").and_then(Value::as_str) == Some(CONFIGURATION_PATH))?;
    file.get("content")?.as_str()
}
