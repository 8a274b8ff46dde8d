//! `pool lease --claim`: where Hive runs, a cluster is asked for, and its customization is the one that Hive gave it.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    cluster::{Created, Error, Written},
    pool::{
        document::{PoolLease, Reason},
        inventory::entry_state::PoolName,
        lease::patience::Patience,
        objects::{claims::Claim, entry::Holder},
        store::{Customizations as _, Store},
    },
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
    let (mut claim, is_ours) = made(store, holder).await?;
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
        let why = match look(store, &claim, holder).await {
            Ok(Look::Given(customization, cluster)) => {
                return Ok(PoolLease::claimed(
                    pool_name,
                    &cluster,
                    customization.as_deref(),
                    name,
                ));
            }
            Ok(Look::Over(why)) => return refused(Reason::Blocked, why),
            Ok(Look::Pending(why)) => why,
            Err(error) if error.may_pass() => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        let now = Timestamp::now();
        let Some(rest) = patience.rest(now, random.hash_one(looks)) else {
            let what_then = if keep {
                "it is kept"
            } else if is_ours {
                delete(store, &claim).await?;
                "it was deleted"
            } else {
                "it was there before, and is kept"
            };
            let message = format!("{why}; {what_then}");
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
            // The next look tells.
            Err(error) if error.may_pass() => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// How a claim stands.
enum Look {
    /// Its customization, if it has one, and its cluster.
    Given(Option<String>, String),
    Pending(String),
    /// It will not be given one, or not for long.
    Over(String),
}

/// Anybody who may write claims may write any cluster's name into one: what counts is whom the cluster names.
async fn look(store: &Store<'_>, claim: &Claim, holder: Holder<'_>) -> Result<Look, Error> {
    let name = &claim.metadata.name;
    if claim.metadata.is_deleting() {
        return Ok(Look::Over(format!("ClusterClaim {name} is being deleted")));
    }
    let pending = || Look::Pending(format!("ClusterClaim {name} is pending: {}", claim.pending()));
    let Some(cluster) = claim.cluster() else {
        return Ok(pending());
    };
    // Its namespace has its name.
    let Some(deployment) = store.cluster(cluster, cluster).await? else {
        return Ok(pending());
    };
    if !deployment.is_of(store.namespace(), holder.pool) || deployment.claim() != Some(name) {
        return Ok(Look::Pending(format!(
            "ClusterClaim {name} names ClusterDeployment {cluster}, which does not name it"
        )));
    }
    if deployment.metadata.is_deleting() {
        return Ok(Look::Over(format!(
            "ClusterDeployment {cluster} of ClusterClaim {name} is being deleted"
        )));
    }
    let customization = deployment.customization().map(str::to_owned);
    Ok(Look::Given(customization, cluster.to_owned()))
}

/// The claim of this name, and whether it was made here: if there was none.
async fn made(store: &Store<'_>, holder: Holder<'_>) -> Result<(Claim, bool), Error> {
    let mut unanswered = None;
    for attempt in 0..MAX_ATTEMPTS {
        if let Some(claim) = store.claim(holder.cluster_deployment).await? {
            return Ok((claim, attempt > 0));
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
