//! Node IPAM moves from kube-controller-manager 1.35 to cloud-controller-manager while kube-controller-manager 1.36 replaces
//! 1.35, and back again, as often as `MIGRATION_ROUNDS` says. The steps of `leader-migration generate` write the
//! control plane, and the kube-controller-managers run with the flags and files of the control plane.
//!
//! The proof is the audit log of the API server, and what each program lists at `/healthz`. `status` is compared with it.

#![expect(clippy::print_stdout, reason = "the measured gaps are part of the result")]

mod scene;

use std::collections::BTreeMap;
use std::env;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kcp_rules::leader_migration::Flags;
use kcp_rules::leader_migration::handover::{Timing, gap};
use kcp_tests::cluster::Cluster;
use kcp_tests::machines::PodCidrWrite;
use kcp_tests::management_cluster::ManagementCluster;

use self::scene::{Manager, NEW, OLD, Scene};
use super::paused::{ControlPlane, NAME};
use super::{ELECTION, MIGRATION};
use crate::shared::with_controllers;

const NAMESPACE: &str = "migration-node-ipam";

const ROUNDS: &str = "MIGRATION_ROUNDS";

/// A handover of Node IPAM, which ends with a new runner.
struct Handover {
    /// The programs, as the User-Agent in the audit log names them.
    from: String,
    to: String,
    killed: Timestamp,
    acquired: Timestamp,
}

impl Handover {
    fn gap(&self) -> f64 {
        self.acquired.duration_since(self.killed).as_secs_f64()
    }
}

#[test]
#[ignore = "needs kube-controller-managers that take half an hour to build: make test-migration"]
fn node_ipam_moves_to_cloud_controller_manager_and_back_without_two_owners() {
    with_controllers(NAMESPACE, moved);
}

async fn moved(management: &ManagementCluster) -> Result<()> {
    let rounds: u32 = env::var(ROUNDS).map_or(Ok(1), |rounds| rounds.parse())?;
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, OLD.version).await?;
    cluster.settled(1).await?;
    let control_plane = ControlPlane {
        management,
        cluster: &cluster,
        namespace: NAMESPACE,
        old: OLD.version,
        new: NEW.version,
        node_ipam: true,
    };
    control_plane.pause(&[]).await?;
    let mut scene = Scene::set(control_plane).await?;
    let first = scene.program(&OLD)?;
    scene.enable().await?;
    let mut old = scene.start(&OLD).await?;
    scene.becomes_owner(&mut old).await?;
    let mut handovers = Vec::new();
    for round in 1..=rounds {
        handovers.push(
            forward(&mut scene, &mut old)
                .await
                .with_context(|| format!("round {round}"))?,
        );
        handovers.push(
            back(&mut scene, &mut old)
                .await
                .with_context(|| format!("round {round}, back"))?,
        );
    }
    report(&handovers, &scene)?;
    each_node_has_one_writer(&first, &handovers, &scene.pod_cidr_writes()?)?;
    cluster.pause(false).await?;
    cluster.delete().await
}

/// The upgrade: the cloud-controller-manager waits for the migration lock, the kube-controller-manager of the new version for
/// the main lock, and then the old one ends.
async fn forward(scene: &mut Scene<'_>, old: &mut Manager) -> Result<Handover> {
    scene.start_cloud().await?;
    scene.upgrade().await?;
    let mut new = scene.start(&NEW).await?;
    scene.waits_for_main_lock(&mut new).await?;
    scene.replace_new(new);
    let from = scene.program(&OLD)?;
    let (killed, acquired) = scene.hand_over_from_kube(old).await?;
    Ok(Handover {
        from,
        to: "cloud-controller-manager".to_owned(),
        killed,
        acquired,
    })
}

/// The rollback: the old version starts again and waits for the migration lock, and then the cloud-controller-manager ends.
async fn back(scene: &mut Scene<'_>, old: &mut Manager) -> Result<Handover> {
    scene.end_new().await?;
    scene.roll_back().await?;
    *old = scene.start(&OLD).await?;
    scene.waits_for_migration_lock(old).await?;
    let (killed, acquired) = scene.hand_over_from_cloud(old).await?;
    Ok(Handover {
        from: "cloud-controller-manager".to_owned(),
        to: scene.program(&OLD)?,
        killed,
        acquired,
    })
}

/// Prints the gaps, and fails if one is not within the range that the model predicts.
fn report(handovers: &[Handover], scene: &Scene<'_>) -> Result<()> {
    let timing = Timing::from_flags(&Flags::from_command(ELECTION));
    let period = timing.lease_duration.as_secs_f64();
    let expected = gap(timing, timing, 1);
    let (min, max) = (expected.min.as_secs_f64(), expected.max.as_secs_f64());
    for handover in handovers {
        println!(
            "{} to {}: {:.2} lease periods; predicted {:.2} to {:.2}",
            handover.from,
            handover.to,
            handover.gap() / period,
            min / period,
            max / period
        );
    }
    println!(
        "{} handovers; status at each sample: {:?}",
        handovers.len(),
        scene.verdicts
    );
    for handover in handovers {
        let gap = handover.gap();
        ensure!(
            (min..=max).contains(&gap),
            "a gap of {gap} s is not within {min} to {max} s"
        );
    }
    Ok(())
}

/// Every Node got its range from exactly one program: the one that ran Node IPAM at that time.
fn each_node_has_one_writer(first: &str, handovers: &[Handover], writes: &[PodCidrWrite]) -> Result<()> {
    let mut nodes: BTreeMap<&str, &PodCidrWrite> = BTreeMap::new();
    let mut programs: BTreeMap<&str, usize> = BTreeMap::new();
    for write in writes {
        let other = nodes.insert(&write.node, write);
        ensure!(other.is_none(), "{write:?} and {other:?}");
        *programs.entry(&write.program).or_default() += 1;
        let last = handovers.iter().rfind(|handover| handover.acquired <= write.at);
        let owner = last.map_or(first, |handover| &handover.to);
        ensure!(write.program == owner, "{owner} ran Node IPAM, but: {write:?}");
        let killed = handovers.iter().find(|handover| handover.acquired > write.at);
        ensure!(
            killed.is_none_or(|handover| write.at <= handover.killed),
            "written while the lock {MIGRATION} had no living holder: {write:?}"
        );
    }
    println!("writes of podCIDR by program: {programs:?}");
    ensure!(programs.len() == 2, "both programs write: {programs:?}");
    Ok(())
}
