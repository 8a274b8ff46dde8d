//! The other objects that rules look at, each part of which may be unknown.
//!
//! A rule asks for a part; one that is not filled answers "unknown" and remembers that it was asked for. So a caller
//! judges with an empty view first, fills what [`View::wanted`] says, and judges again: each review reads what its rules
//! need and nothing more, and no rule declares anything.
//!
//! The second judgement is the last. So a rule asks for every part that it may need before it looks into one: a part
//! that is wanted only in view of another stays unknown.
//!
//! - [`object`]: the objects that parts are made of

pub mod object;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use jiff::Timestamp;

/// A part of the view.
#[derive(Debug)]
pub struct Part<T> {
    value: Option<T>,
    asked: AtomicBool,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self {
            value: None,
            asked: AtomicBool::new(false),
        }
    }
}

impl<T> From<T> for Part<T> {
    fn from(value: T) -> Self {
        Self {
            value: Some(value),
            asked: AtomicBool::new(false),
        }
    }
}

impl<T> Part<T> {
    /// What is known of it.
    pub fn get(&self) -> Option<&T> {
        self.asked.store(true, Relaxed);
        self.value.as_ref()
    }

    /// Whether a rule asked for it and got no answer.
    pub fn is_wanted(&self) -> bool {
        self.asked.load(Relaxed) && self.value.is_none()
    }
}

/// The other objects. For a `KubeadmControlPlane` those of its Cluster, for a pool those of its namespace.
#[derive(Debug, Default)]
pub struct View {
    /// The Machines of the control plane.
    pub machines: Part<Vec<Machine>>,
    /// The Cluster that the control plane belongs to; `None` when there is none.
    pub cluster: Part<Option<Cluster>>,
    /// The names of the worker Machines and `MachinePool`s of the Cluster; a few are enough.
    pub worker_machines: Part<Vec<String>>,
    /// Whether the namespace is being deleted.
    pub namespace_terminating: Part<bool>,
    /// The names of the control planes of the namespace.
    pub control_planes: Part<Vec<String>>,
    /// The other pools of the namespace.
    pub pools: Part<Vec<Pool>>,
    /// The names of the customizations of the namespace.
    pub customizations: Part<Vec<String>>,
    /// The `ClusterDeployment`s made for the pool or with the customization, in all namespaces.
    pub cluster_deployments: Part<Vec<ClusterDeployment>>,
    /// The Lease that records who holds the customization; `None` when there is none.
    pub lease: Part<Option<Lease>>,
}

/// Which parts rules asked for and got no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one for each part, and no two exclude each other"
)]
pub struct Wanted {
    /// [`View::machines`].
    pub machines: bool,
    /// [`View::cluster`].
    pub cluster: bool,
    /// [`View::worker_machines`].
    pub worker_machines: bool,
    /// [`View::namespace_terminating`].
    pub namespace_terminating: bool,
    /// [`View::control_planes`].
    pub control_planes: bool,
    /// [`View::pools`].
    pub pools: bool,
    /// [`View::customizations`].
    pub customizations: bool,
    /// [`View::cluster_deployments`].
    pub cluster_deployments: bool,
    /// [`View::lease`].
    pub lease: bool,
}

impl Wanted {
    /// Whether there is anything to read.
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

impl View {
    /// What to read before judging again.
    pub fn wanted(&self) -> Wanted {
        Wanted {
            machines: self.machines.is_wanted(),
            cluster: self.cluster.is_wanted(),
            worker_machines: self.worker_machines.is_wanted(),
            namespace_terminating: self.namespace_terminating.is_wanted(),
            control_planes: self.control_planes.is_wanted(),
            pools: self.pools.is_wanted(),
            customizations: self.customizations.is_wanted(),
            cluster_deployments: self.cluster_deployments.is_wanted(),
            lease: self.lease.is_wanted(),
        }
    }
}

/// A Machine of the control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its Kubernetes version.
    pub version: Option<String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether it has joined: `status.nodeRef` is set.
    pub has_node: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// The Cluster of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// `spec.paused`.
    pub paused: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The name that `spec.controlPlaneRef` gives.
    pub control_plane: Option<String>,
}

/// Another pool of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// The customizations it lists.
    pub inventory: Vec<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// A `ClusterDeployment` of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterDeployment {
    /// Its namespace; Hive's pools give it the name of the cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The pool it was made for, in the namespace of the judged object.
    pub pool: String,
    /// The claim that has it.
    pub claim: Option<String>,
    /// The customization it was made with.
    pub customization: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// A `coordination.k8s.io` Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub holder: String,
    /// When it ends unless it is renewed; never when unset.
    pub expires: Option<Timestamp>,
}
