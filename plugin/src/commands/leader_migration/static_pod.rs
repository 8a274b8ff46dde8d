//! The static Pod of cloud-controller-manager that a step installs.

use anyhow::{Context as _, bail};
use kcp_rules::leader_migration::Manager;
use serde_json::Value;

use crate::{
    commands::leader_migration::{input, step_arguments::CloudManifestArguments},
    file,
};

/// The manifest of a static Pod.
pub(super) struct StaticPod {
    pub(super) content: String,
    pod: Value,
    version: Option<u64>,
}

impl StaticPod {
    /// Reads the manifest; `None` if the flag is not set.
    pub(super) fn read(arguments: &CloudManifestArguments) -> anyhow::Result<Option<Self>> {
        let Some(path) = &arguments.ccm_manifest else {
            return Ok(None);
        };
        let shown = path.display();
        let content = file::read(path)?;
        let mut objects = input::parse_objects(path, &content)?.into_iter();
        let pod = match (objects.next(), objects.next()) {
            (Some(pod), None) if input::text(&pod, "/kind") == "Pod" => pod,
            _ => bail!(
                "{shown} must contain one Pod and nothing else, because the kubelet starts the file as a static Pod"
            ),
        };
        Ok(Some(Self {
            content: String::from_utf8(content).with_context(|| format!("cannot read {shown}"))?,
            pod,
            version: arguments.ccm_version,
        }))
    }

    /// The cloud-controller-manager that the Pod starts. Its leader migration configuration may be in the `files` of
    /// the control plane.
    pub(super) fn manager(&self, control_plane: &Value) -> anyhow::Result<Manager> {
        let objects = std::slice::from_ref(&self.pod);
        input::find_cloud_controller_manager(objects, control_plane, self.version)
            .context("cannot use the manifest that --ccm-manifest names")
    }
}
