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

/// What is known of the holder of a customization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderState<'s> {
    /// A cluster of its name is there, and not yet taken down.
    Alive(&'s ClusterDeployment),
    /// Its lease has not ended yet.
    Leasing,
    Gone(Proof),
    /// It has had the customization for less than the grace time.
    Recent,
    /// Nothing proves that it is gone, and nothing that it is not.
    Unverifiable,
}

/// Why a holder is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Its lease ended, and it has not renewed it.
    Expired { at: Timestamp },
    /// Its lease was taken away, and the customization not yet freed.
    Revoked,
    /// Its cluster was seen once, and is there no more.
    ClusterGone { uid: String },
    /// Its cluster was deleted, and nothing but our finalizer keeps it.
    ClusterTakenDown { namespace: String },
}

/// After a comma, of a holder.
impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { at } => write!(f, "whose lease ended at {}", at.strftime("%Y-%m-%dT%H:%M:%SZ")),
            Self::Revoked => f.write_str("whose lease was taken away"),
            Self::ClusterGone { .. } => f.write_str("whose ClusterDeployment was there and is gone"),
            Self::ClusterTakenDown { .. } => f.write_str("whose ClusterDeployment is taken down"),
        }
    }
}

/// The state of the holder that the entry's references name; none where they name no `ClusterDeployment`.
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
        // That another cluster of its name goes says nothing of this holder.
        if was_seen(cluster) || is_made_with(snapshot, cluster, entry) {
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

/// The entry's record, where it is about the holder that the entry names.
pub fn recorded<'s>(snapshot: &'s Snapshot, entry: &Entry) -> Option<&'s Record> {
    let holder = Holder {
        pool: entry.pool()?,
        cluster_deployment: entry.cluster_deployment()?,
    };
    snapshot
        .record(entry.name())
        .filter(|record| record.names(holder))
}

/// Made for the entry's pool, with the entry.
fn is_made_with(snapshot: &Snapshot, cluster: &ClusterDeployment, entry: &Entry) -> bool {
    cluster.customization() == Some(entry.name()) && is_of_pool(snapshot, cluster, entry.pool())
}

/// Where the pool is not known, any of the namespace.
fn is_of_pool(snapshot: &Snapshot, cluster: &ClusterDeployment, pool: Option<&str>) -> bool {
    cluster.pool_reference.as_ref().is_some_and(|reference| {
        reference.namespace == snapshot.namespace && pool.is_none_or(|pool| reference.pool_name == pool)
    })
}

/// In the namespace of that name, where Hive and we put a cluster, or made for the pool, anywhere.
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
