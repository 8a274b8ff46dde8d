//! Deletes the Leases that a migration left behind.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use kcp_client::{
    Connection, DeleteRequest, Written, reads::leader_migration::permissions::LEASE, update::WriteMode,
};
use kcp_control_plane::leader_migration::{ObservedLock, ObservedManagers};

use crate::{
    arguments::DryRun, change::arguments::WriteArguments, document::resource_name, terminal::Terminal,
    verdict::Verdict,
};

/// The duration of a Lease without leaseDurationSeconds: kube-controller-manager's default.
const DURATION: Duration = Duration::from_secs(15);

/// Deletes each Lease that no controller manager uses, unless a process renews it within its duration. As in leader
/// election, this process measures the duration, because the clocks of machines can differ.
///
/// # Errors
/// A Lease cannot be deleted, or the result cannot be printed.
pub(super) async fn delete(
    cluster: &Connection,
    observed: &ObservedManagers,
    arguments: &WriteArguments,
    terminal: &Terminal,
) -> anyhow::Result<Verdict> {
    let mut verdict = Verdict::Met;
    for lock in observed.leftover_locks() {
        let name = resource_name(&LEASE, &lock.lock.name);
        let done = match delete_one(cluster, lock, arguments.mode()).await? {
            Written::Stored => format!("{name} deleted{}", DryRun::suffix(arguments.dry_run)),
            Written::Changed => {
                verdict = Verdict::Negative;
                format!("{name} not deleted: another process renews it")
            }
            Written::Unknown(error) => return Err(error).context(format!("deleting {name}")),
        };
        if arguments.output.is_text() {
            terminal.print_line(&done).context("cannot write to stdout")?;
        } else {
            terminal.note(&done);
        }
    }
    Ok(verdict)
}

async fn delete_one(cluster: &Connection, lock: &ObservedLock, mode: WriteMode) -> anyhow::Result<Written> {
    let lease = lock.lease.as_ref().ok().and_then(Option::as_ref);
    let lease = lease.with_context(|| format!("Lease {} could not be read", lock.lock.name))?;
    let Some(uid) = &lease.uid else {
        return Err(anyhow!("Lease {} has no uid", lock.lock.name));
    };
    if mode == WriteMode::ClientDryRun {
        return Ok(Written::Stored);
    }
    tokio::time::sleep(lease.duration.unwrap_or(DURATION)).await;
    let delete = DeleteRequest {
        resource: &LEASE.api_resource("v1"),
        namespace: Some(&lock.lock.namespace),
        name: &lock.lock.name,
        uid,
        resource_version: lease.resource_version.as_deref(),
        dry_run: mode == WriteMode::ServerDryRun,
    };
    match cluster.delete(&delete).await {
        Err(kcp_client::Error::NotFound { .. }) => Ok(Written::Stored),
        deleted => Ok(deleted?),
    }
}
