//! What happens when a machine is switched off for good.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::timeout;

use super::node;
use super::workload_cluster::WorkloadCluster;
use crate::run::Log;

/// Eight small requests: a tenth of a second each on a busy machine.
const REMOVAL: Duration = Duration::from_secs(5);

impl WorkloadCluster {
    /// Ends the machine and removes what it left behind. Cluster API has removed its etcd member before,
    /// except when the whole cluster is deleted.
    pub(super) async fn tear_down(&self, machine: &str, log: &Log) -> Result<()> {
        self.stop_member(machine).await?;
        let members_left = !self.members.lock().await.is_empty();
        if let (Ok(client), true) = (self.client(), members_left) {
            // Without quorum it cannot succeed, and then nobody will miss it.
            let removed = timeout(REMOVAL, node::delete(client, machine)).await;
            let removed = removed.unwrap_or_else(|_| bail!("no answer in {} s", REMOVAL.as_secs()));
            if let Err(error) = removed {
                log.line(format!("{machine}: removing its objects: {error:#}"));
            }
        }
        Ok(())
    }
}
