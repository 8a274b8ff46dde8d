//! The end of a machine.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::timeout;

use super::node;
use super::workload_cluster::WorkloadCluster;
use crate::run::Log;

/// Ends the removal of objects, which cannot succeed while etcd has no quorum. It takes eight small requests.
const REMOVAL: Duration = Duration::from_secs(60);

impl WorkloadCluster {
    /// Ends the machine and removes its Node and pods. Cluster API has already removed the machine's etcd member, unless
    /// the whole cluster is deleted. Then etcd loses its quorum, and the objects disappear with the cluster.
    pub(super) async fn tear_down(&self, machine: &str, cluster_is_deleted: bool, log: &Log) -> Result<()> {
        self.stop_controller_manager(machine).await?;
        self.stop_member(machine).await?;
        if let (Ok(client), false) = (self.client(), cluster_is_deleted) {
            let removed = timeout(REMOVAL, node::delete(client, machine)).await;
            let removed = removed.unwrap_or_else(|_| bail!("no answer in {} s", REMOVAL.as_secs()));
            if let Err(error) = removed {
                log.line(format!("{machine}: removing its objects: {error:#}"));
            }
        }
        Ok(())
    }
}
