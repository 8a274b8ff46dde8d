//! The command `fault`.

use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::fault_socket::FaultSocket;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::named_fault::NamedFault;
use kcp_tests::run::MARKER;
use tokio::process::Command;

use super::members::pod_ready;
use super::port_forward::secret;
use super::{NAME, NAMESPACE};

pub(super) async fn inflicts(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    machine: &str,
) -> Result<()> {
    let no_demo = fault(management, &[machine, "kill"]).await?;
    is(
        &no_demo,
        2,
        "",
        "error: no cluster is up; start one with: make demo KEEP=1\n",
    )?;

    let socket = FaultSocket::listen(management)?;
    let done = fault(management, &[machine, "pod-not-ready"]).await?;
    let effect = "the member's static pod is not ready, but the member runs";
    is(&done, 0, &format!("{machine}: {effect}\n"), "")?;
    ensure!(pod_ready(workload, machine).await? == "False");
    let typo = fault(management, &["no-machine", "kill"]).await?;
    let error = String::from_utf8_lossy(&typo.stderr);
    ensure!(
        typo.status.code() == Some(1)
            && error.starts_with("error: no-machine kill: no Machine is named no-machine; choose one of: ")
            && error.contains(machine),
        "{error}"
    );
    let done = fault(management, &[machine, "pod-ready"]).await?;
    is(
        &done,
        0,
        &format!("{machine}: the member's static pod is ready again\n"),
        "",
    )?;
    ensure!(pod_ready(workload, machine).await? == "True");

    let whole = secret(management.client(), "kubeconfig", "value").await?;
    // Other tests may have a cluster with this name.
    let cluster = format!("{NAMESPACE}/{NAME}");
    let done = fault(management, &[&cluster, "kubeconfig-garbage"]).await?;
    is(
        &done,
        0,
        &format!("{cluster}: the Secret of the kubeconfig contains bytes that are not text\n"),
        "",
    )?;
    ensure!(secret(management.client(), "kubeconfig", "value").await? != whole);
    let done = fault(management, &[&cluster, "restore"]).await?;
    is(
        &done,
        0,
        &format!("{cluster}: the Secrets are as Cluster API wrote them\n"),
        "",
    )?;
    ensure!(secret(management.client(), "kubeconfig", "value").await? == whole);

    let list = NamedFault::list();
    let misspelt = fault(management, &[machine, "kil"]).await?;
    is(
        &misspelt,
        2,
        "",
        &format!("error: no fault is named kil\nhint: a fault is one {list}"),
    )?;
    let help = fault(management, &["--help"]).await?;
    ensure!(help.status.success() && String::from_utf8(help.stdout)?.ends_with(&list));
    let unknown = fault(management, &["unknown", "restore"]).await?;
    is(
        &unknown,
        1,
        "",
        "error: unknown restore: no workload cluster is named unknown\n",
    )?;
    drop(socket);
    Ok(())
}

async fn fault(management: &ManagementCluster, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fault"));
    let output = command
        .args(arguments)
        .env(MARKER, management.run().id())
        .output()
        .await;
    output.context("running fault")
}

fn is(ended: &Output, code: i32, stdout: &str, stderr: &str) -> Result<()> {
    ensure!(
        ended.status.code() == Some(code)
            && ended.stdout == stdout.as_bytes()
            && ended.stderr == stderr.as_bytes(),
        "{ended:?} is not {code}, {stdout:?}, {stderr:?}"
    );
    Ok(())
}
