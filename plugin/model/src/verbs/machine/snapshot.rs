//! A Machine and its control plane, read at one time.

use kcp_api::{
    DecodeError, Machine, MachineHealthCheck, Object, decode,
    kind::{KUBEADM_CONTROL_PLANE, MACHINE},
    metadata::{ObjectMeta, OwnerReference},
    names::label,
};

use crate::{
    change::{event::ObjectReference, snapshot::ChangeSnapshot},
    plan::observed::Observed,
};

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
        machines.find(|machine| machine.name() == self.object.name())
    }

    /// Which pauses keep the controllers from working on the Machine, a line each.
    pub fn pauses(&self) -> Vec<String> {
        let control_plane = &self.observed().control_plane;
        let cluster_paused = self.observed().cluster_is_paused();
        let is_paused = control_plane.is_paused() || (control_plane.is("Paused") && !cluster_paused);
        [
            (self.object.is_paused(), "the Machine is paused"),
            (is_paused, "the control plane is paused"),
            (cluster_paused, "the Cluster is paused"),
        ]
        .into_iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, what)| what.to_owned())
        .collect()
    }
}

/// A Machine, and its JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineObject {
    pub text: String,
    pub machine: Machine,
}

impl Object for MachineObject {
    fn metadata(&self) -> &ObjectMeta {
        &self.machine.metadata
    }
}

impl MachineObject {
    /// # Errors
    /// When a field has another type than its kind gives it.
    pub fn decode(text: &str) -> Result<Self, DecodeError> {
        Ok(Self {
            machine: decode(text)?,
            text: text.to_owned(),
        })
    }

    /// Its controller, or else its first owner. A control plane is the owner before it sets `controller`.
    fn manager(&self) -> Option<&OwnerReference> {
        let owners = self.owner_references();
        let manages = |owner: &&OwnerReference| {
            owner.controller == Some(true) || owner.kind == KUBEADM_CONTROL_PLANE.kind
        };
        owners.iter().find(manages).or_else(|| owners.first())
    }

    /// The name of its `KubeadmControlPlane`.
    ///
    /// # Errors
    /// Why it has none.
    pub fn control_plane(&self) -> Result<&str, String> {
        let manager = self
            .manager()
            .map(|owner| (owner.kind.as_str(), owner.name.as_str()));
        if self.label(label::CONTROL_PLANE).is_none() {
            return Err(match manager {
                Some((kind, name)) => format!("it is not a control plane Machine: {kind} {name} owns it"),
                None => "it is not a control plane Machine".to_owned(),
            });
        }
        match manager {
            Some((kind, name)) if kind == KUBEADM_CONTROL_PLANE.kind => Ok(name),
            Some((kind, name)) => Err(format!(
                "its control plane is {kind} {name}, not a KubeadmControlPlane"
            )),
            // Not adopted yet.
            None => self
                .label(label::CONTROL_PLANE_NAME)
                .ok_or_else(|| "no control plane owns it".to_owned()),
        }
    }

    pub fn reference(&self, api_version: &str) -> ObjectReference {
        ObjectReference {
            api_version: api_version.to_owned(),
            kind: MACHINE.kind.to_owned(),
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
            uid: self.uid().to_owned(),
            resource_version: self.resource_version().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::Object as _;
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
        assert!(machine.is_deleting() && machine.is_paused() && machine.machine.is_deleted_first());
        assert!(!machine.machine.is_marked_unhealthy());
        let reference = machine.reference("g/v1");
        assert_eq!(
            (reference.kind.as_str(), reference.resource_version.as_str()),
            ("Machine", "7")
        );
    }
}
