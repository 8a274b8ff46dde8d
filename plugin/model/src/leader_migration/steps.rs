//! The steps of a migration: enable it, hand the controllers over in an upgrade, and end it.

use std::collections::BTreeMap;

use kcp_rules::leader_migration::{
    Assignment, CONTROLLERS, Component, Controller, Flags, Manager,
    cloud_provider::{LAST_IN_TREE, is_in_tree},
    flags::CONFIGURATION_FLAG,
};
use serde_json::{Value, json};

use super::step::MigrationStep;

/// The path of the configuration file, both on the host and in the Pod.
pub const CONFIGURATION_PATH: &str = "/etc/kubernetes/leader-migration.yaml";

/// The path of the manifest of a new static Pod of cloud-controller-manager.
pub const MANIFEST_PATH: &str = "/etc/kubernetes/manifests/cloud-controller-manager.yaml";

/// The volume with the configuration.
const VOLUME: &str = "leader-migration";

const ENABLE_FLAG: &str = "enable-leader-migration";

const CONTROLLERS_FLAG: &str = "controllers";

const GATES_FLAG: &str = "feature-gates";

/// A feature gate that must be false in 1.29 and 1.30 for an in-tree cloud provider. Later versions exit if
/// it is false (`pkg/features/kube_features.go`: locked from 1.31 on).
const LOCKED_GATE: &str = "DisableCloudProviders";

/// A static Pod of cloud-controller-manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manifest<'m> {
    /// The path of the manifest on the host.
    pub path: &'m str,
    /// The text of the manifest.
    pub content: &'m str,
}

/// Enables leader migration on kube-controller-manager, with this configuration.
pub(super) fn start(configuration: &str) -> MigrationStep {
    let volume = json!({"name": VOLUME, "hostPath": CONFIGURATION_PATH, "mountPath": CONFIGURATION_PATH, "readOnly": true, "pathType": "File"});
    MigrationStep {
        flags: flags([(ENABLE_FLAG, "true"), (CONFIGURATION_FLAG, CONFIGURATION_PATH)]),
        volumes: BTreeMap::from([(VOLUME.to_owned(), volume)]),
        files: BTreeMap::from([file(CONFIGURATION_PATH, configuration)]),
        ..MigrationStep::default()
    }
}

/// Upgrades to a version whose kube-controller-manager neither uses leader migration nor runs the migrated controllers. `kube` is
/// the kube-controller-manager before the upgrade, and `minor` the minor version of `version`.
///
/// The configuration stays in `files`, because a cloud-controller-manager on the Machine may use it.
pub(super) fn handover(
    kube: &Manager,
    version: &str,
    minor: u64,
    manifest: Option<Manifest<'_>>,
) -> MigrationStep {
    let mut flags =
        BTreeMap::from([ENABLE_FLAG, CONFIGURATION_FLAG].map(|flag| (flag.to_owned(), Vec::new())));
    // An in-tree cloud provider runs its controllers in kube-controller-manager.
    if is_in_tree(kube.flags.get("cloud-provider").unwrap_or_default()) {
        flags.insert("cloud-provider".to_owned(), vec!["external".to_owned()]);
    }
    if minor > LAST_IN_TREE && kube.flags.feature_gates().any(|name| name == LOCKED_GATE) {
        let gates = kube.flags.list(GATES_FLAG);
        let gates: Vec<&str> = gates.filter(|gate| !is_locked(gate)).collect();
        let value = (!gates.is_empty()).then(|| gates.join(","));
        flags.insert(GATES_FLAG.to_owned(), value.into_iter().collect());
    }
    let pairs = flags
        .iter()
        .map(|(name, values)| (name, values.last().cloned().unwrap_or_default()));
    let then = Manager::new(
        Component::Kube,
        minor,
        kube.flags.clone().followed_by(Flags::from_pairs(pairs)),
        None,
    );
    let moved: Vec<&Controller> = CONTROLLERS
        .iter()
        .filter(|controller| kube.assignment(controller) == Assignment::Migrated)
        .filter(|controller| then.assignment(controller) != Assignment::Absent)
        .collect();
    if !moved.is_empty() {
        let value = disable_controllers(&kube.flags, &moved, minor);
        flags.insert(CONTROLLERS_FLAG.to_owned(), vec![value]);
    }
    MigrationStep {
        version: Some(version.to_owned()),
        flags,
        volumes: BTreeMap::from([(VOLUME.to_owned(), Value::Null)]),
        files: static_pod(manifest),
    }
}

