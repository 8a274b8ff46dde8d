//! Faults of the access to the workload cluster are findings that name the faulty object, not errors.

use anyhow::Result;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::workload_access::{AccessFault, WorkloadAccess};

use super::agreement::agree;
use super::{NAME, NAMESPACE, PAUSED, comes_to, needs_a_person};

/// The placeholder of the stand-in server's URL, which is known once the server runs.
const STAND_IN: &str = "STAND-IN";

pub(super) async fn are_reported(management: &ManagementCluster, machines: [&str; 3]) -> Result<()> {
    let access = WorkloadAccess::read(management.run(), management.client(), NAMESPACE, NAME).await?;
    let workload = || "unknown workload-unreachable Secret/edge-kubeconfig".to_owned();
    let etcd = |object: &str| format!("unknown etcd-unreachable {object}");
    let silent = || {
        machines.map(|machine| {
            format!("unknown etcd-members-unresponsive EtcdMember/{machine}, Machine/{machine}")
        })
    };
    let absent = |object: &str| format!("fail secrets-missing {object}");
    let without_server = || [vec![workload()], silent().to_vec()].concat();
    let without_way = || vec![workload(), etcd("etcd")];
    for (fault, exit_code, verdict, findings) in [
        (AccessFault::KubeconfigGarbage, 2, "Unknown", without_way()),
        (AccessFault::Nowhere, 2, "Unknown", without_way()),
        (
            AccessFault::ServerExpired,
            1,
            "Degraded",
            [
                without_way(),
                vec![format!("fail endpoint-certificate-expiring Endpoint/{STAND_IN}")],
            ]
            .concat(),
        ),
        (
            AccessFault::ClientExpired,
            1,
            "Degraded",
            [
                without_way(),
                vec!["fail secret-certificates-expiring Secret/edge-kubeconfig".to_owned()],
            ]
            .concat(),
        ),
        (
            AccessFault::KubeconfigMissing,
            1,
            "Degraded",
            [without_way(), vec![absent("Secret/edge-kubeconfig")]].concat(),
        ),
        (AccessFault::ServerError, 2, "Unknown", without_server()),
        (AccessFault::Hang, 2, "Unknown", without_server()),
        (AccessFault::Flood, 2, "Unknown", without_server()),
        (
            AccessFault::EtcdAuthorityMissing,
            1,
            "Degraded",
            vec![etcd("Secret/edge-etcd"), absent("Secret/edge-etcd")],
        ),
        (
            AccessFault::EtcdAuthorityWrong,
            1,
            "Degraded",
            vec!["fail etcd-members-unresponsive Secret/edge-etcd".to_owned()],
        ),
        (AccessFault::Restore, 0, "Healthy", Vec::new()),
    ] {
        access.inflict(fault).await?;
        let server = access.stand_in_url().await.unwrap_or_default();
        let findings = findings
            .into_iter()
            .map(|finding| finding.replace(STAND_IN, &server));
        let findings: Vec<String> = findings.chain([PAUSED.to_owned()]).collect();
        comes_to(management, &fault.to_string(), exit_code, verdict, &findings).await?;
        agree(management).await?;
        if !matches!(fault, AccessFault::Restore) {
            needs_a_person(management, &fault.to_string()).await?;
        }
        if fault == AccessFault::EtcdAuthorityWrong {
            let scale = ["scale", NAME, "--replicas", "5"];
            let why = ["contains a CA that did not issue the certificate of any etcd member"];
            management.kubectl().kcp_says(NAMESPACE, &scale, 1, &why).await?;
        }
    }
    Ok(())
}
