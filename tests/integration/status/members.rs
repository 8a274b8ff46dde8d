//! Each fault of an etcd member, found by the checks for it, and no longer found after its end.

use anyhow::{Result, ensure};
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;

use super::losses::killed;
use super::output::StatusResult;
use super::{PAUSED, comes_to};

/// The name of a member without a Machine.
const STRAY: &str = "stray";

pub(super) async fn are_reported(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    [_, second, third]: [&str; 3],
) -> Result<()> {
    let less = format!("fail etcd-tolerance KubeadmControlPlane/edge, EtcdMember/{second}");
    let of_member = |check: &str| format!("fail {check} EtcdMember/{second}, Machine/{second}");
    for (fault, back, findings) in [
        (Fault::Kill, Fault::Restart, killed(second)),
        (
            Fault::Freeze,
            Fault::Thaw,
            vec![less.clone(), of_member("etcd-members-answer")],
        ),
        (
            Fault::CutOff,
            Fault::Reconnect,
            vec![less.clone(), of_member("etcd-leader")],
        ),
        (
            Fault::NoSpace,
            Fault::Disarm,
            vec![less.clone(), of_member("etcd-alarms")],
        ),
        (
            Fault::Expire,
            Fault::Renew,
            vec![less.clone(), of_member("etcd-members-answer")],
        ),
        (
            Fault::PodNotReady,
            Fault::PodReady,
            vec![format!("fail etcd-pods-ready Machine/{second}, Node/{second}")],
        ),
    ] {
        workload.inflict(fault, second).await?;
        let result = is_degraded(management, fault, findings).await?;
        if matches!(fault, Fault::Freeze) {
            // A frozen member still accepts connections.
            is_silent(
                &result,
                "etcd member does not respond: TLS handshake: no response within ",
            )?;
        }
        workload.inflict(back, second).await?;
        is_healthy_again(management, back).await?;
    }
    stray_is_reported(management, workload).await?;
    faults_of_the_last_machine_are_reported(management, workload, third).await
}

/// A member without a Machine, first as a learner and then as a voter.
async fn stray_is_reported(management: &ManagementCluster, workload: &WorkloadCluster) -> Result<()> {
    let alone = format!("fail etcd-members-match EtcdMember/{STRAY}");
    workload.inflict(Fault::HoldPromotions, STRAY).await?;
    let joins = workload.inflict(Fault::Stray, STRAY);
    let seen = async {
        let learner = format!("fail etcd-learners EtcdMember/{STRAY}");
        is_degraded(management, Fault::HoldPromotions, vec![alone.clone(), learner])
            .await
            .map(drop)?;
        workload.inflict(Fault::Promote, STRAY).await
    };
    tokio::try_join!(joins, seen)?;
    // It has no pod, so no request can reach it.
    let less = format!("fail etcd-tolerance KubeadmControlPlane/edge, EtcdMember/{STRAY}");
    is_degraded(management, Fault::Stray, vec![less, alone.clone()]).await?;
    workload.inflict(Fault::Remove, STRAY).await?;
    is_healthy_again(management, Fault::Remove).await
}

/// The faults that only a new Machine repairs, one after another.
async fn faults_of_the_last_machine_are_reported(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    machine: &str,
) -> Result<()> {
    let less = format!("fail etcd-tolerance KubeadmControlPlane/edge, EtcdMember/{machine}");
    let of_member = |check: &str| format!("fail {check} EtcdMember/{machine}, Machine/{machine}");
    for (fault, findings) in [
        (Fault::Wipe, vec![less.clone(), of_member("etcd-members-answer")]),
        (Fault::Split, vec![less.clone(), of_member("etcd-one-cluster")]),
        (
            Fault::Remove,
            vec![
                of_member("etcd-one-cluster"),
                format!("fail etcd-members-match Machine/{machine}"),
            ],
        ),
    ] {
        workload.inflict(fault, machine).await?;
        is_degraded(management, fault, findings).await?;
        if matches!(fault, Fault::Wipe) {
            // It exits, because it has lost entries that its peers assume it has. Only its log has the reason.
            wait::until("status reports that the wiped member has exited", || async {
                let result = StatusResult::take(management, &[]).await?;
                is_silent(
                    &result,
                    "etcd member does not respond: connection refused: no etcd listens in pod ",
                )
            })
            .await?;
        }
    }
    Ok(())
}

/// The same check finds frozen and exited members. Its message distinguishes them.
fn is_silent(result: &StatusResult, message: &str) -> Result<()> {
    let told = result.messages("etcd-members-answer");
    let all_match = told.iter().all(|told| told.starts_with(message));
    ensure!(!told.is_empty() && all_match, "{told:?} instead of {message:?}");
    Ok(())
}

async fn is_degraded(
    management: &ManagementCluster,
    fault: Fault,
    mut findings: Vec<String>,
) -> Result<StatusResult> {
    findings.push(PAUSED.to_owned());
    comes_to(management, &fault.to_string(), 1, "Degraded", &findings).await
}

async fn is_healthy_again(management: &ManagementCluster, back: Fault) -> Result<()> {
    comes_to(management, &back.to_string(), 0, "Healthy", &[PAUSED.to_owned()])
        .await
        .map(drop)
}
