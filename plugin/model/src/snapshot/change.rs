//! The state from which a command decides whether it may change a control plane or one of its Machines.

use jiff::Timestamp;
use kcp_api::{
    DecodeError, KubeadmControlPlane, Machine, MachineHealthCheck, Object, decode,
    kind::KUBEADM_CONTROL_PLANE,
    metadata::{ObjectMeta, OwnerReference},
    names::label,
};
use kcp_rules::view::{self, View};

use crate::snapshot::{Failure, Reading, Snapshot};

/// Which objects a command reads before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadScope {
    /// The command reads the control plane, its Cluster, Machines, workload cluster and etcd.
    All,
    /// The command reads the control plane and its Cluster. This is enough for a change on which the controller does not act.
    ControlPlane,
    /// The command reads the control plane and its Cluster before the time of a planned rollout, and [`Self::All`] from
    /// that time on.
    AllOnceRollingOut,
}

impl ReadScope {
    pub fn needs_control_plane_only(self, control_plane: &KubeadmControlPlane, now: Timestamp) -> bool {
        match self {
            Self::All => false,
            Self::ControlPlane => true,
            Self::AllOnceRollingOut => control_plane.spec.rollout_after.is_none_or(|after| after > now),
        }
    }
}

/// A control plane, and the other objects from which a command decides whether it may change the control plane.
#[derive(Debug)]
pub struct ChangeSnapshot {
    /// The JSON of the control plane.
    pub json: String,
    /// The JSON of the control plane when the first read began. The reads take seconds, so the object may
    /// have changed since.
    pub json_at_start: String,
    pub observed: Snapshot,
    /// Whether the command tried to read the Machines, the workload cluster and etcd.
    pub are_machines_read: bool,
    /// The parts of `observed` that could not be read. They never include the control plane, nor Machines
    /// that the command must read.
    pub unread: Vec<UnreadPart>,
    /// Why the etcd members could not be read, so that the Machines' conditions are used instead. `None` if a member
    /// responded, or etcd is external.
    pub etcd_failure: Option<Failure>,
}

impl ChangeSnapshot {
    pub const fn control_plane(&self) -> &KubeadmControlPlane {
        &self.observed.control_plane
    }

    /// The other objects that the admission rules read, as far as they are known.
    pub fn view(&self) -> View {
        let mut view = View::default();
        match self.observed.cluster.value() {
            Some(cluster) => view.cluster = Some(view::Cluster::from(cluster)).into(),
            None if self.unread_cluster().is_none_or(UnreadPart::is_missing_cluster) => {
                view.cluster = Some(None);
            }
            // The webhook can read the Cluster, and decides.
            None => {}
        }
        if self.are_machines_read {
            view.machines = self
                .observed
                .machines
                .iter()
                .map(view::Machine::from)
                .collect::<Vec<_>>()
                .into();
        }
        view
    }

    /// The parts that could not be read, and what is assumed about them: one line for each.
    pub fn warnings(&self) -> Vec<String> {
        let etcd = self.etcd_failure.iter().map(|failure| {
            format!(
                "could not read the etcd members: {}; using the Machines' conditions instead",
                failure.text()
            )
        });
        let unread = self.unread.iter().filter(|unread| !unread.is_missing_cluster());
        let unread = unread.map(|UnreadPart { part, kind, why, .. }| {
            let instead = match part {
                Part::Cluster => "assuming that the Cluster is ready and has no failure domains",
                Part::Machines | Part::Bootstrap | Part::Infrastructure => {
                    "assuming that all Machines match the spec"
                }
            };
            format!("could not read {kind}: {why}; {instead}")
        });
        let templates = self.observed.templates.values().filter_map(Reading::failure);
        let templates = templates.map(|Failure { object, message, .. }| {
            format!("could not read {object}: {message}; assuming that the template exists")
        });
        etcd.chain(unread).chain(templates).collect()
    }

    fn unread_cluster(&self) -> Option<&UnreadPart> {
        self.unread.iter().find(|unread| unread.part == Part::Cluster)
    }
}

/// A part of a [`ChangeSnapshot`] that could not be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadPart {
    pub part: Part,
    pub kind: String,
    pub why: String,
    /// Whether the API server returned 404.
    pub is_absent: bool,
}

