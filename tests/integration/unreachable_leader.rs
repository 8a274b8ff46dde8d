//! etcd's leader answers no client, because its serving certificate has expired, but the other members follow it. Cluster API deletes
//! the Machines of the followers. It deletes the leader's own Machine only after another member leads.

#![expect(
    clippy::indexing_slicing,
    reason = "a part that a JSON document lacks is null, and fails the test"
)]

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::remedies;
use crate::shared::with_controllers;

const NAMESPACE: &str = "unreachable-leader";
const NAME: &str = "edge";

/// The minor version of Cluster API since which a follower's Machine can be deleted.
const FOLLOWERS_GO: u32 = 14;

#[test]
fn only_the_machine_of_an_unreachable_leader_waits_for_another_leader() {
    with_controllers(NAMESPACE, followers_go_and_then_the_leader);
}

async fn followers_go_and_then_the_leader(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let leader = workload.leader().await?;
    let machines = cluster.machines().await?;
    let follower = machines.iter().find(|machine| **machine != leader);
    let follower = follower.context("no follower")?;
    workload.inflict(Fault::Expire, &leader).await?;

    let follower_goes = management.cluster_api_minor()? >= FOLLOWERS_GO;
    wait::until(
        "status says which Machine the controller would not delete",
        || async {
            let status = status(management).await?;
            let allowed = |machine: &str| remediation(&status, machine);
            ensure!(
                allowed(&leader) == json!(false) && allowed(follower) == json!(follower_goes),
                "{status:#}"
            );
            ensure!(
                status["preflight"]["scaleUp"]["allowed"] == json!(true),
                "{status:#}"
            );
            Ok(())
        },
    )
    .await?;
    names_the_way_out(management, &["why", NAME], &leader).await?;
    for force in [&[][..], &["--force"]] {
        let replace = [&["machine", "replace", &leader], force].concat();
        names_the_way_out(management, &replace, &leader).await?;
    }
    if follower_goes {
        let replaced = kcp(management, &["machine", "replace", follower, "--yes"]).await?;
        ensure!(replaced.code == 0, "{replaced}");
        is_replaced(&cluster, follower).await?;
    }

    let kubectl = management.kubectl();
    kubectl
        .succeed(["delete", "machine", &leader, "-n", NAMESPACE, "--wait=false"])
        .await?;
    let log = management
        .run()
        .logs()
        .join(format!("cluster-api-{NAMESPACE}-control-plane.log"));
    wait::until("Cluster API cannot move the leadership", || async {
        let lines = std::fs::read_to_string(&log)?;
        // v1.14: "failed to move etcd leadership", before: "failed to move leadership to candidate Machine".
        let fails = ["failed to move etcd leadership", "failed to move leadership"];
        ensure!(
            fails.iter().any(|error| lines.contains(error)),
            "no such error in {}",
            log.display()
        );
        Ok(())
    })
    .await?;
    for command in [&["why", NAME][..], &["status", NAME], &["plan", NAME]] {
        names_the_way_out(management, command, &leader).await?;
    }
    let waiting = kubectl
        .succeed(["get", "machine", &leader, "-n", NAMESPACE, "-o", "name"])
        .await?;
    ensure!(waiting.stdout.contains(&leader), "{waiting}");

    remedies::are_accepted(management, NAMESPACE, NAME).await?;
    // The way out: its etcd stops, and another member leads.
    workload.inflict(Fault::Kill, &leader).await?;
    is_replaced(&cluster, &leader).await?;
    cluster.settled(3).await?;
    wait::until("nothing is wrong", || async {
        let status = kcp(management, &["status", NAME]).await?;
        ensure!(status.code == 0, "{status}");
        Ok(())
    })
    .await?;
    cluster.delete().await
}

async fn kcp(management: &ManagementCluster, arguments: &[&str]) -> Result<CommandOutput> {
    let place = ["-n", NAMESPACE];
    management
        .kubectl()
        .run(["kcp"].iter().chain(arguments).chain(&place))
        .await
}

async fn status(management: &ManagementCluster) -> Result<Value> {
    let ended = kcp(management, &["status", NAME, "-o", "json"]).await?;
    serde_json::from_str(&ended.stdout).with_context(|| ended.to_string())
}

/// Whether the controller would remediate the Machine now.
fn remediation(status: &Value, machine: &str) -> Value {
    let all = status.pointer("/preflight/remediation").and_then(Value::as_array);
    let mut all = all.into_iter().flatten();
    let of_machine = all.find(|entry| entry["machine"] == machine);
    of_machine.map_or(Value::Null, |entry| entry["allowed"].clone())
}

/// Waits until the command fails and says how another member becomes the leader.
async fn names_the_way_out(management: &ManagementCluster, command: &[&str], leader: &str) -> Result<()> {
    let way_out = format!(
        "repair the member on node {leader}, or stop it so that the other members elect a new leader"
    );
    wait::until(&format!("{command:?} names the way out"), || async {
        let ended = kcp(management, command).await?;
        let text: Vec<&str> = ended.stdout.split_whitespace().collect();
        ensure!(ended.code == 1 && text.join(" ").contains(&way_out), "{ended}");
        Ok(())
    })
    .await
}

/// Waits until the Machine is gone and three others have nodes.
async fn is_replaced(cluster: &Cluster, machine: &str) -> Result<()> {
    wait::until(&format!("{machine} is replaced"), || async {
        let machines = cluster.with_nodes().await?;
        ensure!(
            machines.len() == 3 && !machines.iter().any(|other| other == machine),
            "the Machines with nodes are {machines:?}"
        );
        Ok(())
    })
    .await
}
