//! Reads the manifests of control planes and of cloud-controller-managers.

use std::path::Path;

use anyhow::{Context as _, bail};
use kcp_api::kind::KUBEADM_CONTROL_PLANE;
use kcp_rules::leader_migration::{
    Component, Manager,
    workload::{MountedFile, Workload},
};
use serde_json::Value;

use crate::{commands::lint::document::parse, file};

/// Reads all objects of a file. Replaces each List by its items.
pub(super) fn read_objects(path: &Path) -> anyhow::Result<Vec<Value>> {
    parse_objects(path, &file::read(path)?)
}

/// The objects in the content of a file, with the items of lists.
pub(super) fn parse_objects(path: &Path, content: &[u8]) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in parse(content) {
        let object = document
            .with_context(|| format!("cannot parse {}", path.display()))?
            .to_json();
        match object.get("items").and_then(Value::as_array) {
            Some(items) => objects.extend(items.iter().cloned()),
            None => objects.push(object),
        }
    }
    Ok(objects)
}

/// Reads the only KubeadmControlPlane of a file.
pub(super) fn read_control_plane(path: &Path) -> anyhow::Result<Value> {
    let mut found = read_objects(path)?
        .into_iter()
        .filter(|object| text(object, "/kind") == KUBEADM_CONTROL_PLANE.kind);
    match (found.next(), found.next()) {
        (Some(object), None) => Ok(object),
        (None, _) => bail!("{} contains no KubeadmControlPlane", path.display()),
        (Some(_), Some(_)) => bail!("{} contains more than one KubeadmControlPlane", path.display()),
    }
}

/// Reads the cloud-controller-manager of a file. Its configuration is in a `ConfigMap` of the same file, or in the `files`
/// of the control plane. `minor` is the minor version of its Kubernetes libraries; if `None`, the tag of its image must
/// contain the version.
pub(super) fn read_cloud_controller_manager(
    path: &Path,
    control_plane: &Value,
    minor: Option<u64>,
) -> anyhow::Result<Manager> {
    find_cloud_controller_manager(&read_objects(path)?, control_plane, minor)
        .with_context(|| format!("cannot use {}", path.display()))
}

/// Finds the cloud-controller-manager among these objects. Its configuration is in a `ConfigMap` among them, or in the
/// `files` of the control plane.
pub(super) fn find_cloud_controller_manager(
    objects: &[Value],
    control_plane: &Value,
    minor: Option<u64>,
) -> anyhow::Result<Manager> {
    let Some(workload) = objects.iter().find_map(Workload::find) else {
        bail!("no Pod, Deployment or DaemonSet runs cloud-controller-manager");
    };
    let Some(minor) = minor.or_else(|| workload.minor()) else {
        bail!(
            "the image tag of cloud-controller-manager does not show its Kubernetes version; give the version of its \
             Kubernetes libraries with --ccm-version or --old-ccm-version"
        );
    };
    let Some(flags) = workload.flags() else {
        bail!(
            "the manifest does not show the flags of cloud-controller-manager; write the flags in command or args, \
             without a shell, environment variables or placeholders"
        );
    };
    let text = match flags.configuration_path() {
        None => None,
        Some(path) => Some(configuration(objects, control_plane, workload, path)?),
    };
    Ok(Manager::new(Component::Cloud, minor, flags, text.as_deref()))
}

fn configuration(
    objects: &[Value],
    control_plane: &Value,
    workload: Workload<'_>,
    path: &str,
) -> anyhow::Result<String> {
    let (name, key) = match workload.file(path) {
        MountedFile::ConfigMap { name, key } => (name, key),
        MountedFile::Host(host) => match inline_file(control_plane, &host) {
            Some(content) => return Ok(content.to_owned()),
            None => bail!(
                "cloud-controller-manager reads its leader migration configuration from the file {host} on the Node, \
                 but spec.kubeadmConfigSpec.files does not contain that file as plain text; put the configuration in \
                 a ConfigMap"
            ),
        },
        MountedFile::Unknown => {
            bail!("the leader migration configuration {path} is not in a ConfigMap; put it in a ConfigMap")
        }
    };
    let data = objects
        .iter()
        .filter(|object| text(object, "/kind") == "ConfigMap" && text(object, "/metadata/name") == name)
        .find_map(|object| object.get("data")?.get(&key)?.as_str());
    match data {
        Some(data) => Ok(data.to_owned()),
        None => {
            bail!(
                "found no ConfigMap {name} with the key {key}, which must contain the leader migration \
                configuration; add the ConfigMap"
            )
        }
    }
}

