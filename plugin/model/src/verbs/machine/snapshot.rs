//! A Machine and its control plane, read at one time.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    change::{event::ObjectReference, snapshot::ChangeSnapshot},
    control_plane::{MachineHealthCheck, PAUSED_ANNOTATION, label},
    plan::observed::{Machine, Observed},
};

const KUBEADM_CONTROL_PLANE: &str = "KubeadmControlPlane";
const MACHINE: &str = "Machine";

/// A Machine with this annotation is deleted before others.
pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
/// A `MachineHealthCheck` that selects a Machine with this annotation counts it as unhealthy.
pub const REMEDIATE_MACHINE: &str = "cluster.x-k8s.io/remediate-machine";
/// `MachineHealthChecks` ignore a Machine with this annotation.
pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";

/// What a change of a Machine is checked against.
#[derive(Debug)]
pub struct MachineSnapshot {
    pub object: MachineObject,
    /// The Machine's JSON when reading began.
    pub object_at_first: String,
    /// Its control plane, with the Machines as they were read last.
    pub context: ChangeSnapshot,
    /// The `MachineHealthChecks` of its Cluster that select it; empty if they were not asked for.
    pub health_checks: Vec<MachineHealthCheck>,
}

impl MachineSnapshot {
    pub const fn observed(&self) -> &Observed {
        &self.context.observed
    }

    pub fn machine(&self) -> Option<&Machine> {
        let mut machines = self.observed().machines.iter();
        machines.find(|machine| machine.machine.name == self.object.name)
    }

    /// Which pauses keep the controllers from working on the Machine, a line each.
    pub fn pauses(&self) -> Vec<String> {
        let Observed {
            control_plane,
            cluster,
            ..
        } = self.observed();
        let is_paused = control_plane.paused || (control_plane.is("Paused") && !cluster.paused);
        [
            (self.object.is_paused(), "the Machine is paused"),
            (is_paused, "the control plane is paused"),
            (cluster.paused, "the Cluster is paused"),
        ]
        .into_iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, what)| what.to_owned())
        .collect()
    }
}

/// The metadata of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineObject {
    /// The whole object's JSON.
    pub text: String,
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub is_deleting: bool,
    pub labels: BTreeMap<String, String>,
    /// Most of Cluster API's annotations act by their presence, whatever their value.
    pub annotations: BTreeMap<String, String>,
    /// Kind and name of its controller; none if it has no owner.
    pub owner: Option<(String, String)>,
}

#[derive(Deserialize)]
struct WireMachine {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}

#[derive(Deserialize)]
struct OwnerReference {
    kind: String,
    name: String,
    #[serde(default)]
    controller: bool,
}

impl MachineObject {
    /// # Errors
    /// When its metadata do not have their types.
    pub fn decode(text: &str) -> serde_json::Result<Self> {
        let WireMachine { metadata } = serde_json::from_str(text)?;
        let mut owners = metadata.owner_references;
        // A control plane is the owner before it sets `controller`.
        owners.sort_by_key(|owner| !(owner.controller || owner.kind == KUBEADM_CONTROL_PLANE));
        Ok(Self {
            text: text.to_owned(),
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            is_deleting: metadata.deletion_timestamp.is_some(),
            labels: metadata.labels,
            annotations: metadata.annotations,
            owner: owners.into_iter().next().map(|owner| (owner.kind, owner.name)),
        })
    }

    /// Whether it has an annotation, whatever its value.
    pub fn has(&self, annotation: &str) -> bool {
        self.annotations.contains_key(annotation)
    }

    pub fn is_paused(&self) -> bool {
        self.has(PAUSED_ANNOTATION)
    }

    /// The name of its `KubeadmControlPlane`.
    ///
    /// # Errors
    /// Why it has none.
    pub fn control_plane(&self) -> Result<&str, String> {
        if !self.labels.contains_key(label::CONTROL_PLANE) {
            return Err(match &self.owner {
                Some((kind, name)) => format!("it is not a control plane Machine: {kind} {name} owns it"),
                None => "it is not a control plane Machine".to_owned(),
            });
        }
        match &self.owner {
            Some((kind, name)) if kind == KUBEADM_CONTROL_PLANE => Ok(name),
            Some((kind, name)) => Err(format!(
                "its control plane is {kind} {name}, not a KubeadmControlPlane"
            )),
            // Not adopted yet.
            None => self
                .labels
                .get(label::CONTROL_PLANE_NAME)
                .map(String::as_str)
                .ok_or_else(|| "no control plane owns it".to_owned()),
        }
    }

    pub fn reference(&self, api_version: &str) -> ObjectReference {
        ObjectReference {
            api_version: api_version.to_owned(),
            kind: MACHINE.to_owned(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::MachineObject;

    fn of(labels: &Value, owners: &Value) -> MachineObject {
        let metadata = json!({"name": "m1", "labels": labels, "ownerReferences": owners});
        MachineObject::decode(&json!({ "metadata": metadata }).to_string()).expect("decodes")
    }

    #[test]
    fn the_control_plane_is_found_by_owner_or_labels() {
        let marked = json!({"cluster.x-k8s.io/control-plane": ""});
        let named =
            json!({"cluster.x-k8s.io/control-plane": "", "cluster.x-k8s.io/control-plane-name": "c1-cp"});
        let owner = |kind: &str, name: &str| json!({"kind": kind, "name": name, "controller": true});
        let cluster = json!({"kind": "Cluster", "name": "c1"});
        let control_plane = json!({"kind": "KubeadmControlPlane", "name": "c1-cp"});
        for (name, labels, owners, expected) in [
            (
                "owned",
                &marked,
                json!([owner("KubeadmControlPlane", "c1-cp")]),
                Ok("c1-cp"),
            ),
            (
                "owned beside another",
                &marked,
                json!([cluster, control_plane]),
                Ok("c1-cp"),
            ),
            ("labelled", &named, json!([]), Ok("c1-cp")),
            (
                "without owner",
                &marked,
                json!([]),
                Err("no control plane owns it"),
            ),
            (
                "of another provider",
                &marked,
                json!([owner("RKE2ControlPlane", "r")]),
                Err("its control plane is RKE2ControlPlane r, not a KubeadmControlPlane"),
            ),
            (
                "a worker",
                &json!({}),
                json!([owner("MachineSet", "md-0")]),
                Err("it is not a control plane Machine: MachineSet md-0 owns it"),
            ),
            (
                "a stray",
                &json!({}),
                json!([]),
                Err("it is not a control plane Machine"),
            ),
        ] {
            let machine = of(labels, &owners);
            let found = machine.control_plane();
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{name}");
        }
    }

    #[test]
    fn annotations_count_whatever_their_value() {
        let metadata = json!({"name": "m1", "uid": "u", "resourceVersion": "7",
            "deletionTimestamp": "2026-08-21T12:00:00Z",
            "annotations": {"cluster.x-k8s.io/paused": "false", "cluster.x-k8s.io/delete-machine": ""}});
        let machine = MachineObject::decode(&json!({ "metadata": metadata }).to_string()).expect("decodes");
        assert!(machine.is_deleting && machine.is_paused() && machine.has(super::DELETE_MACHINE));
        assert!(!machine.has(super::REMEDIATE_MACHINE));
        let reference = machine.reference("g/v1");
        assert_eq!(
            (reference.kind.as_str(), reference.resource_version.as_str()),
            ("Machine", "7")
        );
    }
}
