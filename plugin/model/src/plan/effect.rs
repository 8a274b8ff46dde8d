//! What a change of each field does.

use serde::Serialize;
use serde_json::Value;

use crate::merge_patch::differences;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// Replaces Machines.
    Rollout,
    /// Creates or deletes Machines.
    Scale,
    /// Replaces the first Machine, if that does not match the configuration of one that joins either.
    FirstMachine,
    /// Applies to new Machines only.
    NextMachine,
    /// Updates Machines and their objects in place.
    InPlace,
    /// Updates the workload cluster in place.
    WorkloadCluster,
    /// Changes how the controller works.
    Controller,
    Nothing,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// As `spec.a.b[2].c`.
    pub field: String,
    pub effect: Effect,
}

/// The longest prefix counts. For the fields of v1beta1 and v1beta2.
const EFFECTS: &[(&str, Effect)] = &[
    ("metadata.annotations", Effect::Controller),
    ("metadata.labels", Effect::Nothing),
    ("spec.kubeadmConfigSpec", Effect::Rollout),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.timeoutForControlPlane",
        Effect::NextMachine,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.clusterName",
        Effect::Nothing,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.controlPlaneEndpoint",
        Effect::Nothing,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.dns",
        Effect::WorkloadCluster,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.kubernetesVersion",
        Effect::Nothing,
    ),
    (
        "spec.kubeadmConfigSpec.clusterConfiguration.networking",
        Effect::Nothing,
    ),
    ("spec.kubeadmConfigSpec.initConfiguration", Effect::FirstMachine),
    (
        "spec.kubeadmConfigSpec.initConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
        Effect::NextMachine,
    ),
    (
        "spec.kubeadmConfigSpec.joinConfiguration.discovery",
        Effect::NextMachine,
    ),
    (
        "spec.kubeadmConfigSpec.joinConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
        Effect::NextMachine,
    ),
    ("spec.kubeadmConfigSpec.useExperimentalRetryJoin", Effect::Nothing),
    ("spec.machineNaming", Effect::NextMachine),
    ("spec.machineNamingStrategy", Effect::NextMachine),
    ("spec.machineTemplate.infrastructureRef", Effect::Rollout),
    ("spec.machineTemplate.metadata", Effect::InPlace),
    ("spec.machineTemplate.nodeDeletionTimeout", Effect::InPlace),
    ("spec.machineTemplate.nodeDrainTimeout", Effect::InPlace),
    ("spec.machineTemplate.nodeVolumeDetachTimeout", Effect::InPlace),
    ("spec.machineTemplate.readinessGates", Effect::InPlace),
    ("spec.machineTemplate.spec.deletion", Effect::InPlace),
    ("spec.machineTemplate.spec.infrastructureRef", Effect::Rollout),
    ("spec.machineTemplate.spec.readinessGates", Effect::InPlace),
    ("spec.machineTemplate.spec.taints", Effect::InPlace),
    ("spec.machineTemplate.taints", Effect::InPlace),
    ("spec.remediation", Effect::Controller),
    ("spec.remediationStrategy", Effect::Controller),
    ("spec.replicas", Effect::Scale),
    ("spec.rollout.after", Effect::Rollout),
    ("spec.rollout.before", Effect::Rollout),
    ("spec.rollout.strategy", Effect::Controller),
    ("spec.rolloutAfter", Effect::Rollout),
    ("spec.rolloutBefore", Effect::Rollout),
    ("spec.rolloutStrategy", Effect::Controller),
    ("spec.version", Effect::Rollout),
];

/// The changed fields of a control plane, in one API version. The fields of the template's reference have an effect only
/// if it names another template.
pub fn changes(old: &Value, new: &Value, same_template: bool) -> Vec<Change> {
    differences(&told(old), &told(new))
        .into_iter()
        .map(|field| Change {
            effect: match effect(&field) {
                Effect::Rollout if same_template && field.contains(".infrastructureRef") => Effect::Nothing,
                effect => effect,
            },
            field,
        })
        .collect()
}

/// The parts of an object that users write.
fn told(object: &Value) -> Value {
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
    let known = EFFECTS.iter().filter(|(prefix, _)| is_within(prefix));
    known
        .max_by_key(|(prefix, _)| prefix.len())
        .map_or(Effect::Unknown, |(_, effect)| *effect)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Change, EFFECTS, Effect, changes};

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
        assert!(EFFECTS.windows(2).all(|pair| pair[0].0 < pair[1].0));
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
