//! Decides the effect of a change to each field of a control plane.

use kcp_api::Reference;
use serde::Serialize;
use serde_json::Value;

use crate::merge_patch::differences;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// The change replaces Machines.
    Rollout,
    /// The change creates or deletes Machines.
    Scale,
    /// The change replaces the first Machine, unless the configuration of the first Machine equals the
    /// configuration of a joining Machine.
    FirstMachine,
    /// The change applies to new Machines only.
    NextMachine,
    /// The change updates Machines and their objects in place.
    InPlace,
    /// The change updates the workload cluster in place.
    WorkloadCluster,
    /// The change affects only the controller's behavior.
    Controller,
    Nothing,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The path of the changed field, such as `spec.a.b[2].c`.
    pub field: String,
    pub effect: Effect,
    /// The new infrastructure template, such as `DockerMachineTemplate/t2`, if the field belongs to the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

/// The effects by the prefix of a field's path, for v1beta1 and v1beta2. The longest matching prefix applies.
const EFFECTS: &[(Effect, &[&str])] = &[
    (
        Effect::Controller,
        &[
            "metadata.annotations",
            "spec.remediation",
            "spec.remediationStrategy",
            "spec.rollout.strategy",
            "spec.rolloutStrategy",
        ],
    ),
    (
        Effect::Nothing,
        &[
            "metadata.labels",
            "spec.kubeadmConfigSpec.clusterConfiguration.clusterName",
            "spec.kubeadmConfigSpec.clusterConfiguration.controlPlaneEndpoint",
            "spec.kubeadmConfigSpec.clusterConfiguration.kubernetesVersion",
            "spec.kubeadmConfigSpec.clusterConfiguration.networking",
            "spec.kubeadmConfigSpec.useExperimentalRetryJoin",
        ],
    ),
    (
        Effect::Rollout,
        &[
            "spec.kubeadmConfigSpec",
            "spec.machineTemplate.infrastructureRef",
            "spec.machineTemplate.spec.infrastructureRef",
            "spec.rollout.after",
            "spec.rollout.before",
            "spec.rolloutAfter",
            "spec.rolloutBefore",
            "spec.version",
        ],
    ),
    (
        Effect::NextMachine,
        &[
            "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.timeoutForControlPlane",
            "spec.kubeadmConfigSpec.initConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
            "spec.kubeadmConfigSpec.joinConfiguration.discovery",
            "spec.kubeadmConfigSpec.joinConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
            "spec.machineNaming",
            "spec.machineNamingStrategy",
        ],
    ),
    (
        Effect::WorkloadCluster,
        &["spec.kubeadmConfigSpec.clusterConfiguration.dns"],
    ),
    (
        Effect::FirstMachine,
        &["spec.kubeadmConfigSpec.initConfiguration"],
    ),
    (
        Effect::InPlace,
        &[
            "spec.machineTemplate.metadata",
            "spec.machineTemplate.nodeDeletionTimeout",
            "spec.machineTemplate.nodeDrainTimeout",
            "spec.machineTemplate.nodeVolumeDetachTimeout",
            "spec.machineTemplate.readinessGates",
            "spec.machineTemplate.spec.deletion",
            "spec.machineTemplate.spec.readinessGates",
            "spec.machineTemplate.spec.taints",
            "spec.machineTemplate.taints",
        ],
    ),
    (Effect::Scale, &["spec.replicas"]),
];

/// The fields in which an old and a new state of a control plane differ; both have the same API version. If
/// `same_template` is true, changes inside the template reference, such as a change of its namespace, have no
/// effect.
pub fn changes(old: &Value, new: &Value, same_template: bool) -> Vec<Change> {
    differences(&user_fields(old), &user_fields(new))
        .into_iter()
        .map(|field| Change {
            effect: match effect(&field) {
                Effect::Rollout if same_template && field.contains(".infrastructureRef") => Effect::Nothing,
                effect => effect,
            },
            field,
            template: None,
        })
        .collect()
}

/// The fields in which a new infrastructure template differs from the current one. New Machines are cloned from the new
/// template.
pub fn template_changes(current: &Value, new: &Value, template: &Reference) -> Vec<Change> {
    let spec = |object: &Value| serde_json::json!({"spec": object.get("spec")});
    differences(&spec(current), &spec(new))
        .into_iter()
        .map(|field| Change {
            field,
            effect: Effect::Rollout,
            template: Some(format!("{}/{}", template.kind, template.name)),
        })
        .collect()
}

