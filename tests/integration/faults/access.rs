//! Faults of the access to a workload cluster, observed with kubectl.

use std::fs;

use anyhow::{Result, ensure};
use kcp_tests::assets::Assets;
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::workload_access::{AccessFault, FLOOD_BYTES, WorkloadAccess};

use super::port_forward::secret;
use super::{NAME, NAMESPACE};

/// The value of `--request-timeout` for no timeout.
const NONE: &str = "0";

/// kubectl's error for each fault.
const REFUSALS: [(AccessFault, &str); 6] = [
    (
        AccessFault::ServerError,
        "an error on the server (\"no reason\") has prevented the request",
    ),
    (AccessFault::Hang, "exceeded"),
    (AccessFault::Nowhere, "The connection to the server 127.0.0.1:"),
    (
        AccessFault::ServerExpired,
        "certificate has expired or is not yet valid",
    ),
    (
        AccessFault::ClientExpired,
        "You must be logged in to the server (Unauthorized)",
    ),
    (AccessFault::KubeconfigGarbage, "error loading config file"),
];

pub(super) async fn is_spoiled(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    machine: &str,
) -> Result<()> {
    let access = WorkloadAccess::read(management.run(), management.client(), NAMESPACE, NAME).await?;
    for (fault, refusal) in REFUSALS {
        access.inflict(fault).await?;
        let timeout = if fault == AccessFault::Hang { "2s" } else { NONE };
        let ended = nodes(management, timeout).await?;
        ensure!(
            ended.code == 1 && ended.stderr.contains(refusal),
            "{fault}: {ended}"
        );
    }
    // A client without a timeout receives the complete answer, however long it takes.
    access.inflict(AccessFault::Flood).await?;
    let ended = nodes(management, NONE).await?;
    ensure!(
        ended.code == 0 && ended.stdout.len() == FLOOD_BYTES,
        "{} bytes: {}",
        ended.stdout.len(),
        ended.stderr
    );

    for (fault, purpose) in [
        (AccessFault::KubeconfigMissing, "kubeconfig"),
        (AccessFault::EtcdAuthorityMissing, "etcd"),
    ] {
        access.inflict(fault).await?;
        let missing = ["get", "secret", &format!("{NAME}-{purpose}"), "-n", NAMESPACE];
        let ended = management.kubectl().run(missing).await?;
        ensure!(
            ended.code == 1 && ended.stderr.contains("(NotFound)"),
            "{fault}: {ended}"
        );
    }

    let authority = management.run().folder().join("faults-etcd-ca.crt");
    access.inflict(AccessFault::EtcdAuthorityWrong).await?;
    fs::write(&authority, secret(management.client(), "etcd", "tls.crt").await?)?;
    let etcd = workload.etcd_trusting(machine, &authority).await?;
    let refusal = etcd.status().await.err();
    let refusal = refusal.map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refusal.contains("invalid peer certificate"), "{refusal}");

    access.inflict(AccessFault::Restore).await?;
    fs::write(&authority, secret(management.client(), "etcd", "tls.crt").await?)?;
    workload
        .etcd_trusting(machine, &authority)
        .await?
        .status()
        .await?;
    let ended = nodes(management, NONE).await?;
    ensure!(ended.code == 0 && ended.stdout.contains(machine), "{ended}");
    Ok(())
}

/// Lists Nodes with kubectl and the kubeconfig of the Secret.
async fn nodes(management: &ManagementCluster, timeout: &str) -> Result<CommandOutput> {
    let kubeconfig = management.run().folder().join("faults-kubeconfig");
    fs::write(
        &kubeconfig,
        secret(management.client(), "kubeconfig", "value").await?,
    )?;
    let kubectl = Kubectl::new(management.run(), &Assets::locate()?, kubeconfig)?;
    let timeout = format!("--request-timeout={timeout}");
    kubectl.run(["get", "--raw", "/api/v1/nodes", &timeout]).await
}
