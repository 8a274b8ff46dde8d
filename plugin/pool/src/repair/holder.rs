//! Whether the holder of a customization is gone, and what proves it. Pure.

use std::fmt;

use jiff::Timestamp;

use crate::{
    objects::{
        cluster_deployment::{ClusterDeployment, Life},
        entry::{Entry, Holder},
        record::Record,
    },
    repair::options::Clock,
    snapshot::Snapshot,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderState<'s> {
    /// A ClusterDeployment of its name exists and is not deprovisioned.
    Alive(&'s ClusterDeployment),
    /// Its lease has not expired.
    Leasing,
    Gone(Proof),
    /// It has held the customization for less than the grace period.
    Recent,
    /// Neither is proven.
    Unverifiable,
}

/// Why a holder is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Its lease expired without a renewal.
    Expired { at: Timestamp },
    /// Its lease was revoked, and the customization is not free yet.
    Revoked,
    /// Its ClusterDeployment was seen once, and is gone.
    ClusterGone { uid: String },
    /// Its ClusterDeployment was deleted and waits for our finalizer alone.
    ClusterTakenDown { namespace: String },
}

/// Follows the holder's name and a comma.
impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { at } => write!(f, "whose lease expired at {}", at.strftime("%Y-%m-%dT%H:%M:%SZ")),
            Self::Revoked => f.write_str("whose lease was revoked"),
            Self::ClusterGone { .. } => f.write_str("whose ClusterDeployment is gone"),
            Self::ClusterTakenDown { .. } => f.write_str("whose ClusterDeployment is deprovisioned"),
        }
    }
}

/// The state of the holder that the entry names; none if it names no ClusterDeployment.
pub fn holder_state<'s>(snapshot: &'s Snapshot, entry: &Entry, clock: Clock) -> Option<HolderState<'s>> {
    let name = entry.cluster_deployment()?;
    let record = recorded(snapshot, entry);
    let was_seen = |cluster: &ClusterDeployment| {
        let uid = record.and_then(Record::cluster_deployment_uid);
        uid == Some(cluster.metadata.uid.as_str())
    };
    let mut taken_down = None;
    for cluster in snapshot.deployments.iter() {
        if !is_of_name(snapshot, cluster, name, entry.pool()) && !was_seen(cluster) {
            continue;
        }
        if cluster.life() != Life::Over {
            return Some(HolderState::Alive(cluster));
        }
        // Another cluster with the same name proves nothing about this holder.
        if was_seen(cluster) || uses_entry(snapshot, cluster, entry) {
            taken_down = Some(&cluster.metadata.namespace);
        }
    }
    let is_renewed = record.is_some_and(|record| {
        !record.is_revoked() && record.expires().is_some_and(|expires| expires > clock.now)
    });
    Some(match taken_down {
        Some(namespace) if !is_renewed => HolderState::Gone(Proof::ClusterTakenDown {
            namespace: namespace.clone(),
        }),
        _ => without_cluster(entry, record, clock),
    })
}

/// The entry's record, if it names the entry's holder.
pub fn recorded<'s>(snapshot: &'s Snapshot, entry: &Entry) -> Option<&'s Record> {
    let holder = Holder {
        pool: entry.pool()?,
        cluster_deployment: entry.cluster_deployment()?,
    };
    snapshot
        .record(entry.name())
        .filter(|record| record.names(holder))
}

/// Of the entry's pool, and using the entry.
fn uses_entry(snapshot: &Snapshot, cluster: &ClusterDeployment, entry: &Entry) -> bool {
    cluster.customization() == Some(entry.name()) && is_of_pool(snapshot, cluster, entry.pool())
}

/// Of any pool of the namespace, if the pool is unknown.
fn is_of_pool(snapshot: &Snapshot, cluster: &ClusterDeployment, pool: Option<&str>) -> bool {
    cluster.pool_reference.as_ref().is_some_and(|reference| {
        reference.namespace == snapshot.namespace && pool.is_none_or(|pool| reference.pool_name == pool)
    })
}

/// In the namespace of that name, where Hive and this crate create a cluster, or of the pool, in any namespace.
fn is_of_name(snapshot: &Snapshot, cluster: &ClusterDeployment, name: &str, pool: Option<&str>) -> bool {
    cluster.name() == name && (cluster.metadata.namespace == name || is_of_pool(snapshot, cluster, pool))
}

fn without_cluster(entry: &Entry, record: Option<&Record>, clock: Clock) -> HolderState<'static> {
    if let Some(record) = record {
        if record.is_revoked() {
            return HolderState::Gone(Proof::Revoked);
        }
        match record.expires() {
            Some(at) if at <= clock.now => return HolderState::Gone(Proof::Expired { at }),
            Some(_) => return HolderState::Leasing,
            None => {}
        }
    }
    if !clock.is_past_grace(entry.since().or(entry.metadata.creation_timestamp)) {
        return HolderState::Recent;
    }
    match record.and_then(Record::cluster_deployment_uid) {
        Some(uid) => HolderState::Gone(Proof::ClusterGone { uid: uid.to_owned() }),
        None => HolderState::Unverifiable,
    }
}
