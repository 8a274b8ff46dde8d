//! The other objects that rules read. Every part of the view may be unknown.
//!
//! A part records that a rule has requested it. The caller first applies the rules to an empty view, then reads the parts
//! that [`View::missing`] returns, and applies the rules again. Thus each review reads only what its rules need, and no
//! rule has to declare its reads.
//!
//! Rules are not applied a third time. A rule must therefore request every part that it may need before it uses the first
//! one. A part that a rule requests only after it has seen the value of another part stays unknown.
//!
//! - [`object`]: builds the parts from Kubernetes objects

pub mod object;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use jiff::Timestamp;

use crate::api::hive::ClusterDeploymentCustomizationStatus;

/// A part of a [`View`], which may be unknown, and whether a rule has requested it.
#[derive(Debug)]
pub struct Part<T> {
    value: Option<T>,
    requested: AtomicBool,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self {
            value: None,
            requested: AtomicBool::new(false),
        }
    }
}

impl<T> From<T> for Part<T> {
    fn from(value: T) -> Self {
        Self {
            value: Some(value),
            requested: AtomicBool::new(false),
        }
    }
}

impl<T> Part<T> {
    /// Returns the part if it is known, and records that a rule has requested it.
    pub fn get(&self) -> Option<&T> {
        self.requested.store(true, Relaxed);
        self.value.as_ref()
    }

    /// Whether a rule has requested the part although it is unknown.
    pub fn is_missing(&self) -> bool {
        self.requested.load(Relaxed) && self.value.is_none()
    }
}

/// The other objects that rules read: for a `KubeadmControlPlane`, the objects of its Cluster; for a pool,
/// the objects in its namespace.
#[derive(Debug, Default)]
pub struct View {
    /// The Machines of the control plane.
    pub machines: Part<Vec<Machine>>,
    /// The Cluster of the control plane; `None` if it does not exist.
    pub cluster: Part<Option<Cluster>>,
    /// The names of worker Machines and `MachinePool`s of the Cluster. The list may be incomplete, but it is empty only if
    /// there are none.
    pub worker_machines: Part<Vec<String>>,
    /// Whether the namespace is being deleted.
    pub namespace_terminating: Part<bool>,
    /// The names of the control planes in the namespace.
    pub control_planes: Part<Vec<String>>,
    /// The other pools in the namespace.
    pub pools: Part<Vec<Pool>>,
    /// The names of the customizations in the namespace.
    pub customizations: Part<Vec<String>>,
    /// The `ClusterDeployment`s in all namespaces that belong to the pool or use the customization. For the
    /// review of a `ClusterDeployment`, only the `ClusterDeployment`s that use the same customization.
    pub cluster_deployments: Part<Vec<ClusterDeployment>>,
    /// The customization to which the reviewed `ClusterDeployment` refers; `None` if it does not exist.
    pub customization: Part<Option<Customization>>,
    /// The leader migrations that Machines of the control plane run, according to their `KubeadmConfig`s.
    pub migrations: Part<Vec<Migration>>,
    /// Whether the user may override rules for the object.
    pub may_override: Part<bool>,
    /// Why parts could not be read, one clause for each.
    pub failures: Vec<String>,
    /// Whether each of these reads failed because the webhook lacks a permission.
    pub lacks_permission: bool,
}

/// The parts of a [`View`] that rules requested and that are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one flag for each part, and all combinations are possible"
)]
pub struct MissingParts {
    pub machines: bool,
    pub cluster: bool,
    pub worker_machines: bool,
    pub namespace_terminating: bool,
    pub control_planes: bool,
    pub pools: bool,
    pub customizations: bool,
    pub cluster_deployments: bool,
    pub customization: bool,
    pub migrations: bool,
    pub may_override: bool,
}

impl MissingParts {
    /// Whether any part is missing.
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

impl View {
    /// The unknown parts that the caller must read before it applies the rules again.
    pub fn missing(&self) -> MissingParts {
        MissingParts {
            machines: self.machines.is_missing(),
            cluster: self.cluster.is_missing(),
            worker_machines: self.worker_machines.is_missing(),
            namespace_terminating: self.namespace_terminating.is_missing(),
            control_planes: self.control_planes.is_missing(),
            pools: self.pools.is_missing(),
            customizations: self.customizations.is_missing(),
            cluster_deployments: self.cluster_deployments.is_missing(),
            customization: self.customization.is_missing(),
            migrations: self.migrations.is_missing(),
            may_override: self.may_override.is_missing(),
        }
    }
}

/// A leader migration of controller managers (KEP-2436).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// The name of the Lease that is the migration lock.
    pub leader_name: String,
    /// The names of the controllers that migrate, each once and sorted. `None` if they depend on an unknown version.
    pub controllers: Option<Vec<String>>,
}

/// A Machine of the control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent")]
pub struct Machine {
    pub name: String,
    pub version: Option<String>,
    pub created: Option<Timestamp>,
    /// Whether `status.nodeRef` is set, that is, the Machine has joined the cluster.
    pub has_node: bool,
    /// Whether the Machine has a controller reference. If it has none, the control plane adopts the Machine.
    pub has_controller: bool,
    /// Whether the Machine has no bootstrap data yet, so that kubeadm cannot run.
    pub awaits_bootstrap_data: bool,
    pub is_deleting: bool,
}

/// The Cluster of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    pub name: String,
    /// The uid of the Cluster; `None` in a manifest.
    pub uid: Option<String>,
    pub paused: bool,
    pub is_deleting: bool,
    /// The name in `spec.controlPlaneRef`; `None` unless it refers to a `KubeadmControlPlane`.
    pub control_plane: Option<String>,
}

/// Another `ClusterPool` in the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    /// The names of the customizations in the pool's inventory.
    pub inventory: Vec<String>,
    pub is_deleting: bool,
}

/// A `ClusterDeploymentCustomization`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Customization {
    pub finalizers: Vec<String>,
    /// The status, which contains the lease.
    pub status: ClusterDeploymentCustomizationStatus,
}

/// A `ClusterDeployment` of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterDeployment {
    /// The namespace of the object. Hive creates one for each cluster of a pool, with the name of the cluster.
    pub namespace: String,
    pub name: String,
    /// The namespace of the cluster's pool and customization; `None` if the cluster has no pool.
    pub pool_namespace: Option<String>,
    /// The name of the cluster's pool.
    pub pool: String,
    /// The name of the claim that holds the cluster; `None` if the cluster is not claimed.
    pub claim: Option<String>,
    /// The name of the customization that the cluster uses; `None` if it uses none. A deprovisioned cluster uses none.
    pub customization: Option<String>,
    pub is_deleting: bool,
}

impl ClusterDeployment {
    /// Whether the cluster belongs to the pool, or uses the customization, with this namespace and name.
    pub fn refers_to(&self, namespace: &str, name: &str) -> bool {
        self.pool_namespace.as_deref() == Some(namespace)
            && (self.pool == name || self.customization.as_deref() == Some(name))
    }
}
