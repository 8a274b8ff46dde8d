//! Three machines under Cluster API: created, observed through real kubelets, audited, one of them lost and replaced, all of them replaced,
//! fewer and more of them, a power failure, and new Machines with kcp-webhook and a proxy of their own.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::real::Site;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::Value;

use crate::predictions::as_planned;
use crate::real_machines::full::{Clock, kubeadm_files, resiliency, with_cluster_api};
use crate::schema;

pub(super) const NAMESPACE: &str = "real";
pub(super) const NAME: &str = "edge";

/// The version of the programs in the images of the machines.
pub(super) const VERSION: &str = "v1.36.3";

#[test]
#[ignore = "needs root: make test-machines PART=full"]
fn cluster_api_runs_a_control_plane_on_real_machines() {
    with_cluster_api("cluster-api", lives);
}

async fn lives(site: &Arc<Site>, management: &ManagementCluster) -> Result<()> {
    let mut clock = Clock::start();
    let client = management.client();
    let cluster = Cluster::create_on_real_machines(client, NAMESPACE, NAME, 3, VERSION).await?;
    cluster.settled(3).await?;
    clock.lap("three machines of Cluster API");
    is_healthy(management, &cluster, 3).await?;
    clock.lap("status reports them healthy");
    report_memory(management).await?;
    resiliency::is_audited(site, management, &cluster).await?;
    clock.lap("the audit finds each fault of the machines, and only these");

    kubeadm_files::reach_new_machines(site, management, &cluster).await?;
    clock.lap("three new machines have the files of anchor and discovery");
    is_healthy(management, &cluster, 3).await?;
    lost_machine_is_replaced(management, &cluster, &mut clock).await?;
    changes_are_as_planned(management, &cluster, &mut clock).await?;
    power_failure(management, &cluster, &mut clock).await
}

/// Each creation and deletion of a Machine is the one that `plan` said.
pub(super) async fn changes_are_as_planned(
    management: &ManagementCluster,
    cluster: &Cluster,
    clock: &mut Clock,
) -> Result<()> {
    let restart = ["rollout", "start", NAME, "--yes"];
    as_planned(management, cluster, &["--restart"], &restart, 3, 6).await?;
    clock.lap("a rollout of three machines, as planned");
    for (replicas, number) in [("--replicas=1", 1), ("--replicas=3", 3)] {
        let scale = ["scale", NAME, replicas, "--yes"];
        as_planned(management, cluster, &[replicas], &scale, number, 2).await?;
        clock.lap(&format!("scale {replicas}, as planned"));
    }
    Ok(())
}

/// Every machine loses power, and all of them come back. The management cluster does not run on these machines.
async fn power_failure(management: &ManagementCluster, cluster: &Cluster, clock: &mut Clock) -> Result<()> {
    let machines = management.machines().fleet()?.machines().await;
    for machine in &machines {
        machine.power_off().await?;
    }
    wait::until("status reports the power failure", || async {
        let (status, document) = status(management).await?;
        let found = findings(&document);
        ensure!(
            status.code == 1
                && found
                    .iter()
                    .any(|finding| finding.contains("workload-unreachable")),
            "{} {found:#?}",
            status.code
        );
        Ok(())
    })
    .await?;
    clock.lap("status reports a power failure of all machines");
    for machine in &machines {
        machine.power_on().await?;
    }
    is_healthy(management, cluster, 3).await?;
    clock.lap("all machines are healthy again");
    Ok(())
}

