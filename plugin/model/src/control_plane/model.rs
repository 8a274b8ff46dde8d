//! What we keep of control planes and Machines, the same for both API versions.

use jiff::Timestamp;
use serde::Deserialize;

use crate::control_plane::{
    Condition,
    condition::find,
    wire::{WireControlPlane, WireMachine},
};

/// A `KubeadmControlPlane`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "WireControlPlane")]
pub struct ControlPlane {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// Tells an object from a later one of the same name.
    pub uid: String,
    /// The Cluster it belongs to, once Cluster API has linked them.
    pub cluster: Option<String>,
    /// What a write is made under.
    pub resource_version: String,
    /// Counts changes of the spec.
    pub generation: i64,
    /// The generation that the status is about; none before a controller has looked.
    pub observed_generation: Option<i64>,
    /// No earlier than the last change of the spec; none where the server does not report it.
    pub spec_changed: Option<Timestamp>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Set while it is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// Whether its own annotation pauses it; its Cluster may pause it too.
    pub paused: bool,
    /// Whether etcd is external.
    pub external_etcd: bool,
    /// Machines asked for.
    pub desired_replicas: Option<i64>,
    /// Kubernetes version asked for.
    pub desired_version: Option<String>,
    /// Machines made before this time are replaced, once it has come.
    pub rollout_after: Option<Timestamp>,
    /// Machines there are.
    pub replicas: i64,
    /// Machines that are ready.
    pub ready_replicas: i64,
    /// Machines that have been ready for long enough to count on.
    pub available_replicas: i64,
    /// Machines that are as the spec asks.
    pub up_to_date_replicas: i64,
    /// The lowest Kubernetes version among the Machines.
    pub version: Option<String>,
    /// Whether the first Machine has ever come up.
    pub initialized: bool,
    /// A failure that the controller does not recover from; v1beta1 has such.
    pub failure: Option<String>,
    /// What the controller says.
    pub conditions: Vec<Condition>,
}

/// A Machine of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "WireMachine")]
pub struct Machine {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// The Cluster it belongs to.
    pub cluster: Option<String>,
    /// The control plane that owns it; none when nothing does.
    pub owner: Option<String>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Set while it is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// Kubernetes version.
    pub version: Option<String>,
    /// Where it stands.
    pub failure_domain: Option<String>,
    /// Its node, once that has joined.
    pub node: Option<String>,
    /// `Pending`, `Provisioning`, `Running`, `Deleting`, …
    pub phase: Option<String>,
    /// What the controllers say.
    pub conditions: Vec<Condition>,
}

/// A control plane and its Machines at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The control plane.
    pub control_plane: ControlPlane,
    /// Its Machines, by name.
    pub machines: Vec<Machine>,
}

impl ControlPlane {
    /// The condition of a type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        find(&self.conditions, kind)
    }

    /// Whether a condition of a type holds.
    pub fn is(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(Condition::is_true)
    }

    /// Whether the status is about the spec as it stands.
    pub fn is_observed(&self) -> bool {
        self.observed_generation
            .is_some_and(|observed| observed >= self.generation)
    }

    /// Whether the controller replaces Machines, or has reported some that are to be replaced.
    pub fn is_rolling_out(&self) -> bool {
        self.is("RollingOut") || self.up_to_date_replicas < self.replicas
    }

    /// Machines asked for: one where the spec says nothing, as Cluster API has it.
    pub fn desired(&self) -> i64 {
        self.desired_replicas.unwrap_or(1)
    }

    /// Whether a Machine belongs to this control plane: one of the same Cluster that no other control plane owns, or
    /// one that this one owns.
    pub fn has(&self, machine: &Machine) -> bool {
        machine.namespace == self.namespace
            && match &machine.owner {
                Some(owner) => *owner == self.name,
                None => machine.cluster.is_some() && machine.cluster == self.cluster,
            }
    }
}

impl Machine {
    /// The condition of a type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        find(&self.conditions, kind)
    }

    /// Whether it is ready; none when no controller has said so yet.
    pub fn ready(&self) -> Option<bool> {
        self.condition("Ready").map(Condition::is_true)
    }

    /// Whether it is as the spec asks; none when no controller has said so yet.
    pub fn up_to_date(&self) -> Option<bool> {
        self.condition("UpToDate").map(Condition::is_true)
    }
}
