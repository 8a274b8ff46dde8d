//! `pool lease --claim`: where Hive runs, a cluster is asked for, and its customization is the one that Hive gave it.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use jiff::Timestamp;

use super::{
    claims::Claim,
    document::{PoolLease, Reason},
    entry::Holder,
    entry_state::PoolName,
    patience::Patience,
    store::{Customizations as _, Store},
};
use crate::{
    cluster::{Created, Error, Written},
    terminal::Terminal,
};

/// How often a claim is made, or read back, whose answers get lost.
const MAX_ATTEMPTS: usize = 5;

/// Before it is read back.
const REST: Duration = Duration::from_millis(200);

/// Asks Hive for a cluster of the pool, and waits until it has one. When the time is over the claim is deleted, unless
/// it is to be kept.
///
/// # Errors
/// When the API server cannot be asked.
pub(super) async fn claim(
    store: &Store<'_>,
    holder: Holder<'_>,
    patience: Patience,
    keep: bool,
    terminal: &Terminal,
) -> anyhow::Result<PoolLease> {
    let pool_name = PoolName {
        namespace: store.namespace().to_owned(),
        name: holder.pool.to_owned(),
    };
    let name = holder.cluster_deployment;
    let refused = |reason, message| Ok(PoolLease::refused(pool_name.clone(), name, reason, message));
    let pool = store.pool(holder.pool).await?;
    if !pool.is_run_by_hive() {
        let message = format!(
            "Hive does not run pool {}: nobody would answer a claim",
            holder.pool
        );
        return refused(Reason::Blocked, message);
    }
    let mut claim = made(store, holder).await?;
    if claim.spec.cluster_pool_name != holder.pool {
        let message = format!(
            "there is a ClusterClaim {name} on pool {}",
            claim.spec.cluster_pool_name
        );
        return refused(Reason::Blocked, message);
    }
    let random = RandomState::new();
    let mut looks = 0_u64;
    let mut told = String::new();
    loop {
        if let Some(cluster) = claim.cluster() {
            // Its namespace has its name.
            if let Some(deployment) = store.cluster(cluster, cluster).await? {
                let customization = deployment.customization();
                return Ok(PoolLease::claimed(pool_name, cluster, customization, name));
            }
        }
        let why = format!("ClusterClaim {name} is pending: {}", claim.pending());
        let now = Timestamp::now();
        let Some(rest) = patience.rest(now, random.hash_one(looks)) else {
            if !keep {
                delete(store, &claim).await?;
            }
            let what_then = if keep { "is kept" } else { "was deleted" };
            let message = format!("{why}; it {what_then}");
            return refused(Reason::Timeout, message)
                .map(|refused: PoolLease| refused.timed_out(patience.waited(now)));
        };
        if why != told {
            terminal.note(&format!("waiting: {why}"));
            told = why;
        }
        looks += 1;
        tokio::time::sleep(rest).await;
        match store.claim(name).await {
            Ok(Some(found)) if found.metadata.uid == claim.metadata.uid => claim = found,
            Ok(_) => {
                return refused(
                    Reason::Blocked,
                    format!("ClusterClaim {name} was deleted meanwhile"),
                );
            }
            Err(error) if error.may_pass() => terminal.note(&format!("waiting: {error}")),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The claim of this name, made if there is none.
async fn made(store: &Store<'_>, holder: Holder<'_>) -> Result<Claim, Error> {
    let mut unanswered = None;
    for _ in 0..MAX_ATTEMPTS {
        if let Some(claim) = store.claim(holder.cluster_deployment).await? {
            return Ok(claim);
        }
        if let Created::Unknown(error) = store.create_claim(holder).await? {
            unanswered = Some(error);
            store.rest(REST).await;
        }
    }
    Err(unanswered.unwrap_or_else(|| Error::Contended {
        goal: format!("make ClusterClaim {}", holder.cluster_deployment),
        attempts: MAX_ATTEMPTS,
    }))
}

/// Gives a claim up: Hive takes its cluster down, if it has one.
///
/// # Errors
/// When the API server cannot be asked.
pub(super) async fn delete(store: &Store<'_>, claim: &Claim) -> Result<(), Error> {
    let mut unanswered = None;
    for _ in 0..MAX_ATTEMPTS {
        match store.delete_claim(claim).await? {
            // Another of the same name is not ours.
            Written::Stored | Written::Changed => return Ok(()),
            Written::Unknown(error) => {
                unanswered = Some(error);
                store.rest(REST).await;
            }
        }
    }
    unanswered.map_or(Ok(()), Err)
}
