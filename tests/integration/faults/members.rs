//! Faults of etcd members, observed in the answers of etcd and of the workload cluster's API server.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kcp_tests::etcd::{Alarm, EtcdClient, Member, RaisedAlarm};
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use kube::Api;
use tokio::time::timeout;

use super::{NAME, NAMESPACE};

/// Longer than a healthy member takes.
const ANSWER: Duration = Duration::from_secs(3);

pub(super) async fn suffer(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    [first, second, third]: [&str; 3],
) -> Result<()> {
    let healthy = workload.etcd_of(first).await?;
    freezes_and_thaws(workload, second).await?;
    is_cut_off_and_reconnected(workload, &healthy, second).await?;
    stray_stays_a_learner(workload, &healthy).await?;
    runs_out_of_space(workload, &healthy, second).await?;
    pod_is_not_ready(workload, second).await?;
    shows_an_expired_certificate(workload, second).await?;
    is_killed_and_restarted(workload, second).await?;
    lose_quorum_and_regain_it(workload, [first, second, third]).await?;
    is_wiped(management, workload, third).await?;
    splits_off(workload, &healthy, third).await?;
    is_removed(workload, &healthy, third).await
}

async fn freezes_and_thaws(workload: &WorkloadCluster, machine: &str) -> Result<()> {
    workload.inflict(Fault::Freeze, machine).await?;
    let etcd = workload.etcd_of(machine).await?;
    wait::until("the frozen member does not answer", || async {
        ensure!(timeout(ANSWER, etcd.status()).await.is_err(), "it answers");
        Ok(())
    })
    .await?;
    workload.inflict(Fault::Thaw, machine).await?;
    has_leader(workload, machine).await
}

async fn is_cut_off_and_reconnected(
    workload: &WorkloadCluster,
    healthy: &EtcdClient,
    machine: &str,
) -> Result<()> {
    workload.inflict(Fault::CutOff, machine).await?;
    let etcd = workload.etcd_of(machine).await?;
    wait::until("the member that is cut off has no leader", || async {
        let status = timeout(ANSWER, etcd.status()).await.context("no answer")??;
        ensure!(status.leader == "0", "its leader is {}", status.leader);
        Ok(())
    })
    .await?;
    wait::until("its peers have a leader", || healthy.has_leader()).await?;
    // It still knows its peers, and answers serializable reads.
    ensure!(names(&etcd.known_members().await?).len() == 3);
    workload.inflict(Fault::Reconnect, machine).await?;
    has_leader(workload, machine).await
}

async fn runs_out_of_space(workload: &WorkloadCluster, healthy: &EtcdClient, machine: &str) -> Result<()> {
    workload.inflict(Fault::NoSpace, machine).await?;
    let raised = healthy.alarms().await?;
    let member = workload.etcd_of(machine).await?.status().await?.header.member_id;
    let expected = RaisedAlarm {
        member,
        alarm: Alarm::NoSpace,
    };
    ensure!(raised == [expected], "the alarms are {raised:?}");
    workload.inflict(Fault::Disarm, machine).await?;
    let alarms = healthy.alarms().await?;
    ensure!(alarms.is_empty(), "the alarms are {alarms:?}");
    Ok(())
}

async fn pod_is_not_ready(workload: &WorkloadCluster, machine: &str) -> Result<()> {
    workload.inflict(Fault::PodNotReady, machine).await?;
    ensure!(pod_ready(workload, machine).await? == "False");
    workload.etcd_of(machine).await?.has_leader().await?;
    workload.inflict(Fault::PodReady, machine).await?;
    ensure!(pod_ready(workload, machine).await? == "True");
    Ok(())
}

async fn shows_an_expired_certificate(workload: &WorkloadCluster, machine: &str) -> Result<()> {
    workload.inflict(Fault::Expire, machine).await?;
    let refusal = workload.etcd_of(machine).await?.status().await.err();
    let refusal = refusal.map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(
        refusal.contains("invalid peer certificate: certificate expired"),
        "{refusal}"
    );
    workload.inflict(Fault::Renew, machine).await?;
    workload.etcd_of(machine).await?.has_leader().await
}

async fn is_killed_and_restarted(workload: &WorkloadCluster, machine: &str) -> Result<()> {
    workload.inflict(Fault::Kill, machine).await?;
    let etcd = workload.etcd_of(machine).await?;
    ensure!(etcd.status().await.is_err(), "it answers");
    ensure!(pod_ready(workload, machine).await? == "False");
    workload.inflict(Fault::Restart, machine).await?;
    has_leader(workload, machine).await?;
    ensure!(pod_ready(workload, machine).await? == "True");
    Ok(())
}

