//! `kubectl kcp audit` on real machines: what it finds on a healthy cluster, and each fault that it knows. The files and
//! services of the machines produce the faults, where a machine has a part in them.

mod manifests;
mod members;

use anyhow::{Context as _, Result, bail};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubeconfig;
use kcp_tests::machines::real::{Machine, Site};
use kcp_tests::management_cluster::ManagementCluster;
use kube::Client;

use crate::audit::{Audit, faults};
use crate::real_machines::full::resiliency::manifests::Manifest;
use crate::real_machines::full::workload_kubeconfig;

/// What the audit finds on a healthy cluster: the load balancer of the site serves the endpoint, and it is no static Pod.
const HEALTHY: &[(&str, &str)] = &[("endpoint-external", "FAIL")];

const LOST_MEMBER: (&str, &str, &str) = (
    "etcd-loss-not-survived",
    "FAIL",
    "2 of 3 voting members healthy, 2 needed for quorum",
);

/// Produces each fault, checks that the audit finds exactly this fault, and undoes it.
pub(super) async fn is_audited(site: &Site, management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let client = kubeconfig::client_of(&workload_kubeconfig(site, management, cluster).await?).await?;
    let mut machines = management.machines().fleet()?.machines().await;
    machines.sort_by(|one, other| one.name().cmp(other.name()));
    let [first, second, third] = machines.as_slice() else {
        bail!("there are {} machines", machines.len());
    };
    let audit = Audit::new(
        management,
        super::cluster_api::NAMESPACE,
        super::cluster_api::NAME,
        HEALTHY,
    );
    audit.finds("a healthy cluster", &[]).await?;
    // No machine has a kubeadm as old as this.
    let (from, to) = ("kubernetesVersion: v1.36.", "kubernetesVersion: v1.30.");
    let evidence = "kubeadm 1.30 lets all kubelets use the control plane endpoint";
    faults::of_kubelets(&audit, &client, from, to, evidence).await?;
    members::of_an_added_member(&audit, cluster, first).await?;
    members::of_an_alarm(&audit, first).await?;
    manifests::of_a_static_pod_with_a_config_map(&audit, second, site.sandbox_image()).await?;
    faults::durations_are_compared(&audit).await?;
    manifests::of_components(&audit, [first, second, third]).await?;
    manifests::of_an_api_server(&audit, first, third).await?;
    of_nodes(&audit, &client, [first, second, third]).await?;
    members::of_an_ended_member(&audit, second).await?;
    faults::of_servers_in_the_cluster(&audit, &client).await?;
    faults::of_the_certificate_of_kcp_webhook(&audit, &client).await
}

/// A Node whose machine is gone, and a kubelet that stops while no kube-controller-manager notices it.
async fn of_nodes(audit: &Audit<'_>, client: &Client, machines: [&Machine; 3]) -> Result<()> {
    let not_ready = ("node-leases-stale", "FAIL", "Node stray is not ready");
    faults::of_a_node_without_a_machine(audit, client, &[not_ready]).await?;

    let mut managers = Vec::new();
    for machine in machines {
        let manager = Manifest::read(machine, "kube-controller-manager")?;
        manager.remove().await?;
        managers.push(manager);
    }
    let missing = "has no static Pod of kube-controller-manager";
    let none = "found no static Pod of kube-controller-manager";
    let flags = "the Pods of kube-controller-manager show no flags";
    let managers_missing = [
        ("static-pods-missing", "FAIL", missing),
        ("component-images-differ", "UNKNOWN", none),
        ("component-flags-differ", "UNKNOWN", flags),
        // Its flag says how long the certificates of kubelets are valid.
        ("kubelet-certificates-expire-while-off", "UNKNOWN", missing),
    ];
    audit
        .finds("no kube-controller-manager", &managers_missing)
        .await?;
    let stopped = machines.last().context("no machine")?;
    stopped.succeed(["systemctl", "stop", "kubelet"]).await?;
    let stale = format!(
        "Node {} is shown as ready, but its kubelet renewed its Lease",
        stopped.name()
    );
    let of_the_kubelet = [
        ("node-leases-stale", "FAIL", stale.as_str()),
        // The audit reaches the member of a machine through its kubelet.
        LOST_MEMBER,
    ];
    let found = [managers_missing.as_slice(), &of_the_kubelet].concat();
    audit.finds("a kubelet that has stopped", &found).await?;
    stopped.succeed(["systemctl", "start", "kubelet"]).await?;
    for manager in managers {
        manager.restore().await?;
    }
    audit.finds("the kubelet runs again", &[]).await
}