/// The machine of the last voter that joined loses power for good.
async fn lost_machine_is_replaced(
    management: &ManagementCluster,
    cluster: &Cluster,
    clock: &mut Clock,
) -> Result<()> {
    let machines = cluster.machines().await?;
    let lost = machines.last().context("there is no Machine")?;
    let fleet = management.machines().fleet()?;
    fleet.machine(lost).await?.power_off().await?;
    let voters = format!("fail etcd-voters-unhealthy KubeadmControlPlane/{NAME}, EtcdMember/{lost}");
    let member = format!("fail etcd-members-unresponsive EtcdMember/{lost}, Machine/{lost}");
    wait::until("status reports the loss", || async {
        let (status, document) = status(management).await?;
        let found = findings(&document);
        ensure!(
            status.code == 1 && found.contains(&voters) && found.contains(&member),
            "{} {found:#?}",
            status.code
        );
        Ok(())
    })
    .await?;
    clock.lap("status reports a machine without power");
    // The controller's last report on the others may be from the moment of the loss.
    let expected = format!("machine/{lost} deleted; the controller creates a replacement\n");
    wait::until("the lost Machine may be replaced", || async {
        let replaced = kcp(management, &["machine", "replace", lost, "--yes"]).await?;
        ensure!(
            replaced.code == 0 && replaced.stdout.starts_with(&expected),
            "{replaced}"
        );
        Ok(())
    })
    .await?;
    wait::until("the lost Machine is gone", || async {
        ensure!(fleet.machine(lost).await.is_err(), "its disk is still there");
        cluster.is_settled(3).await?;
        let machines = cluster.machines().await?;
        ensure!(machines.len() == 3 && !machines.contains(lost), "{machines:?}");
        Ok(())
    })
    .await?;
    is_healthy(management, cluster, 3).await?;
    clock.lap("a lost machine is replaced");
    Ok(())
}

pub(super) async fn kcp(management: &ManagementCluster, arguments: &[&str]) -> Result<CommandOutput> {
    let command = ["kcp"].iter().chain(arguments).chain(&["-n", NAMESPACE]);
    management.kubectl().run(command).await
}

pub(super) async fn status(management: &ManagementCluster) -> Result<(CommandOutput, Value)> {
    let status = kcp(management, &["status", NAME, "-o", "json"]).await?;
    let document = serde_json::from_str(&status.stdout).with_context(|| status.to_string())?;
    schema::holds("controlplanestatus.json", &document).with_context(|| status.to_string())?;
    Ok((status, document))
}

/// `severity id object` of each finding.
pub(super) fn findings(document: &Value) -> Vec<String> {
    let findings = document.pointer("/findings").and_then(Value::as_array);
    let text = |finding: &Value, key: &str| {
        finding
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let line = |finding| {
        ["severity", "id", "object"]
            .map(|key| text(finding, key))
            .join(" ")
    };
    // The disk of this host is shared by all machines. The phase of a rotation is no problem.
    let is_judged = |finding: &&Value| {
        !["etcd-disk-slow", "ca-rotation-unfinished"].contains(&text(finding, "id").as_str())
    };
    findings
        .into_iter()
        .flatten()
        .filter(is_judged)
        .map(line)
        .collect()
}

/// Creates a control plane of three machines, and waits until it is healthy.
pub(super) async fn three_machines(management: &ManagementCluster, clock: &mut Clock) -> Result<Cluster> {
    let client = management.client();
    let cluster = Cluster::create_on_real_machines(client, NAMESPACE, NAME, 3, VERSION).await?;
    cluster.settled(3).await?;
    is_healthy(management, &cluster, 3).await?;
    clock.lap("three machines of Cluster API");
    Ok(cluster)
}

/// Waits until `status` has no finding, and every etcd member has answered it through a real kubelet.
pub(super) async fn is_healthy(
    management: &ManagementCluster,
    cluster: &Cluster,
    replicas: usize,
) -> Result<()> {
    wait::until("status finds nothing", || async {
        let (status, document) = status(management).await?;
        let found = findings(&document);
        ensure!(status.code == 0 && found.is_empty(), "{} {found:#?}", status.code);
        let of_etcd = document.pointer("/etcd/members").and_then(Value::as_array);
        let answered = of_etcd
            .into_iter()
            .flatten()
            .filter(|member| member.get("status").is_some_and(Value::is_object));
        let answered: BTreeSet<_> = answered
            .filter_map(|member| member.get("name").and_then(Value::as_str))
            .map(str::to_owned)
            .collect();
        let machines: BTreeSet<_> = cluster.machines().await?.into_iter().collect();
        ensure!(
            answered == machines && machines.len() == replicas,
            "{answered:?} answered, of {machines:?}"
        );
        Ok(())
    })
    .await
}

async fn report_memory(management: &ManagementCluster) -> Result<()> {
    for machine in management.machines().fleet()?.machines().await {
        let megabytes = machine.memory()? / 1_000_000;
        eprintln!("memory of {}: {megabytes} MB", machine.name());
    }
    Ok(())
}
