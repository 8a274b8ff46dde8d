//! What happens when a machine is switched off for good.

use anyhow::Result;

use super::node;
use super::workload_cluster::WorkloadCluster;
use crate::run::Log;

impl WorkloadCluster {
    /// Ends the machine and removes what it left behind. Cluster API has removed its etcd member before,
    /// except when the whole cluster is deleted.
    pub(super) async fn tear_down(&self, machine: &str, log: &Log) -> Result<()> {
        self.stop_member(machine).await?;
        let members_left = !self.members.lock().await.is_empty();
        if let (Ok(client), true) = (self.client(), members_left) {
            // Without quorum it cannot succeed, and then nobody will miss it.
            if let Err(error) = node::delete(client, machine).await {
                log.line(format!("{machine}: removing its objects: {error:#}"));
            }
        }
        Ok(())
    }
}
