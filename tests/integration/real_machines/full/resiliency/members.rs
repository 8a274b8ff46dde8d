//! Faults of etcd on the machines.

use anyhow::Result;
use kcp_tests::cluster::Cluster;
use kcp_tests::etcd::Alarm;
use kcp_tests::machines::real::Machine;

use crate::audit::Audit;
use crate::real_machines::full::etcd_on;
use crate::real_machines::full::resiliency::LOST_MEMBER;
use crate::real_machines::full::resiliency::manifests::Manifest;

/// An etcd member ends, and with it the API server beside it, which is the only one that the kubelet of the machine uses. So the
/// kubelet can neither renew its Lease nor delete the Pod of the member.
pub(super) async fn of_an_ended_member(audit: &Audit<'_>, machine: &Machine) -> Result<()> {
    let member = Manifest::read(machine, "etcd")?;
    member.remove().await?;
    let name = machine.name();
    audit
        .finds(
            "a member that has ended",
            &[
                LOST_MEMBER,
                ("node-leases-stale", "FAIL", &format!("Node {name} is not ready")),
                (
                    "static-pods-not-ready",
                    "FAIL",
                    &format!("Pod etcd-{name} is not ready"),
                ),
            ],
        )
        .await?;
    member.restore().await?;
    audit.finds("the member runs again", &[]).await
}

/// Somebody adds a voting member that never starts. Cluster API would remove it, so the Cluster is paused.
pub(super) async fn of_an_added_member(
    audit: &Audit<'_>,
    cluster: &Cluster,
    machine: &Machine,
) -> Result<()> {
    let etcd = etcd_on(machine).await?;
    cluster.pause(true).await?;
    cluster.has_condition("Paused", "True").await?;
    let added = etcd.add_voter("https://192.0.2.9:2380").await?;
    audit
        .finds(
            "a fourth member",
            &[
                ("etcd-members-even", "FAIL", "4 voting members"),
                ("etcd-loss-not-survived", "FAIL", "3 of 4 voting members healthy"),
            ],
        )
        .await?;
    etcd.remove(&added.member.id).await?;
    cluster.pause(false).await?;
    cluster.has_condition("Paused", "False").await?;
    audit.finds("three members", &[]).await
}

/// A member reports that it has no space left. etcd then refuses every write, so kubelets cannot renew their Leases.
pub(super) async fn of_an_alarm(audit: &Audit<'_>, machine: &Machine) -> Result<()> {
    let etcd = etcd_on(machine).await?;
    etcd.raise(Alarm::NoSpace, &etcd.status().await?.header.member_id)
        .await?;
    let alarm = format!("member {} has raised the alarm NOSPACE", machine.name());
    audit
        .finds(
            "an alarm",
            &[
                LOST_MEMBER,
                ("etcd-alarms-raised", "FAIL", &alarm),
                ("node-leases-stale", "FAIL", "but its kubelet renewed its Lease"),
            ],
        )
        .await?;
    etcd.disarm().await?;
    audit.finds("no alarm", &[]).await
}