/// Removes the configuration, after the handover.
pub(super) fn finish(manifest: Option<Manifest<'_>>) -> MigrationStep {
    let mut files = static_pod(manifest);
    files.insert(CONFIGURATION_PATH.to_owned(), Value::Null);
    MigrationStep {
        files,
        ..MigrationStep::default()
    }
}

/// The value of `--controllers` that disables controllers of kube-controller-manager.
fn disable_controllers(flags: &Flags, controllers: &[&Controller], minor: u64) -> String {
    let is_named = |item: &str| {
        let name = item.strip_prefix('-').unwrap_or(item);
        controllers
            .iter()
            .any(|controller| [controller.canonical, controller.short].contains(&name))
    };
    let flags = flags
        .list(CONTROLLERS_FLAG)
        .filter(|item| !is_named(item))
        .map(str::to_owned);
    let disabled = controllers
        .iter()
        .map(|controller| format!("-{}", controller.name_at(minor)));
    flags.chain(disabled).collect::<Vec<_>>().join(",")
}

fn is_locked(gate: &str) -> bool {
    gate.split('=')
        .next()
        .is_some_and(|name| name.trim() == LOCKED_GATE)
}

fn flags<const N: usize>(flags: [(&str, &str); N]) -> BTreeMap<String, Vec<String>> {
    BTreeMap::from(flags.map(|(name, value)| (name.to_owned(), vec![value.to_owned()])))
}

fn static_pod(manifest: Option<Manifest<'_>>) -> BTreeMap<String, Value> {
    let entries = manifest.map(|manifest| {
        let (path, mut entry) = file(manifest.path, manifest.content);
        // The manifest may contain credentials, and only the kubelet reads it.
        if let Some(entry) = entry.as_object_mut() {
            entry.insert("permissions".to_owned(), json!("0600"));
        }
        (path, entry)
    });
    entries.into_iter().collect()
}