/// The content of a file in the control plane's `files`; `None` if it is encoded or comes from a Secret.
fn inline_file<'v>(control_plane: &'v Value, path: &str) -> Option<&'v str> {
    let files = control_plane
        .pointer("/spec/kubeadmConfigSpec/files")?
        .as_array()?;
    let file = files.iter().find(|file| text(file, "/path") == path)?;
    let content = text(file, "/content");
    (text(file, "/encoding").is_empty() && !content.is_empty()).then_some(content)
}

pub(super) fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::find_cloud_controller_manager;

    #[test]
    fn the_configuration_comes_from_a_config_map_of_the_file() {
        let workload = json!({"kind": "DaemonSet", "spec": {"template": {"spec": {
            "containers": [{"name": "cloud-controller-manager", "image": "ccm:v1.36.0",
                "args": ["--enable-leader-migration", "--leader-migration-config=/m/leader.yaml"],
                "volumeMounts": [{"name": "m", "mountPath": "/m"}]}],
            "volumes": [{"name": "m", "configMap": {"name": "migration"}}]}}}});
        let config_map = json!({"kind": "ConfigMap", "metadata": {"name": "migration"}, "data": {"leader.yaml":
            "{apiVersion: controllermanager.config.k8s.io/v1, kind: LeaderMigrationConfiguration, leaderName: m}"}});
        let found =
            find_cloud_controller_manager(&[config_map, workload.clone()], &json!({}), Some(36)).unwrap();
        assert_eq!(found.configuration.unwrap().leader_name, "m");
        let error = |objects: &[_]| {
            find_cloud_controller_manager(objects, &json!({}), Some(36))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error(&[workload]),
            "found no ConfigMap migration with the key leader.yaml, which must contain the leader migration \
             configuration; add the ConfigMap"
        );
        assert_eq!(
            error(&[]),
            "no Pod, Deployment or DaemonSet runs cloud-controller-manager"
        );
        let without_version = json!({"kind": "Pod", "spec": {"containers": [
            {"name": "cloud-controller-manager", "image": "ccm:v1.36.0"}]}});
        assert_eq!(
            find_cloud_controller_manager(&[without_version], &json!({}), None)
                .unwrap_err()
                .to_string(),
            "the image tag of cloud-controller-manager does not show its Kubernetes version; give the version of its \
             Kubernetes libraries with --ccm-version or --old-ccm-version"
        );
    }

    #[test]
    fn the_configuration_comes_from_a_file_of_the_control_plane() {
        let workload = json!({"kind": "Pod", "spec": {
            "containers": [{"name": "cloud-controller-manager", "image": "ccm:v1.36.0",
                "args": ["--enable-leader-migration", "--leader-migration-config=/m/leader.yaml"],
                "volumeMounts": [{"name": "m", "mountPath": "/m"}]}],
            "volumes": [{"name": "m", "hostPath": {"path": "/etc/m"}}]}});
        let text = "{apiVersion: controllermanager.config.k8s.io/v1, kind: LeaderMigrationConfiguration, leaderName: m}";
        let object = |file| json!({"spec": {"kubeadmConfigSpec": {"files": [file]}}});
        let plain = object(json!({"path": "/etc/m/leader.yaml", "content": text}));
        let found = find_cloud_controller_manager(std::slice::from_ref(&workload), &plain, Some(36)).unwrap();
        assert_eq!(found.configuration.unwrap().leader_name, "m");
        let encoded = object(json!({"path": "/etc/m/leader.yaml", "content": "YQ==", "encoding": "base64"}));
        assert_eq!(
            find_cloud_controller_manager(&[workload], &encoded, Some(36))
                .unwrap_err()
                .to_string(),
            "cloud-controller-manager reads its leader migration configuration from the file /etc/m/leader.yaml on \
             the Node, but spec.kubeadmConfigSpec.files does not contain that file as plain text; put the \
             configuration in a ConfigMap"
        );
    }
}
