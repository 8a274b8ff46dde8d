//! A Machine, and what it was made from.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::plan::wire::{Metadata, Reference};
use crate::plan::{
    observed::{Infrastructure, Machine},
    spec::{ConfigSpec, TemplateRef},
};

const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
const REMEDIATE_MACHINE: &str = "cluster.x-k8s.io/remediate-machine";
const REMEDIATION_FOR: &str = "controlplane.cluster.x-k8s.io/remediation-for";
const UPDATE_IN_PROGRESS: &str = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress";
const PENDING_HOOKS: &str = "runtime.cluster.x-k8s.io/pending-hooks";
const CLONED_FROM_NAME: &str = "cluster.x-k8s.io/cloned-from-name";
const CLONED_FROM_GROUP_KIND: &str = "cluster.x-k8s.io/cloned-from-groupkind";

/// The hook of an update in place, among those of [`PENDING_HOOKS`].
const UPDATE_MACHINE: &str = "UpdateMachine";

/// A Machine and what it refers to.
pub struct PlannedMachine {
    /// Without its infrastructure and its bootstrap configuration.
    pub machine: Machine,
    pub config: Option<Reference>,
    pub infrastructure: Option<Reference>,
}

#[derive(Deserialize)]
struct WireMachine {
    metadata: Metadata,
    spec: MachineSpec,
    #[serde(default)]
    status: MachineStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineSpec {
    bootstrap: Option<BootstrapReference>,
    infrastructure_ref: Option<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BootstrapReference {
    config_ref: Option<Reference>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineStatus {
    certificates_expiry_date: Option<Timestamp>,
}

impl PlannedMachine {
    /// From the object.
    ///
    /// # Errors
    /// When it does not have its kind's types.
    pub fn decode(object: &str) -> serde_json::Result<Self> {
        let WireMachine {
            metadata,
            spec,
            status,
        } = serde_json::from_str(object)?;
        let hooks = metadata.annotations.get(PENDING_HOOKS);
        let has_hook = hooks.is_some_and(|hooks| hooks.split(',').any(|hook| hook == UPDATE_MACHINE));
        Ok(Self {
            machine: Machine {
                to_be_deleted: metadata.has(DELETE_MACHINE),
                to_be_remediated: metadata.has(REMEDIATE_MACHINE),
                updating_in_place: metadata.has(UPDATE_IN_PROGRESS) || has_hook,
                remediation_for: metadata.remediation(REMEDIATION_FOR),
                certificates_expire: status.certificates_expiry_date,
                machine: serde_json::from_str(object)?,
                ..Machine::default()
            },
            config: spec.bootstrap.and_then(|bootstrap| bootstrap.config_ref),
            infrastructure: spec.infrastructure_ref,
        })
    }
}

/// A `KubeadmConfig`.
#[derive(Deserialize)]
pub struct WireConfig {
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
}

impl WireConfig {
    /// Its name and its spec, read in this API version.
    pub fn named(self, version: &str) -> (String, ConfigSpec) {
        let config = ConfigSpec {
            version: version.to_owned(),
            fields: self.spec,
        };
        (self.metadata.name, config)
    }
}

/// Metadata of an infrastructure Machine.
#[derive(Deserialize)]
pub struct WireInfrastructure {
    metadata: Metadata,
}

impl WireInfrastructure {
    /// Its name, and what it was cloned from.
    pub fn named(self) -> (String, Infrastructure) {
        let Metadata {
            name,
            mut annotations,
        } = self.metadata;
        let template = annotations
            .remove(CLONED_FROM_NAME)
            .zip(annotations.remove(CLONED_FROM_GROUP_KIND));
        let infrastructure = template.map_or(Infrastructure::Unannotated, |(name, group_kind)| {
            Infrastructure::ClonedFrom(TemplateRef { group_kind, name })
        });
        (name, infrastructure)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{PlannedMachine, WireConfig, WireInfrastructure};
    use crate::plan::{
        example::template,
        observed::{Infrastructure, Remediation},
    };

    fn machine(object: &Value) -> PlannedMachine {
        PlannedMachine::decode(&object.to_string()).expect("decodes")
    }

    #[test]
    fn both_versions_of_a_machine_say_the_same() {
        let metadata = json!({"name": "m1", "annotations": {
            "cluster.x-k8s.io/delete-machine": "", "cluster.x-k8s.io/remediate-machine": "",
            "controlplane.cluster.x-k8s.io/remediation-for": r#"{"machine":"m0","retryCount":1}"#}});
        let status = json!({"certificatesExpiryDate": "2027-08-21T09:00:00Z"});
        let reference = |group: Value, kind: &str| {
            let mut reference = json!({"kind": kind, "name": "m1"});
            reference
                .as_object_mut()
                .expect("an object")
                .extend(group.as_object().expect("an object").clone());
            reference
        };
        let of = |group: fn(&str) -> Value| {
            machine(&json!({"metadata": metadata, "status": status, "spec": {
                "bootstrap": {"configRef": reference(group("bootstrap.cluster.x-k8s.io"), "KubeadmConfig")},
                "infrastructureRef": reference(group("infrastructure.cluster.x-k8s.io"), "DockerMachine")}}))
        };
        let later = of(|group| json!({"apiGroup": group}));
        let earlier = of(|group| json!({"apiVersion": format!("{group}/v1beta1")}));
        let replaced = Remediation {
            machine: "m0".to_owned(),
            time: None,
            retries: 1,
        };
        for planned in [&later, &earlier] {
            assert!(planned.machine.to_be_deleted && planned.machine.to_be_remediated);
            assert!(!planned.machine.updating_in_place);
            assert_eq!(planned.machine.remediation_for, Some(replaced.clone()));
            assert_eq!(
                planned.machine.certificates_expire,
                "2027-08-21T09:00:00Z".parse().ok()
            );
            assert_eq!(planned.machine.machine.name, "m1");
            let infrastructure = planned.infrastructure.as_ref().expect("a reference");
            assert_eq!(infrastructure.group(), "infrastructure.cluster.x-k8s.io");
            assert_eq!(
                (infrastructure.kind.as_str(), infrastructure.name.as_str()),
                ("DockerMachine", "m1")
            );
            assert_eq!(planned.config.as_ref().expect("a reference").name, "m1");
        }
    }

    #[test]
    fn an_update_in_place_shows_in_either_annotation() {
        for (annotations, expected) in [
            (json!({}), false),
            (
                json!({"in-place-updates.internal.cluster.x-k8s.io/update-in-progress": ""}),
                true,
            ),
            (
                json!({"runtime.cluster.x-k8s.io/pending-hooks": "Other,UpdateMachine"}),
                true,
            ),
            (
                json!({"runtime.cluster.x-k8s.io/pending-hooks": "UpdateMachineSet"}),
                false,
            ),
        ] {
            let planned =
                machine(&json!({"metadata": {"name": "m1", "annotations": annotations}, "spec": {}}));
            assert_eq!(planned.machine.updating_in_place, expected, "{annotations}");
        }
    }

    #[test]
    fn what_a_machine_was_made_from() {
        let config: WireConfig =
            serde_json::from_value(json!({"metadata": {"name": "m1"}, "spec": {"verbosity": 3}}))
                .expect("decodes");
        let (name, config) = config.named("v1beta1");
        assert_eq!(
            (name.as_str(), config.version.as_str(), config.fields),
            ("m1", "v1beta1", json!({"verbosity": 3}))
        );

        let (by_name, by_kind) = (
            "cluster.x-k8s.io/cloned-from-name",
            "cluster.x-k8s.io/cloned-from-groupkind",
        );
        for (annotations, expected) in [
            (
                json!({by_name: "t1", by_kind: template("t1").group_kind}),
                Infrastructure::ClonedFrom(template("t1")),
            ),
            (json!({by_name: "t1"}), Infrastructure::Unannotated),
            (json!({}), Infrastructure::Unannotated),
        ] {
            let metadata = json!({"metadata": {"name": "m1", "annotations": annotations}});
            let wire: WireInfrastructure = serde_json::from_value(metadata).expect("decodes");
            assert_eq!(wire.named(), ("m1".to_owned(), expected), "{annotations}");
        }
    }
}