impl UnreadPart {
    /// Whether the part is a Cluster that does not exist, so that there is nothing to read.
    fn is_missing_cluster(&self) -> bool {
        self.part == Part::Cluster && self.is_absent
    }
}

/// A part of [`Snapshot`]. The variants say which value a part has if it could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// [`Snapshot::cluster`]. If it cannot be read, it counts as ready and without failure domains.
    Cluster,
    /// [`Snapshot::machines`]. If they cannot be read, the list is empty.
    Machines,
    /// The bootstrap configurations. If they cannot be read, every Machine gets [`Bootstrap::Missing`].
    Bootstrap,
    /// The infrastructure Machines of one kind. If they cannot be read, the Machines that use them get
    /// [`Infrastructure::Missing`].
    Infrastructure,
}

/// A Machine that a command changes, and its control plane.
#[derive(Debug)]
pub struct MachineSnapshot {
    pub object: MachineObject,
    /// The JSON of the Machine when the first read began.
    pub json_at_start: String,
    /// The control plane of the Machine, with the latest state of all its Machines.
    pub control_plane_snapshot: ChangeSnapshot,
    /// The `MachineHealthChecks` of the Cluster that select the Machine. Empty if the command did not read them.
    pub health_checks: Vec<MachineHealthCheck>,
}

impl MachineSnapshot {
    pub const fn observed(&self) -> &Snapshot {
        &self.control_plane_snapshot.observed
    }

    pub fn machine(&self) -> Option<&Machine> {
        let mut machines = self.observed().machines.iter();
        machines.find(|machine| machine.name() == self.object.name())
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineObject {
    pub json: String,
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
            json: text.to_owned(),
        })
    }

    /// Returns the owner that is the controller or a control plane, otherwise the first owner. A control plane becomes
    /// an owner before it sets `controller`.
    fn owner(&self) -> Option<&OwnerReference> {
        let owners = self.owner_references();
        let is_manager = |owner: &&OwnerReference| {
            owner.controller == Some(true) || owner.kind == KUBEADM_CONTROL_PLANE.kind
        };
        owners.iter().find(is_manager).or_else(|| owners.first())
    }

    /// Returns the name of the Machine's `KubeadmControlPlane`, or why the Machine has none.
    pub fn control_plane(&self) -> Result<&str, String> {
        let owner = self
            .owner()
            .map(|owner| (owner.kind.as_str(), owner.name.as_str()));
        if self.label(label::CONTROL_PLANE).is_none() {
            return Err(match owner {
                Some((kind, name)) if kind == KUBEADM_CONTROL_PLANE.kind => format!(
                    "the Machine is owned by {kind} {name}, but lacks the label {}, so no controller manages it; restore the \
                     label: kubectl label machine {} -n {} {}=",
                    label::CONTROL_PLANE,
                    self.name(),
                    self.namespace(),
                    label::CONTROL_PLANE
                ),
                Some((kind, name)) => {
                    format!("the Machine is owned by {kind} {name}, not by a control plane")
                }
                None => "the Machine does not belong to a control plane".to_owned(),
            });
        }
        match owner {
            Some((kind, name)) if kind == KUBEADM_CONTROL_PLANE.kind => Ok(name),
            Some((kind, name)) => Err(format!(
                "the Machine is owned by {kind} {name}, not by a KubeadmControlPlane"
            )),
            // A KubeadmControlPlane has not adopted the Machine yet.
            None => self
                .label(label::CONTROL_PLANE_NAME)
                .ok_or_else(|| "no control plane owns the Machine".to_owned()),
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
                Err("no control plane owns the Machine"),
            ),
            (
                "of another provider",
                &marked,
                json!([owner("RKE2ControlPlane", "r")]),
                Err("the Machine is owned by RKE2ControlPlane r, not by a KubeadmControlPlane"),
            ),
            (
                "a worker",
                &json!({}),
                json!([owner("MachineSet", "md-0")]),
                Err("the Machine is owned by MachineSet md-0, not by a control plane"),
            ),
            (
                "a stray",
                &json!({}),
                json!([]),
                Err("the Machine does not belong to a control plane"),
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
