//! The workload cluster behind a control plane: reaching its API server and, through that, its pods.

mod kubeconfig;
mod port_forward;

pub use kubeconfig::{KubeconfigError, KubeconfigFault, client};
pub use port_forward::PortForward;
