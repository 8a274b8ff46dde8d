//! Faults of etcd members. Those that only a new Machine repairs are left to the tests of `status`: a member without its data
//! exits in one run and rejoins in another.

use anyhow::Result;
use kcp_tests::machines::fault::Fault;

use super::{NAME, NAMESPACE, NOBODY, PAUSED, PERSON, Questions};

/// The name of a member without a Machine.
const STRAY: &str = "stray";

/// `why` names the cut-off Machine's leader, which is one of the others.
pub(super) const OTHER: &str = "OTHER";

pub(super) async fn are_explained(asked: &Questions<'_>, second: &str) -> Result<()> {
    let workload = asked.management.machines().cluster(NAMESPACE, NAME).await?;
    let silent = |machine: &str, why: &str| {
        format!(
            "A person must act: Machine/{machine}: etcd member does not respond: {why} (etcd-members-unresponsive)"
        )
    };
    let exited = |machine: &str| format!("connection refused: no etcd listens in pod etcd-{machine}");
    for (fault, back, answer) in [
        (Fault::Kill, Fault::Restart, silent(second, &exited(second))),
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
                "A person must act: Machine/{second}: has alarm NOSPACE: its database has reached the quota, and etcd rejects \
                 writes (etcd-alarms)"
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
    let stray = format!("A person must act: EtcdMember/{STRAY}: has no Machine (etcd-members-mismatch)");
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
    Ok(())
}