fn user_fields(object: &Value) -> Value {
    let metadata = |key: &str| object.pointer(&format!("/metadata/{key}")).cloned();
    serde_json::json!({
        "metadata": {"annotations": metadata("annotations"), "labels": metadata("labels")},
        "spec": object.get("spec"),
    })
}

fn effect(field: &str) -> Effect {
    let is_within = |prefix: &str| {
        let rest = field.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let prefixes = EFFECTS
        .iter()
        .flat_map(|(effect, prefixes)| prefixes.iter().map(move |prefix| (*effect, *prefix)));
    prefixes
        .filter(|(_, prefix)| is_within(prefix))
        .max_by_key(|(_, prefix)| prefix.len())
        .map_or(Effect::Unknown, |(effect, _)| effect)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::collections::BTreeSet;

    use super::{Change, EFFECTS, Effect, changes, template_changes};

    #[test]
    fn the_longest_prefix_counts() {
        for (field, expected) in [
            ("spec.version", Effect::Rollout),
            ("spec.versionOfSomething", Effect::Unknown),
            ("spec.kubeadmConfigSpec.files[0].content", Effect::Rollout),
            (
                "spec.kubeadmConfigSpec.clusterConfiguration.dns.imageTag",
                Effect::WorkloadCluster,
            ),
            ("spec.machineTemplate.metadata.labels.a", Effect::InPlace),
            (
                "spec.machineTemplate.spec.deletion.nodeDrainTimeoutSeconds",
                Effect::InPlace,
            ),
            ("spec.machineTemplate.nodeDrainTimeout", Effect::InPlace),
            ("spec.machineTemplate.spec.failureDomain", Effect::Unknown),
            ("spec.rollout.strategy.rollingUpdate.maxSurge", Effect::Controller),
            ("metadata.labels.a", Effect::Nothing),
        ] {
            assert_eq!(super::effect(field), expected, "{field}");
        }
    }

    #[test]
    fn the_table_is_in_order() {
        let prefixes = || EFFECTS.iter().flat_map(|(_, prefixes)| *prefixes);
        let unique: BTreeSet<_> = prefixes().collect();
        assert_eq!(unique.len(), prefixes().count());
        assert!(EFFECTS.iter().all(|(_, prefixes)| prefixes.is_sorted()));
    }

    #[test]
    fn a_new_template_changes_the_fields_of_its_spec() {
        let object = |size: &str, generation: i64| {
            json!({"metadata": {"generation": generation}, "status": {"capacity": {"cpu": size}},
                "spec": {"template": {"spec": {"size": size, "disks": [{"gb": 10}]}}}})
        };
        let template = crate::testing::plan::template("t2");
        let changes = |size: &str| template_changes(&object("small", 1), &object(size, 2), &template);
        assert_eq!(
            changes("large"),
            [Change {
                field: "spec.template.spec.size".to_owned(),
                effect: Effect::Rollout,
                template: Some("DockerMachineTemplate/t2".to_owned()),
            }]
        );
        assert_eq!(changes("small"), []);
    }

    #[test]
    fn only_what_a_person_writes_is_told() {
        let object = |generation: i64, name: &str, api_version: &str, replicas: i64| {
            json!({"metadata": {"generation": generation, "labels": {"a": "b"}}, "status": {"replicas": generation},
                "spec": {"replicas": replicas, "machineTemplate": {"infrastructureRef":
                    {"apiVersion": api_version, "name": name}}}})
        };
        let fields = |changes: Vec<Change>| -> Vec<(String, Effect)> {
            changes
                .into_iter()
                .map(|change| (change.field, change.effect))
                .collect()
        };
        let reference = |field: &str| format!("spec.machineTemplate.infrastructureRef.{field}");
        assert_eq!(
            fields(changes(
                &object(1, "t1", "g/v1", 3),
                &object(2, "t1", "g/v2", 5),
                true
            )),
            [
                (reference("apiVersion"), Effect::Nothing),
                ("spec.replicas".to_owned(), Effect::Scale)
            ]
        );
        assert_eq!(
            fields(changes(
                &object(1, "t1", "g/v1", 3),
                &object(2, "t2", "g/v1", 3),
                false
            )),
            [(reference("name"), Effect::Rollout)]
        );
    }
}
