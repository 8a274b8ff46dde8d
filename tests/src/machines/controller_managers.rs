//! Real controller managers of a workload cluster. They run beside its API server; port-forwards to their pods reach them.

use std::net::Ipv4Addr;

use anyhow::Result;

use super::node::{ensure_exists, forward, forwards};
use super::workload_cluster::WorkloadCluster;
use crate::controller_manager::{ControllerManagers, Server};
use crate::pki::Subject;

impl WorkloadCluster {
    /// Controller managers for this cluster, whose first machine has booted.
    pub fn controller_managers(&self) -> Result<ControllerManagers> {
        let authority = &self.certificates()?.authority;
        let administrator = Subject {
            common_name: "controller-managers",
            organization: Some("system:masters"),
            ..Subject::default()
        };
        let administrator = authority.issue(&self.folder, "controller-managers", &administrator)?;
        let server = Server {
            url: &format!("https://127.0.0.1:{}", self.api_port),
            folder: &self.folder,
            authority,
            administrator: &administrator,
        };
        ControllerManagers::new(&self.run, &self.assets, &server, &self.name)
    }

    /// Lets port-forwards to a port of a pod in kube-system reach a local port.
    pub async fn forward(&self, pod: &str, port: u16, target: u16) -> Result<()> {
        let forward = forward(pod, port, Ipv4Addr::LOCALHOST, target);
        ensure_exists(&forwards(self.client()?), forward).await
    }
}
