//! Control planes and their Machines as read from a cluster.
//!
//! - [`condition`]: what controllers say of an object
//! - [`wire`]: objects as the API server sends them, in either API version
//! - [`model`]: what we keep of them, the same for both versions
//! - [`health_check`]: who looks after the Machines

pub mod condition;
pub mod health_check;
pub mod model;
pub mod wire;

#[cfg(any(test, feature = "testing"))]
pub mod example;

pub use condition::{Condition, ConditionStatus, find};
pub use health_check::MachineHealthCheck;
pub use model::{ControlPlane, Machine, Snapshot};
pub use wire::cluster_of;

/// Labels that Cluster API puts on every Machine of a control plane.
pub mod label {
    /// Its value is the name of the Cluster.
    pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
    /// On control plane Machines; the value is empty.
    pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
    /// Its value is the name of the control plane; a hash of it where that has more than 63 characters.
    pub const CONTROL_PLANE_NAME: &str = "cluster.x-k8s.io/control-plane-name";
}

/// Stops all controllers from working on an object. Its presence counts, not its value.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
