//! The other objects that rules read. Every part of the view may be unknown.
//!
//! Each rule names the parts that it reads. The caller first applies the rules to the parts that it has. If the verdict of a rule
//! depends on other parts, the rule reports this. The caller then reads the parts that the rule names, and applies the rules
//! again. Thus each review reads only what its rules need.
//!
//! - [`object`]: builds the parts from Kubernetes objects

pub mod object;

use jiff::Timestamp;

use crate::api::hive::ClusterDeploymentCustomizationStatus;

/// Defines [`Part`] and [`View`] from one list of parts, each with the objects that it contains.
macro_rules! parts {
    ($($(#[doc = $doc:literal])+ $name:ident $part:ident: $value:ty = $objects:literal,)+) => {
        /// A part of a [`View`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Part {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Part {
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The objects of the part, for a message.
            pub const fn objects(self) -> &'static str {
                match self {
                    $(Self::$name => $objects,)+
                }
            }
        }

        /// The other objects that rules read: for a `KubeadmControlPlane`, the objects of its Cluster; for a pool,
        /// the objects in its namespace. A part that is `None` is unknown.
        #[derive(Debug, Default)]
        pub struct View {
            $($(#[doc = $doc])+ pub $part: Option<$value>,)+
            /// Why parts could not be read, one clause for each.
            pub failures: Vec<String>,
            /// Whether each of these reads failed because the webhook lacks a permission.
            pub lacks_permission: bool,
        }

        impl View {
            pub const fn knows(&self, part: Part) -> bool {
                match part {
                    $(Part::$name => self.$part.is_some(),)+
                }
            }

            /// Sets each unknown part to an empty one, so that every part is known.
            pub fn assume_empty(&mut self) {
                $(self.$part.get_or_insert_default();)+
            }

            /// Moves a part from another view to this one.
            pub fn take(&mut self, part: Part, other: &mut Self) {
                match part {
                    $(Part::$name => self.$part = other.$part.take(),)+
                }
            }
        }
    };
}

parts! {
    /// The Machines of the control plane.
    Machines machines: Vec<Machine> = "the Machines",
    /// The Cluster of the control plane; `None` if it does not exist.
    Cluster cluster: Option<Cluster> = "the Cluster",
    /// The names of worker Machines and `MachinePool`s of the Cluster. The list may be incomplete, but it is empty only if
    /// there are none.
    WorkerMachines worker_machines: Vec<String> = "the worker Machines of the Cluster",
    /// Whether the namespace is being deleted.
    NamespaceTerminating namespace_terminating: bool = "the namespace",
    /// The names of the control planes in the namespace.
    ControlPlanes control_planes: Vec<String> = "the control planes in the namespace",
    /// The other pools in the namespace.
    Pools pools: Vec<Pool> = "the other ClusterPools",
    /// The names of the customizations in the namespace.
    Customizations customizations: Vec<String> = "the customizations in the namespace",
    /// The `ClusterDeployment`s in all namespaces that belong to the pool or use the customization. For the
    /// review of a `ClusterDeployment`, only the `ClusterDeployment`s that use the same customization.
    ClusterDeployments cluster_deployments: Vec<ClusterDeployment> = "the ClusterDeployments",
    /// The customization to which the reviewed `ClusterDeployment` refers; `None` if it does not exist.
    Customization customization: Option<Customization> = "the customization",
    /// The leader migrations that Machines of the control plane run, according to their `KubeadmConfig`s.
    Migrations migrations: Vec<Migration> = "the KubeadmConfigs of the Machines",
    /// Whether the user may override rules for the object.
    MayOverride may_override: bool = "whether the user may override rules",
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