/// The last running member reports that the member has no leader.
async fn lose_quorum_and_regain_it(
    workload: &WorkloadCluster,
    [first, second, third]: [&str; 3],
) -> Result<()> {
    workload.inflict(Fault::Kill, second).await?;
    workload.inflict(Fault::Kill, third).await?;
    let etcd = workload.etcd_of(first).await?;
    wait::until("the last member has no leader", || async {
        let status = timeout(ANSWER, etcd.status()).await.context("no answer")??;
        ensure!(status.leader == "0", "its leader is {}", status.leader);
        Ok(())
    })
    .await?;
    workload.inflict(Fault::Kill, first).await?;
    ensure!(etcd.status().await.is_err(), "it answers");
    workload.inflict(Fault::Restart, first).await?;
    workload.inflict(Fault::Restart, second).await?;
    has_leader(workload, second).await?;
    ensure!(pod_ready(workload, second).await? == "True");
    workload.inflict(Fault::Restart, third).await?;
    has_leader(workload, third).await?;
    ensure!(pod_ready(workload, third).await? == "True");
    Ok(())
}

async fn stray_stays_a_learner(workload: &WorkloadCluster, healthy: &EtcdClient) -> Result<()> {
    const NAME: &str = "stray";
    workload.inflict(Fault::HoldPromotions, NAME).await?;
    let joins = workload.inflict(Fault::Stray, NAME);
    let seen = async {
        wait::until("the stray is a learner", || async {
            let members = healthy.members().await?;
            let stray = members.iter().find(|member| member.name == NAME);
            ensure!(stray.context("no such member")?.is_learner, "it is a voter");
            Ok(())
        })
        .await?;
        workload.inflict(Fault::Promote, NAME).await
    };
    tokio::try_join!(joins, seen)?;
    let members = healthy.members().await?;
    ensure!(members.len() == 4 && members.iter().all(|member| !member.is_learner));
    workload.inflict(Fault::Remove, NAME).await?;
    ensure!(!names(&healthy.members().await?).contains(&NAME.to_owned()));
    Ok(())
}

/// A wiped member exits, because its peers send entries that follow those it has lost.
async fn is_wiped(management: &ManagementCluster, workload: &WorkloadCluster, machine: &str) -> Result<()> {
    let log = management
        .run()
        .logs()
        .join(format!("{NAMESPACE}-{NAME}-etcd-{machine}.log"));
    workload.inflict(Fault::Wipe, machine).await?;
    wait::until("the wiped member reports its lost entries", || async {
        let log_text = fs::read_to_string(&log)?;
        ensure!(
            log_text.contains("Was the raft log corrupted, truncated, or lost?"),
            "see {}",
            log.display()
        );
        Ok(())
    })
    .await?;
    let etcd = workload.etcd_of(machine).await?;
    wait::until("the wiped member has exited", || async {
        ensure!(etcd.status().await.is_err(), "it answers");
        Ok(())
    })
    .await
}

async fn splits_off(workload: &WorkloadCluster, healthy: &EtcdClient, machine: &str) -> Result<()> {
    workload.inflict(Fault::Split, machine).await?;
    has_leader(workload, machine).await?;
    let etcd = workload.etcd_of(machine).await?;
    let (own, others) = (etcd.status().await?, healthy.status().await?);
    ensure!(own.header.cluster_id != others.header.cluster_id);
    ensure!(names(&etcd.known_members().await?) == [machine]);
    ensure!(names(&healthy.known_members().await?).len() == 3);
    Ok(())
}

async fn is_removed(workload: &WorkloadCluster, healthy: &EtcdClient, machine: &str) -> Result<()> {
    workload.inflict(Fault::Remove, machine).await?;
    let rest = names(&healthy.members().await?);
    ensure!(rest.len() == 2 && !rest.contains(&machine.to_owned()), "{rest:?}");
    Ok(())
}

async fn has_leader(workload: &WorkloadCluster, machine: &str) -> Result<()> {
    let etcd = workload.etcd_of(machine).await?;
    wait::until(&format!("{machine} has a leader"), || async {
        timeout(ANSWER, etcd.has_leader()).await.context("no answer")?
    })
    .await
}

pub(super) async fn pod_ready(workload: &WorkloadCluster, machine: &str) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(workload.client()?.clone(), "kube-system");
    let pod = pods.get(&format!("etcd-{machine}")).await?;
    let conditions = pod
        .status
        .and_then(|status| status.conditions)
        .unwrap_or_default();
    let ready = conditions
        .into_iter()
        .find(|condition| condition.type_ == "Ready");
    Ok(ready.context("no condition Ready")?.status)
}

fn names(members: &[Member]) -> Vec<String> {
    members.iter().map(|member| member.name.clone()).collect()
}
