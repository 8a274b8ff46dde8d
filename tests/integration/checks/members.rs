//! Each fault of an etcd member, found by the checks for it, and no longer found after its end.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::agreement::agree;
use super::losses::killed;
use super::output::StatusResult;
use super::{OLD, PAUSED, comes_to, needs_a_person};

/// The name of a member without a Machine.
const STRAY: &str = "stray";

pub(super) async fn are_reported(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    machines: [&str; 3],
) -> Result<()> {
    add_ons_are_reported(management, workload).await?;
    let [_, second, third] = machines;
    let less = format!("fail etcd-voters-unhealthy KubeadmControlPlane/edge, EtcdMember/{second}");
    let of_member = |check: &str| format!("fail {check} EtcdMember/{second}, Machine/{second}");
    for (fault, back, findings) in [
        (Fault::Kill, Fault::Restart, killed(second)),
        (
            Fault::Freeze,
            Fault::Thaw,
            vec![less.clone(), of_member("etcd-members-unresponsive")],
        ),
        (
            Fault::CutOff,
            Fault::Reconnect,
            vec![less.clone(), of_member("etcd-no-leader")],
        ),
        (
            Fault::NoSpace,
            Fault::Disarm,
            vec![less.clone(), of_member("etcd-alarms")],
        ),
        (
            Fault::Expire,
            Fault::Renew,
            vec![
                less.clone(),
                of_member("etcd-members-unresponsive"),
                of_member("etcd-certificates-expiring"),
            ],
        ),
        (
            Fault::PodNotReady,
            Fault::PodReady,
            vec![format!(
                "fail etcd-pods-not-ready Machine/{second}, Node/{second}"
            )],
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

/// The machines run no add-ons. These objects have the status that controllers would write.
async fn add_ons_are_reported(management: &ManagementCluster, workload: &WorkloadCluster) -> Result<()> {
    let api: Api<DaemonSet> = Api::namespaced(workload.client()?.clone(), "kube-system");
    let labels = json!({"k8s-app": "kube-proxy"});
    let kube_proxy = serde_json::from_value(json!({
        "metadata": {"name": "kube-proxy"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "kube-proxy", "image": format!("registry.k8s.io/kube-proxy:{OLD}")}]},
            },
        },
    }))?;
    api.create(&PostParams::default(), &kube_proxy).await?;
    let outdated = "warn kube-proxy-not-ready DaemonSet/kube-proxy".to_owned();
    let not_ready = |severity: &str| {
        vec![
            format!("{severity} kube-proxy-not-ready DaemonSet/kube-proxy"),
            outdated.clone(),
        ]
    };
    // More pods than nodes: the pods of the three young nodes may still be starting.
    for (ready, exit_code, verdict, findings) in [
        (0, 1, "Degraded", not_ready("fail")),
        (1, 0, "Healthy", not_ready("warn")),
        (5, 0, "Healthy", vec![outdated.clone()]),
    ] {
        let status = json!({"status": {"currentNumberScheduled": 5, "desiredNumberScheduled": 5, "numberMisscheduled": 0,
            "numberReady": ready}});
        api.patch_status("kube-proxy", &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        let findings = [findings, vec![PAUSED.to_owned()]].concat();
        let what = format!("{ready} of 5 pods of kube-proxy");
        comes_to(management, &what, exit_code, verdict, &findings).await?;
    }
    api.delete("kube-proxy", &DeleteParams::default()).await?;
    is_healthy_again(management, Fault::Renew).await
}

/// A member without a Machine, first as a learner and then as a voter.
async fn stray_is_reported(management: &ManagementCluster, workload: &WorkloadCluster) -> Result<()> {
    let alone = format!("fail etcd-members-mismatch EtcdMember/{STRAY}");
    workload.inflict(Fault::HoldPromotions, STRAY).await?;
    let joins = workload.inflict(Fault::Stray, STRAY);
    let seen = async {
        let learner = format!("fail etcd-learners-stuck EtcdMember/{STRAY}");
        is_degraded(management, Fault::HoldPromotions, vec![alone.clone(), learner])
            .await
            .map(drop)?;
        workload.inflict(Fault::Promote, STRAY).await
    };
    tokio::try_join!(joins, seen)?;
    // It has no pod, so no request can reach it.
    let less = format!("fail etcd-voters-unhealthy KubeadmControlPlane/edge, EtcdMember/{STRAY}");
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
    let less = format!("fail etcd-voters-unhealthy KubeadmControlPlane/edge, EtcdMember/{machine}");
    let of_member = |check: &str| format!("fail {check} EtcdMember/{machine}, Machine/{machine}");
    for (fault, findings) in [
        (
            Fault::Wipe,
            vec![less.clone(), of_member("etcd-members-unresponsive")],
        ),
        (
            Fault::Split,
            vec![less.clone(), of_member("etcd-clusters-differ")],
        ),
        (
            Fault::Remove,
            vec![
                of_member("etcd-clusters-differ"),
                format!("fail etcd-members-mismatch Machine/{machine}"),
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
                    "etcd member does not respond: connection refused: etcd is not listening in pod ",
                )
            })
            .await?;
        }
    }
    Ok(())
}

/// The same check finds frozen and exited members. Its message distinguishes them.
fn is_silent(result: &StatusResult, message: &str) -> Result<()> {
    let told = result.messages("etcd-members-unresponsive");
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
    let result = comes_to(management, &fault.to_string(), 1, "Degraded", &findings).await?;
    agree(management).await?;
    needs_a_person(management, &fault.to_string()).await?;
    Ok(result)
}

async fn is_healthy_again(management: &ManagementCluster, back: Fault) -> Result<()> {
    comes_to(management, &back.to_string(), 0, "Healthy", &[PAUSED.to_owned()])
        .await
        .map(drop)
}
