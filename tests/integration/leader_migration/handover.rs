//! The time from the death of a holder until another controller manager holds the lock, in lease periods.

#![expect(clippy::print_stdout, reason = "the measured times are part of the result")]

use anyhow::{Context as _, Result};
use futures_util::future::try_join3;
use jiff::Timestamp;
use kcp_rules::leader_migration::Flags;
use kcp_rules::leader_migration::handover::{Timing, gap};
use kcp_tests::controller_manager::{ControllerManager, ControllerManagers, Identity, Locks, Program};
use kcp_tests::management_cluster::ManagementCluster;

use super::{CANONICAL, ELECTION, MIGRATION, configuration};
use crate::shared::with_management_cluster;

#[test]
fn a_killed_holder_is_replaced_after_the_time_that_the_model_says() {
    with_management_cluster(async |management| killed(management).await.unwrap());
}

async fn killed(management: &ManagementCluster) -> Result<()> {
    let programs = management.controller_managers(management.api(), "handover")?;
    let measured = try_join3(
        to_a_waiting_manager(management, &programs),
        between_replicas(management, &programs),
        between_kube_controller_managers(management, &programs),
    );
    let (to_waiting, between_replicas, between_main_locks) = measured.await?;
    let timing = Timing::from_flags(&Flags::from_command(ELECTION));
    for (what, measured, locks) in [
        ("to a manager that waits for the migration lock", to_waiting, 1),
        (
            "between replicas, main lock and migration lock",
            between_replicas,
            2,
        ),
        (
            "between kube-controller-managers, main lock",
            between_main_locks,
            1,
        ),
    ] {
        let expected = gap(timing, timing, locks);
        println!(
            "{what}: {:.2} lease periods; expected {:.2} to {:.2}",
            measured / timing.lease_duration.as_secs_f64(),
            expected.min.as_secs_f64() / timing.lease_duration.as_secs_f64(),
            expected.max.as_secs_f64() / timing.lease_duration.as_secs_f64(),
        );
        // A busy machine makes a gap longer, but never shorter.
        assert!(measured >= expected.min.as_secs_f64(), "{what}: {measured} s");
    }
    Ok(())
}

/// The manager of another main lock waits for the migration lock already.
async fn to_a_waiting_manager(management: &ManagementCluster, programs: &ControllerManagers) -> Result<f64> {
    let locks = locks(management, "handover-waiting").await?;
    let mut first = start(programs, Program::Cloud, &locks, "waiting-first", "first").await?;
    let holder = locks.held(MIGRATION).await?;
    let mut second = start(programs, Program::Cloud, &locks, "waiting-second", "second").await?;
    locks.held("second").await?;
    second.logged(&attempt(&locks, MIGRATION)).await?;
    let killed = Timestamp::now();
    first.kill().await?;
    acquired(&locks, MIGRATION, &holder, killed).await
}

/// A replica waits for the main lock, and afterwards for the migration lock.
async fn between_replicas(management: &ManagementCluster, programs: &ControllerManagers) -> Result<f64> {
    let locks = locks(management, "handover-replicas").await?;
    let mut first = start(programs, Program::Cloud, &locks, "replicas-first", "main").await?;
    let holder = locks.held(MIGRATION).await?;
    let mut second = start(programs, Program::Cloud, &locks, "replicas-second", "main").await?;
    second.logged(&attempt(&locks, "main")).await?;
    let killed = Timestamp::now();
    first.kill().await?;
    acquired(&locks, MIGRATION, &holder, killed).await
}

/// kube-controller-manager 1.36 without leader migration.
async fn between_kube_controller_managers(
    management: &ManagementCluster,
    programs: &ControllerManagers,
) -> Result<f64> {
    let locks = locks(management, "handover-kube").await?;
    let mut first = start(programs, Program::Kube, &locks, "kube-first", "main").await?;
    let holder = locks.held("main").await?;
    let mut second = start(programs, Program::Kube, &locks, "kube-second", "main").await?;
    second.logged(&attempt(&locks, "main")).await?;
    let killed = Timestamp::now();
    first.kill().await?;
    acquired(&locks, "main", &holder, killed).await
}

async fn locks(management: &ManagementCluster, namespace: &str) -> Result<Locks> {
    management.create_namespace(namespace).await?;
    Ok(Locks::in_namespace(management.client(), namespace))
}

async fn start(
    programs: &ControllerManagers,
    program: Program,
    locks: &Locks,
    name: &str,
    main_lock: &str,
) -> Result<ControllerManager> {
    let mut flags = programs.flags(program, Identity::Administrator, locks);
    flags.extend(ELECTION.map(str::to_owned));
    flags.push(format!("--leader-elect-resource-name={main_lock}"));
    if program == Program::Cloud {
        let file = programs.file(&format!("{name}.yaml"), &configuration(&CANONICAL))?;
        flags.push("--enable-leader-migration=true".to_owned());
        flags.push(format!("--leader-migration-config={}", file.display()));
    }
    programs.start(program, name, &flags).await
}

/// What a candidate logs when it tries to take a lock for the first time (client-go, `leaderelection.go`).
fn attempt(locks: &Locks, name: &str) -> String {
    format!("lock=\"{}/{name}\"", locks.namespace())
}

/// The seconds from the death of the holder until another one acquired the lock.
async fn acquired(locks: &Locks, lock: &str, holder: &str, killed: Timestamp) -> Result<f64> {
    let lease = locks.held_by_another(lock, holder).await?;
    let acquired = lease.acquire_time.context("the Lease has no acquireTime")?;
    Ok(acquired.0.duration_since(killed).as_secs_f64())
}
