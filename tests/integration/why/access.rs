//! Faults of the access to the workload cluster.

use anyhow::Result;
use kcp_tests::workload_access::{AccessFault, WorkloadAccess};

use super::{NAME, NAMESPACE, NOBODY, PAUSED, PERSON, Questions};

pub(super) async fn are_explained(asked: &Questions<'_>) -> Result<()> {
    let management = asked.management;
    let access = WorkloadAccess::read(management.run(), management.client(), NAMESPACE, NAME).await?;
    let kubeconfig = |why: &str| format!("Secret/edge-kubeconfig: {why} (workload-unreachable)");
    for (fault, cause) in [
        (
            AccessFault::KubeconfigGarbage,
            kubeconfig(
                "cannot use the kubeconfig in key \"value\" of Secret why/edge-kubeconfig: not a valid \
                 kubeconfig",
            ),
        ),
        (
            AccessFault::Nowhere,
            kubeconfig("cannot reach the API server at https://127.0.0.1:N: connection refused"),
        ),
        (
            AccessFault::ServerExpired,
            "Endpoint/https://127.0.0.1:N: certificate expired N ago (endpoint-certificate-expiring)"
                .to_owned(),
        ),
        (
            AccessFault::ClientExpired,
            "Secret/edge-kubeconfig: the certificate (admin kubeconfig) expired N ago; it should have been renewed on 2020-07-02, \
             but the Cluster is paused: no controller reconciles the control plane (secret-certificates-expiring)"
                .to_owned(),
        ),
        (
            AccessFault::KubeconfigMissing,
            "Secret/edge-kubeconfig: does not exist (secrets-missing)".to_owned(),
        ),
        (
            AccessFault::ServerError,
            kubeconfig("cannot list nodes in all namespaces: the server responded with 500: no reason"),
        ),
        (
            AccessFault::Hang,
            kubeconfig("cannot list nodes in all namespaces: no response from https://127.0.0.1:N within N"),
        ),
        (
            AccessFault::Flood,
            kubeconfig(
                "cannot list nodes in all namespaces: no response from https://127.0.0.1:N: the response is larger than 32 MiB",
            ),
        ),
        (
            AccessFault::EtcdAuthorityMissing,
            "Secret/edge-etcd: no Machine can join: Secret edge-etcd does not exist (secrets-missing)".to_owned(),
        ),
        (
            AccessFault::EtcdAuthorityWrong,
            "Secret/edge-etcd: contains a CA that did not issue the certificate of any etcd member, so neither this command nor \
             Cluster API can connect to etcd (etcd-members-unresponsive)"
                .to_owned(),
        ),
    ] {
        access.inflict(fault).await?;
        let line = format!("A person must act: {cause}");
        asked.answers(&fault.to_string(), PERSON, &line).await?;
    }
    access.inflict(AccessFault::Restore).await?;
    asked
        .answers(&AccessFault::Restore.to_string(), NOBODY, PAUSED)
        .await
        .map(drop)
}