fn file(path: &str, content: &str) -> (String, Value) {
    let entry = json!({"path": path, "owner": "root:root", "permissions": "0644", "content": content});
    (path.to_owned(), entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kcp_rules::{
        Change, Configuration,
        api::{KubeadmControlPlane, decode},
        judge,
        leader_migration::generate::{Request, configuration},
        topics::controller_managers::kube_controller_manager,
    };

    /// What the rules say about a change from `old`, or about a new control plane.
    fn judged(old: Option<&Value>, new: &Value) -> Vec<(&'static str, String)> {
        let (old, new) = (old.map(ToString::to_string), new.to_string());
        let old: Option<KubeadmControlPlane<'_>> = old.as_deref().map(|old| decode(old).unwrap());
        let new: KubeadmControlPlane<'_> = decode(&new).unwrap();
        let change = match &old {
            Some(old) => Change::update(old, &new),
            None => Change::create(&new),
        };
        let judgement = judge(&change, &Configuration::default());
        let findings = judgement.findings.iter();
        findings
            .map(|finding| (finding.rule.id, finding.message().to_string()))
            .collect()
    }

    fn control_plane(version: &str, flags: &Value) -> Value {
        json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
            "kind": "KubeadmControlPlane",
            "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"replicas": 3, "version": version,
                "machineTemplate": {"spec": {"infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io",
                    "kind": "DockerMachineTemplate", "name": "edge"}}},
                "kubeadmConfigSpec": {
                    "clusterConfiguration": {"controllerManager": {"extraArgs": flags}},
                    "initConfiguration": {}, "joinConfiguration": {},
                    "files": [{"path": "/etc/other", "content": "x"}]}},
        })
    }

    fn manager(object: &Value) -> Manager {
        let text = object.to_string();
        let object: KubeadmControlPlane<'_> = decode(&text).unwrap();
        kube_controller_manager(&object.common_spec(), true).unwrap()
    }

    fn extra_args(object: &Value) -> &Value {
        &object["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["controllerManager"]["extraArgs"]
    }

    const POD: &str = "{kind: Pod, spec: {containers: [{name: ccm, image: openstack-cloud-controller-manager:v1.36.0, args: [\
        --allocate-node-cidrs=true, \"--controllers=*,node-ipam-controller\", --enable-leader-migration, \
        --leader-migration-config=/etc/kubernetes/leader-migration.yaml], volumeMounts: [{name: m, mountPath: \
        /etc/kubernetes}]}], volumes: [{name: m, hostPath: {path: /etc/kubernetes}}]}}";

    /// A whole migration of Node IPAM: what the rules accept, and what each step leaves behind.
    #[test]
    fn our_rules_accept_every_step_and_its_inverse() {
        let before = control_plane("v1.35.4", &json!([{"name": "profiling", "value": "false"}]));
        let text = configuration(&Request {
            from: 35,
            to: 36,
            migrates_node_ipam: true,
            leader_name: "m".to_owned(),
        });
        let start = start(&text.unwrap());
        let enabled = start.taken(&before);
        assert_eq!(
            extra_args(&enabled),
            &json!([
                {"name": "profiling", "value": "false"},
                {"name": "enable-leader-migration", "value": "true"},
                {"name": "leader-migration-config", "value": CONFIGURATION_PATH},
            ])
        );
        assert_eq!(judged(None, &enabled), []);
        assert_eq!(judged(Some(&before), &enabled), []);
        assert_eq!(start.inverse(&before).taken(&enabled), before);

        let manifest = Manifest {
            path: MANIFEST_PATH,
            content: POD,
        };
        let handover = handover(&manager(&enabled), "v1.36.0", 36, Some(manifest));
        let handed_over = handover.taken(&enabled);
        assert_eq!(
            extra_args(&handed_over),
            &json!([
                {"name": "profiling", "value": "false"},
                {"name": "controllers", "value": "*,bootstrapsigner,tokencleaner,-node-ipam-controller"},
            ])
        );
        assert_eq!(judged(Some(&enabled), &handed_over), []);
        assert_eq!(manager(&handed_over).startup_errors, []);
        let undone = handover.inverse(&enabled).taken(&handed_over);
        assert_eq!(undone, enabled);

        let plain = POD.replace("--enable-leader-migration, ", "");
        let finish = finish(Some(Manifest {
            content: &plain,
            ..manifest
        }));
        let finished = finish.taken(&handed_over);
        let files = finished["spec"]["kubeadmConfigSpec"]["files"].as_array().unwrap();
        let paths: Vec<_> = files.iter().map(|file| file["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/etc/other", MANIFEST_PATH]);
        assert_eq!(
            judged(Some(&handed_over), &finished)
                .iter()
                .filter(|(rule, _)| *rule != "leader-migration-ignored")
                .count(),
            0
        );
    }

    #[test]
    fn kube_controller_manager_gives_up_what_it_migrates() {
        for (version, to, flags, expected) in [
            // kubeadm's own --controllers stay.
            (
                "v1.35.4",
                36,
                "",
                "controllers=*,bootstrapsigner,tokencleaner,-node-ipam-controller",
            ),
            (
                "v1.35.4",
                36,
                "controllers=*,nodeipam",
                "controllers=*,-node-ipam-controller",
            ),
            (
                "v1.35.4",
                36,
                "controllers=*,-nodeipam",
                "controllers=*,-nodeipam",
            ),
            (
                "v1.29.0",
                30,
                "cloud-provider=aws",
                "cloud-provider=external controllers=*,bootstrapsigner,tokencleaner,-node-ipam-controller",
            ),
            (
                "v1.30.14",
                31,
                "cloud-provider=gce feature-gates=DisableCloudProviders=false",
                "cloud-provider=external controllers=*,bootstrapsigner,tokencleaner,-node-ipam-controller",
            ),
            (
                "v1.30.14",
                31,
                "cloud-provider=gce feature-gates=A=true,DisableCloudProviders=false,B=false",
                "cloud-provider=external controllers=*,bootstrapsigner,tokencleaner,-node-ipam-controller \
                 feature-gates=A=true,B=false",
            ),
            (
                "v1.26.0",
                27,
                "",
                "controllers=*,bootstrapsigner,tokencleaner,-nodeipam",
            ),
        ] {
            let pairs = flags.split_whitespace().filter_map(|flag| flag.split_once('='));
            let list: Vec<Value> = pairs
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect();
            let text = configuration(&Request {
                from: to - 1,
                to,
                migrates_node_ipam: true,
                leader_name: "m".to_owned(),
            });
            let enabled = start(&text.unwrap()).taken(&control_plane(version, &json!(list)));
            let step = handover(&manager(&enabled), &format!("v1.{to}.0"), to, None);
            let after = step.taken(&enabled);
            let mut found: Vec<String> = extra_args(&after)
                .as_array()
                .into_iter()
                .flatten()
                .map(|flag| {
                    let text = |field: &str| flag[field].as_str().unwrap();
                    format!("{}={}", text("name"), text("value"))
                })
                .collect();
            found.sort();
            assert_eq!(found.join(" "), expected, "{version} {flags}");
        }
    }
}
