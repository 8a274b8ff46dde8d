//! Every fault of a workload cluster, observed from outside. All faults share one workload cluster, because its three
//! machines take longer to start than all faults together.

mod access;
mod command;
mod members;
mod port_forward;

use anyhow::{Result, bail};
use kcp_tests::cluster::Cluster;
use kcp_tests::management_cluster::ManagementCluster;

use crate::shared::with_controllers;

const NAMESPACE: &str = "faults";

/// The name of the cluster.
const NAME: &str = "edge";

#[test]
fn every_fault_shows() {
    with_controllers(NAMESPACE, inflict_all);
}

async fn inflict_all(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    // Otherwise Cluster API repairs some of the faults before the test observes them.
    cluster.pause(true).await?;
    let machines = cluster.machines().await?;
    let [first, second, third] = machines.as_slice() else {
        bail!("the Machines are {machines:?}");
    };
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;

    port_forward::reaches(management, &workload, [first, second, third]).await?;
    access::is_spoiled(management, &workload, first).await?;
    command::inflicts(management, &workload, second).await?;
    members::suffer(management, &workload, [first, second, third]).await?;

    cluster.pause(false).await?;
    cluster.delete().await
}
