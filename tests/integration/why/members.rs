//! Faults of etcd members.

use anyhow::{Context as _, Result};
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;

use super::{NAME, NAMESPACE, NOBODY, PAUSED, PERSON, Questions};

/// The name of a member without a Machine.
const STRAY: &str = "stray";

/// `why` names the cut-off Machine's leader, which is one of the others.
pub(super) const OTHER: &str = "OTHER";

pub(super) async fn are_explained(asked: &Questions<'_>, machines: &[String]) -> Result<()> {
    let second = machines.get(1).context("no second Machine")?.as_str();
    let workload = asked.management.machines().cluster(NAMESPACE, NAME).await?;
    for (fault, back, answer) in [
        (Fault::Kill, Fault::Restart, exited(second)),
        (
            Fault::Freeze,
            Fault::Thaw,
            silent(second, "TLS handshake: no response within N s"),
        ),
        (
            Fault::CutOff,
            Fault::Reconnect,
            format!(
                "A person must act: Machine/{second}: has no leader and is disconnected from the other members, which follow \
                 {OTHER} (etcd-no-leader)"
            ),
        ),
        (
            Fault::NoSpace,
            Fault::Disarm,
            format!(
                "A person must act: Machine/{second}: etcd member {second} has raised the alarm NOSPACE: a database has reached \
                 its quota, so etcd rejects writes until the alarm is disarmed (etcd-alarms)"
            ),
        ),
        (
            Fault::Expire,
            Fault::Renew,
            format!(
                "A person must act: Machine/{second}: certificate expired N ago (etcd-certificates-expiring)"
            ),
        ),
        (
            Fault::PodNotReady,
            Fault::PodReady,
            format!(
                "kubelet makes no progress, so a person must act: Machine/{second}: etcd pod is not ready \
                 (etcd-pods-not-ready)"
            ),
        ),
    ] {
        workload.inflict(fault, second).await?;
        asked.answers(&fault.to_string(), PERSON, &answer).await?;
        workload.inflict(back, second).await?;
        asked.answers(&back.to_string(), NOBODY, PAUSED).await?;
    }
    let stray =
        format!("A person must act: EtcdMember/{STRAY}: has no known Machine (etcd-members-mismatch)");
    workload.inflict(Fault::HoldPromotions, STRAY).await?;
    let joins = workload.inflict(Fault::Stray, STRAY);
    let seen = async {
        asked.answers("hold-promotions", PERSON, &stray).await?;
        workload.inflict(Fault::Promote, STRAY).await
    };
    tokio::try_join!(joins, seen)?;
    asked.answers("stray", PERSON, &stray).await?;
    workload.inflict(Fault::Remove, STRAY).await?;
    asked.answers("remove (the stray member)", NOBODY, PAUSED).await?;
    faults_of_a_follower_are_explained(asked, &workload, machines).await
}

fn silent(machine: &str, why: &str) -> String {
    format!(
        "A person must act: Machine/{machine}: etcd member does not respond: {why} (etcd-members-unresponsive)"
    )
}

fn exited(machine: &str) -> String {
    silent(
        machine,
        &format!("connection refused: etcd is not listening in pod etcd-{machine}"),
    )
}

/// The faults that only a new Machine repairs, one after another. A leader without its data would rejoin as a follower, but a
/// follower exits: it has lost entries that its leader assumes it has.
async fn faults_of_a_follower_are_explained(
    asked: &Questions<'_>,
    workload: &WorkloadCluster,
    machines: &[String],
) -> Result<()> {
    let leader = workload.leader().await?;
    let follower = machines.iter().find(|machine| **machine != leader);
    let follower = follower.context("every Machine is the leader")?;
    let split = format!(
        "A person must act: Machine/{follower}: is a member of etcd cluster N, but most members belong to N (etcd-clusters-differ)"
    );
    for (fault, answer) in [
        (Fault::Wipe, &exited(follower)),
        (Fault::Split, &split),
        (Fault::Remove, &split),
    ] {
        workload.inflict(fault, follower).await?;
        asked.answers(&fault.to_string(), PERSON, answer).await?;
    }
    Ok(())
}
