//! Reads the controller managers of a workload cluster and their Leases.
//!
//! - [`cloud`]: reads the Deployment or `DaemonSet` of a cloud-controller-manager
//! - [`pods`]: reads the Pods of controller managers
//! - [`manager`]: reads which controllers a controller manager runs, and its settings
//! - [`lease`]: reads the Lease of a lock

pub mod cloud;
pub mod lease;
pub mod manager;
pub mod pods;

use std::time::Instant;

pub use cloud::{WorkloadKind, read_cloud_workload};
use futures_util::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kcp_api::KubeadmControlPlane;
use kcp_control_plane::{
    leader_migration::{LockRole, ObservedLease, ObservedLock, ObservedManagers, locks, unused_locks},
    snapshot::Failure,
};
use kcp_rules::{leader_migration::Lock, syntax::is_dns1123_subdomain};
use kube::api::ListParams;

use crate::{
    Connection,
    reads::{
        leader_migration::{lease::observed_lease, manager::ManagerReader},
        secret::Secrets,
        time_limits,
        workload::{KUBE_SYSTEM, WorkloadCluster},
    },
};

/// The number of parts into which the remaining time is divided: up to three requests to a controller manager in
/// sequence, and three for the Leases.
const REQUESTS: u32 = 6;

/// Reads the controller managers and their Leases in the workload cluster of a control plane, until `end` at the
/// latest. The Pods of cloud-controller-manager are in `cloud_namespace`.
pub async fn read_leader_migration(
    management: &Connection,
    control_plane: &KubeadmControlPlane,
    cloud_namespace: &str,
    end: Instant,
) -> ObservedManagers {
    let unread = |failure| ObservedManagers {
        now: management.now(),
        managers: Err(failure),
        locks: Vec::new(),
    };
    let cluster = match open(management, control_plane, end).await {
        Ok(cluster) => cluster,
        Err(failure) => return unread(failure),
    };
    let pods = match Box::pin(pods::read(&cluster, cloud_namespace)).await {
        Ok(pods) => pods,
        Err(failure) => return unread(failure),
    };
    let reader = ManagerReader {
        cluster: &cluster,
        control_plane,
        limit: time_limits::remaining(end) / REQUESTS,
    };
    let managers = join_all(pods.into_iter().map(|pod| reader.read(pod))).await;
    let mut locks = join_all(
        locks(&managers)
            .into_iter()
            .map(|(role, lock)| read_lock(&cluster, role, lock)),
    )
    .await;
    // If these Leases cannot be read, the report only misses the Leases that an earlier migration left
    // behind.
    let others = Box::pin(
        cluster
            .objects
            .list(Some(KUBE_SYSTEM), &ListParams::default(), named_lease),
    )
    .await;
    locks.extend(unused_locks(&locks, others.unwrap_or_default()));
    ObservedManagers {
        now: now(&cluster),
        managers: Ok(managers),
        locks,
    }
}

async fn open(
    management: &Connection,
    control_plane: &KubeadmControlPlane,
    end: Instant,
) -> Result<WorkloadCluster, Failure> {
    let secrets = Secrets::of_control_plane(management, control_plane, end)?;
    WorkloadCluster::open(&secrets).await
}

/// The API server's time, or this machine's time if no response had a date.
fn now(cluster: &WorkloadCluster) -> Timestamp {
    cluster
        .server
        .clock
        .now()
        .map_or_else(Timestamp::now, |time| time.earliest)
}

fn named_lease(lease: Lease) -> Option<(Lock, ObservedLease)> {
    let lock = Lock {
        namespace: lease.metadata.namespace.clone()?,
        name: lease.metadata.name.clone()?,
    };
    Some((lock, observed_lease(lease)))
}

async fn read_lock(cluster: &WorkloadCluster, role: LockRole, lock: Lock) -> ObservedLock {
    let names = [&lock.namespace, &lock.name];
    // A flag may set any name for a controller manager's lock, but no Lease can have an invalid name.
    if !names.iter().all(|name| is_dns1123_subdomain(name.as_bytes())) {
        let lease = Ok(None);
        return ObservedLock { role, lock, lease };
    }
    let read = cluster.objects.get::<Lease>(&lock.namespace, &lock.name).await;
    let lease = match read {
        Ok(lease) => Ok(lease.map(observed_lease)),
        Err(error) => Err(cluster.failures.describe(&format!("Lease/{}", lock.name), &error)),
    };
    ObservedLock { role, lock, lease }
}
