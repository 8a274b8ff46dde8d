//! Members are killed while the controllers run: one of three, then two.

use anyhow::{Result, ensure};
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;

use super::agreement::agree;
use super::output::{StatusResult, status};
use super::{NAME, NAMESPACE, comes_to, needs_a_person};

pub(super) async fn are_reported(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    [first, second, third]: [&str; 3],
) -> Result<()> {
    workload.inflict(Fault::Kill, second).await?;
    let result = comes_to(management, "the loss of a member", 1, "Degraded", &killed(second)).await?;
    // Once Cluster API reports the dead member, a scale down deletes its Machine.
    for action in ["scaleUp", "rollout"] {
        ensure!(result.allowed(action) == Some(false), "{action}: {result:?}");
    }
    // The controller does not know that the listed member is dead, but etcd does.
    for (machine, ends) in [(first, false), (second, true), (third, false)] {
        let allowed = result.may_be_remediated(machine);
        ensure!(allowed == Some(true), "remediation of {machine}: {allowed:?}");
        let never_ends = result.never_ends(machine);
        ensure!(
            never_ends.is_none() == ends,
            "remediation of {machine}: {never_ends:?}"
        );
    }
    let screen = status(management, &[]).await?;
    ensure!(screen.code == 1, "{screen}");
    let lines: Vec<String> = screen.stdout.lines().map(words).collect();
    for expected in [
        "etcd: ●●○ 3 voters, quorum 2, cannot lose another member".to_owned(),
        format!("remediation of {second} yes"),
        "fail KubeadmControlPlane/edge: 2 of 3 voting members healthy, 2 needed for quorum: cannot lose another member \
         (etcd-voters-unhealthy)"
            .to_owned(),
    ] {
        ensure!(lines.contains(&expected), "no line is {expected:?}: {screen}");
    }

    agree(management).await?;
    needs_a_person(management, "the loss of a member").await?;
    nothing_is_begun(management, second).await?;

    // Without quorum its kubelet cannot report it: the pod stays Ready.
    workload.kill_member(third).await?;
    is_lost(management, [first, second, third]).await?;
    workload.inflict(Fault::Restart, second).await?;
    workload.inflict(Fault::Restart, third).await
}

/// The verbs refuse what `status` does not allow.
async fn nothing_is_begun(management: &ManagementCluster, dead: &str) -> Result<()> {
    for verb in [
        &["scale", NAME, "--replicas", "1"][..],
        &["rollout", "start", NAME],
    ] {
        let command = [&["kcp"], verb, &["-n", NAMESPACE]].concat();
        let refused = management.kubectl().run(&command).await?;
        let of_the_dead = format!("of Machine {dead} ");
        ensure!(
            refused.code == 1 && refused.stdout.contains(&of_the_dead),
            "{refused}"
        );
    }
    Ok(())
}

/// Nothing is allowed, even if the API server still reports the pods as ready.
async fn is_lost(management: &ManagementCluster, machines: [&str; 3]) -> Result<()> {
    let result = wait::until("status reports that the quorum is lost", || async {
        let result = StatusResult::take(management, &[]).await?;
        let lost = "fail etcd-no-quorum KubeadmControlPlane/edge";
        let is_reported = result.findings().iter().any(|finding| finding.starts_with(lost));
        ensure!(is_reported, "{:#?}", result.findings());
        Ok(result)
    })
    .await?;
    ensure!(
        result.exit_code == 1 && result.verdict() == "Blocked",
        "{result:?}"
    );
    for action in ["scaleUp", "scaleDown", "rollout"] {
        ensure!(result.allowed(action) == Some(false), "{action}: {result:?}");
    }
    for machine in machines {
        let allowed = result.may_be_remediated(machine);
        ensure!(allowed == Some(false), "remediation of {machine}: {allowed:?}");
    }
    let screen = status(management, &[]).await?;
    let verdict = screen
        .stdout
        .lines()
        .map(words)
        .find(|line| line.starts_with("Verdict: "));
    ensure!(
        screen.code == 1 && verdict.is_some_and(|line| line.starts_with("Verdict: Blocked")),
        "{screen}"
    );
    agree(management).await?;
    needs_a_person(management, "the loss of the quorum").await?;
    list_asks_etcd(management).await
}

/// The list of a namespace and the list of all namespaces know it too, although the conditions still hold. Without etcd, no list
/// says that the control plane is healthy.
async fn list_asks_etcd(management: &ManagementCluster) -> Result<()> {
    // Control planes of other tests have the same name.
    let own = [format!("{NAME} "), format!("{NAMESPACE} {NAME} ")];
    let is_own = |line: &String| own.iter().any(|start| line.starts_with(start));
    let line = |screen: &str| screen.lines().map(words).find(is_own);
    for scope in [["-n", NAMESPACE].as_slice(), &["-A"]] {
        let list = management
            .kubectl()
            .run(["kcp", "status"].iter().chain(scope))
            .await?;
        let row = line(&list.stdout).unwrap_or_default();
        ensure!(list.code != 0 && row.contains("Blocked etcd-no-quorum"), "{list}");
    }
    let unasked = management
        .kubectl()
        .run(["kcp", "status", "-A", "--no-etcd"])
        .await?;
    let row = line(&unasked.stdout).unwrap_or_default();
    ensure!(
        row.contains("(by conditions)") && !row.contains("Healthy"),
        "{unasked}"
    );
    Ok(())
}

/// The findings for a Machine whose member is killed.
pub(super) fn killed(machine: &str) -> Vec<String> {
    vec![
        format!("fail etcd-voters-unhealthy KubeadmControlPlane/edge, EtcdMember/{machine}"),
        format!("fail etcd-members-unresponsive EtcdMember/{machine}, Machine/{machine}"),
        format!("fail etcd-pods-not-ready Machine/{machine}, Node/{machine}"),
    ]
}

/// A line with single blanks between its words.
fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
