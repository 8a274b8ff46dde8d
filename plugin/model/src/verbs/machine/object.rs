//! A Machine as it is written to, and whose it is.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    change::event::Subject,
    control_plane::{PAUSED_ANNOTATION, label},
};

const KUBEADM_CONTROL_PLANE: &str = "KubeadmControlPlane";
const MACHINE: &str = "Machine";

/// Among the Machines that may go, one with this goes before others.
pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
/// Has the `MachineHealthChecks` that select a Machine take it for unhealthy.
pub const REMEDIATE_MACHINE: &str = "cluster.x-k8s.io/remediate-machine";
/// Has `MachineHealthChecks` leave a Machine alone.
pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";

/// A Machine as the server wrote it, as far as it is not about its health.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineObject {
    /// As the server wrote it.
    pub text: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Tells it from a later one of that name.
    pub uid: String,
    /// What a write is made under.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// By which `MachineHealthChecks` select it.
    pub labels: BTreeMap<String, String>,
    /// Marks are among them: of these the presence counts, not the value.
    pub annotations: BTreeMap<String, String>,
    /// The kind and name of what answers for it; none where nothing does.
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
    /// From the object.
    ///
    /// # Errors
    /// When its metadata do not have their types.
    pub fn decode(text: &str) -> serde_json::Result<Self> {
        let WireMachine { metadata } = serde_json::from_str(text)?;
        let mut owners = metadata.owner_references;
        // A control plane answers for it even before it says so.
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

    /// Whether it has an annotation, whatever that says.
    pub fn has(&self, annotation: &str) -> bool {
        self.annotations.contains_key(annotation)
    }

    /// Whether its own annotation pauses it.
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
                Some((kind, name)) => format!("it is no Machine of a control plane, but of {kind} {name}"),
                None => "it is no Machine of a control plane".to_owned(),
            });
        }
        match &self.owner {
            Some((kind, name)) if kind == KUBEADM_CONTROL_PLANE => Ok(name),
            Some((kind, name)) => Err(format!(
                "its control plane is {kind} {name}, no KubeadmControlPlane"
            )),
            // Not adopted yet.
            None => self
                .labels
                .get(label::CONTROL_PLANE_NAME)
                .map(String::as_str)
                .ok_or_else(|| "no control plane owns it".to_owned()),
        }
    }

    /// As an Event names it.
    pub fn subject(&self, api_version: &str) -> Subject {
        Subject {
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
    fn whose_it_is_shows_in_its_owner_or_its_labels() {
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
            ("nobody's", &marked, json!([]), Err("no control plane owns it")),
            (
                "of another provider",
                &marked,
                json!([owner("RKE2ControlPlane", "r")]),
                Err("its control plane is RKE2ControlPlane r, no KubeadmControlPlane"),
            ),
            (
                "a worker",
                &json!({}),
                json!([owner("MachineSet", "md-0")]),
                Err("it is no Machine of a control plane, but of MachineSet md-0"),
            ),
            (
                "a stray",
                &json!({}),
                json!([]),
                Err("it is no Machine of a control plane"),
            ),
        ] {
            let machine = of(labels, &owners);
            let found = machine.control_plane();
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{name}");
        }
    }

    #[test]
    fn what_it_is_marked_with_counts_whatever_it_says() {
        let metadata = json!({"name": "m1", "uid": "u", "resourceVersion": "7",
            "deletionTimestamp": "2026-08-21T12:00:00Z",
            "annotations": {"cluster.x-k8s.io/paused": "false", "cluster.x-k8s.io/delete-machine": ""}});
        let machine = MachineObject::decode(&json!({ "metadata": metadata }).to_string()).expect("decodes");
        assert!(machine.is_deleting && machine.is_paused() && machine.has(super::DELETE_MACHINE));
        assert!(!machine.has(super::REMEDIATE_MACHINE));
        let subject = machine.subject("g/v1");
        assert_eq!(
            (subject.kind.as_str(), subject.resource_version.as_str()),
            ("Machine", "7")
        );
    }
}
