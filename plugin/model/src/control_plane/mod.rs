//! A control plane and its Machines.
//!
//! - [`health_check`]: which Machines a `MachineHealthCheck` selects, and whether it has them remediated

pub mod health_check;

#[cfg(any(test, feature = "testing"))]
pub mod example;

use kcp_api::{KubeadmControlPlane, Machine};

/// A control plane and its Machines at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub control_plane: KubeadmControlPlane,
    /// By name.
    pub machines: Vec<Machine>,
}
