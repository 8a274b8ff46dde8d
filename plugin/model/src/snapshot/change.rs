//! What a change of a control plane or of one of its Machines is checked against.

use jiff::Timestamp;
use kcp_api::{
    DecodeError, KubeadmControlPlane, Machine, MachineHealthCheck, Object, decode,
    kind::KUBEADM_CONTROL_PLANE,
    metadata::{ObjectMeta, OwnerReference},
    names::label,
};
use kcp_rules::view::{self, View};

use crate::snapshot::{Failure, Snapshot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadScope {
    /// The control plane, its Cluster, Machines, workload cluster and etcd.
    All,
    /// The control plane and its Cluster: for a change that gives the controller nothing to do.
    ControlPlane,
    /// The control plane and its Cluster before the time of a planned rollout, everything after it.
    AllOnceRollingOut,
}

impl ReadScope {
    /// Whether the control plane and its Cluster are enough.
    pub fn suffices(self, control_plane: &KubeadmControlPlane, now: Timestamp) -> bool {
        match self {
            Self::All => false,
            Self::ControlPlane => true,
            Self::AllOnceRollingOut => control_plane.spec.rollout_after.is_none_or(|after| after > now),
        }
    }
}

/// A control plane and its surroundings, read at one time.
#[derive(Debug)]
pub struct ChangeSnapshot {
    /// The control plane's JSON.
    pub object: String,
    /// Its JSON when reading began. Reading everything takes seconds.
    pub object_at_first: String,
    pub observed: Snapshot,
    /// False if Machines, workload cluster and etcd were not asked for.
    pub machines_read: bool,
    /// Parts of `observed` that could not be read; never the control plane or Machines that were asked for.
    pub unread: Vec<Unread>,
    /// Why the conditions of Machines stand in for etcd's own answers; none if etcd answered, or is external.
    pub etcd_unread: Option<Failure>,
}

impl ChangeSnapshot {
    pub const fn control_plane(&self) -> &KubeadmControlPlane {
        &self.observed.control_plane
    }

    /// The other objects that the admission rules look at.
    pub fn view(&self) -> View {
        let mut view = View::default();
        match self.observed.cluster.read() {
            Some(cluster) => view.cluster = Some(view::Cluster::from(cluster)).into(),
            None if self.unread_cluster().is_none_or(Unread::is_gone) => view.cluster = None.into(),
            // The server can read it and decides.
            None => {}
        }
        if self.machines_read {
            view.machines = self.reviewed_machines().into();
        }
        view
    }

    /// The Machines as the admission rules look at them.
    pub fn reviewed_machines(&self) -> Vec<view::Machine> {
        let machines = self.observed.machines.iter();
        machines
            .map(|machine| view::Machine {
                name: machine.name().to_owned(),
                version: machine.spec.version.clone(),
                created: machine.creation_timestamp(),
                has_node: machine.has_node(),
                has_controller: machine.controller().is_some(),
                deleting: machine.deletion_timestamp().is_some(),
            })
            .collect()
    }

    /// What could not be read, and what is assumed instead; a line each.
    pub fn warnings(&self) -> Vec<String> {
        let etcd = self.etcd_unread.iter().map(|failure| {
            format!(
                "etcd's members were not read: {}: {}; using the conditions of Machines instead",
                failure.object, failure.message
            )
        });
        let unread = self.unread.iter().filter(|unread| !unread.is_gone());
        let unread = unread.map(|Unread { part, kind, why, .. }| {
            let instead = match part {
                Part::Cluster => "assumed ready and without failure domains",
                Part::Machines | Part::Bootstrap | Part::Infrastructure => {
                    "assumed that Machines match the spec"
                }
            };
            format!("{kind} was not read: {why}; {instead}")
        });
        etcd.chain(unread).collect()
    }

    fn unread_cluster(&self) -> Option<&Unread> {
        self.unread.iter().find(|unread| unread.part == Part::Cluster)
    }
}

/// A part of a [`ChangeSnapshot`] that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    pub part: Part,
    pub kind: String,
    pub why: String,
    /// The server answered 404.
    pub is_absent: bool,
}

impl Unread {
    /// Whether the Cluster does not exist: nothing is unknown then.
    fn is_gone(&self) -> bool {
        self.part == Part::Cluster && self.is_absent
    }
}

/// A part of [`Snapshot`] that may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// [`Snapshot::cluster`]: assumed ready and without failure domains.
    Cluster,
    /// [`Snapshot::machines`]: empty.
    Machines,
    /// The bootstrap configurations: all are [`Bootstrap::Missing`].
    Bootstrap,
    /// Infrastructure Machines of one kind: they are [`Infrastructure::Missing`].
    Infrastructure,
}

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
    pub const fn observed(&self) -> &Snapshot {
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
    }
}
