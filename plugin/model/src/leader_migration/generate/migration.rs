//! How far a migration has come, according to the control plane and its Machines.

use kcp_api::Object as _;
use kcp_rules::{
    api::{KubeadmControlPlane, decode},
    leader_migration::{ControllerManagerChange, ControllerManagers, Manager},
    topics::controller_managers::{self, CloudStaticPod, Unknown},
};
use serde_json::Value;

use super::{Facts, none, refused};
use crate::leader_migration::{
    problem::{MigrationProblem, problems},
    steps::CONFIGURATION_PATH,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
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
pub(super) struct Migration<'f> {
    pub(super) facts: Facts<'f>,
    pub(super) phase: Phase,
    pub(super) managers: Managers,
    /// The name of the control plane with its namespace, for commands.
    pub(super) name: String,
    pub(super) version: &'f str,
}

/// The controller managers of a control plane, according to its spec.
#[derive(Debug)]
pub(super) struct Managers {
    pub(super) kube: Manager,
    /// The static Pod of cloud-controller-manager in `files`, or why it is unknown whether there is one.
    pub(super) cloud: Result<Option<CloudStaticPod>, Unknown>,
    /// The path of that static Pod.
    pub(super) cloud_path: Option<String>,
}

impl<'f> Migration<'f> {
    pub(super) fn new(facts: Facts<'f>) -> Result<Self, Vec<MigrationProblem>> {
        let managers = Managers::of(facts.control_plane)?;
        let name = text(facts.control_plane, "/metadata/name");
        let namespace = text(facts.control_plane, "/metadata/namespace");
        let mut migration = Self {
            facts,
            phase: Phase::Off,
            managers,
            name: match namespace {
                "" => name.to_owned(),
                namespace => format!("{name} -n {namespace}"),
            },
            version: text(facts.control_plane, "/spec/version"),
        };
        migration.phase = if migration.managers.kube.flags.is_leader_migration_enabled() {
            Phase::Enabled
        } else if configuration(facts.control_plane).is_none() {
            Phase::Off
        } else if migration.machines_behind().is_empty() {
            Phase::Settling
        } else {
            Phase::Upgrading
        };
        Ok(migration)
    }

    /// The Machines that have a different version than the control plane, one line each.
    pub(super) fn machines_behind(&self) -> Vec<String> {
        let version = self.version;
        let machines = self.facts.machines.iter();
        machines
            .filter(|machine| machine.spec.version.as_deref() != Some(version))
            .map(|machine| {
                let found = machine.spec.version.as_deref().unwrap_or("no version");
                format!("Machine {} has {found}, not yet {version}", machine.name())
            })
            .collect()
    }

    /// The refusal of a step that must come after the end of this migration.
    pub(super) fn unfinished(&self) -> Vec<MigrationProblem> {
        refused(
            format!(
                "the leader migration for the upgrade to {} is not finished",
                self.version
            ),
            format!(
                "finish it with: kubectl kcp leader-migration generate {} --step finish",
                self.name
            ),
        )
    }

    pub(super) fn watch_the_rollout(&self) -> String {
        format!("wait for the rollout: kubectl kcp rollout status {}", self.name)
    }

    pub(super) fn see_what_runs(&self) -> String {
        format!(
            "to see what runs: kubectl kcp leader-migration status {}",
            self.name
        )
    }

    /// What `leader-migration check` says about a change to this control plane, while these cloud-controller-managers run
    /// before and after the change.
    pub(super) fn check(
        &self,
        after: &Value,
        clouds: [Option<Manager>; 2],
    ) -> Result<(), Vec<MigrationProblem>> {
        let [before, then] = clouds;
        let change = ControllerManagerChange {
            before: ControllerManagers {
                kube: self.managers.kube.clone(),
                cloud: before,
            },
            after: ControllerManagers {
                kube: Managers::of(after)?.kube,
                cloud: then,
            },
        };
        let harmful = problems(&change, &[]).into_iter();
        none(harmful.filter(|problem| problem.is_harmful).collect())
    }
}

impl Managers {
    /// The controller managers of a control plane. Assumes a Pod network, which almost every Cluster has, so that kubeadm lets
    /// kube-controller-manager allocate the addresses of Nodes.
    pub(super) fn of(control_plane: &Value) -> Result<Self, Vec<MigrationProblem>> {
        let unknown = |why: String| refused(why, "correct the manifest of the control plane");
        let text = control_plane.to_string();
        let decoded: KubeadmControlPlane<'_> = decode(&text).map_err(|error| unknown(error.to_string()))?;
        let spec = decoded.common_spec();
        let cloud = controller_managers::cloud_controller_manager(&spec);
        let index = cloud.as_ref().ok().and_then(|cloud| Some(cloud.as_ref()?.index));
        let entry = index.and_then(|index| files(control_plane).get(index));
        let cloud_path = entry.and_then(|entry| Some(entry.get("path")?.as_str()?.to_owned()));
        let kube = controller_managers::kube_controller_manager(&spec, true);
        Ok(Self {
            kube: kube.map_err(|why| unknown(why.to_string()))?,
            cloud,
            cloud_path,
        })
    }

    /// The cloud-controller-manager of the static Pod.
    pub(super) fn static_cloud(&self) -> Result<Option<&Manager>, String> {
        let cloud = self.cloud.as_ref().map_err(ToString::to_string)?;
        Ok(cloud.as_ref().map(|cloud| &cloud.manager))
    }
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn files(control_plane: &Value) -> &[Value] {
    let files = control_plane.pointer("/spec/kubeadmConfigSpec/files");
    files
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The text of the configuration that the step `start` installs.
pub(super) fn configuration(control_plane: &Value) -> Option<&str> {
    let mut files = files(control_plane).iter();
    let file = files.find(|file| text(file, "/path") == CONFIGURATION_PATH)?;
    Some(text(file, "/content"))
}
