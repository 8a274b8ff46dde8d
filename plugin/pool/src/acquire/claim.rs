//! A cluster from Hive, requested by a ClusterClaim. Its customization is the one that Hive gave it.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use jiff::Timestamp;
use kcp_client::{Created, Error, Written};

use crate::{
    acquire::{
        answer::{ClaimAfterTimeout, LeaseAnswer, LeaseOutcome, LeaseRefusal},
        wait::{Progress, Timeout},
    },
    objects::{cluster_pool::Claim, entry::Holder},
    store::{Customizations as _, Store},
};

/// How often a claim is created, or read back, whose answers get lost.
const MAX_ATTEMPTS: usize = 5;

/// Before it is read back.
const REST: Duration = Duration::from_millis(200);

/// Asks Hive for a cluster of the pool, and waits for it. If none arrives in time, the claim is deleted, unless the
/// caller keeps it or did not create it.
///
/// # Errors
/// If the API server cannot be asked.
pub async fn claim(
    store: &Store<'_>,
    holder: Holder<'_>,
    timeout: Timeout,
    keep: bool,
    progress: &impl Progress,
) -> Result<LeaseAnswer, Error> {
    let name = holder.cluster_deployment;
    let answer = |outcome| LeaseAnswer::new(store.namespace(), holder, outcome);
    let refused = |refusal| Ok(answer(LeaseOutcome::Refused(refusal)));
    let pool = store.pool(holder.pool).await?;
    if !pool.is_run_by_hive() {
        return refused(LeaseRefusal::NotRunByHive {
            pool: holder.pool.to_owned(),
        });
    }
    let (mut claim, is_ours) = made(store, holder).await?;
    if claim.spec.cluster_pool_name != holder.pool {
        return refused(LeaseRefusal::ClaimOfOtherPool {
            claim: name.to_owned(),
            pool: claim.spec.cluster_pool_name,
        });
    }
    let random = RandomState::new();
    let mut polls = 0_u64;
    let mut reported = String::new();
    loop {
        let why = match poll(store, &claim, holder).await {
            Ok(Observation::Given {
                customization,
                cluster,
            }) => {
                return Ok(LeaseAnswer {
                    cluster_deployment: cluster,
                    ..answer(LeaseOutcome::Claimed {
                        name: name.to_owned(),
                        customization,
                    })
                });
            }
            Ok(Observation::Over(refusal)) => return refused(refusal),
            Ok(Observation::Pending(why)) => why,
            Err(error) if error.may_pass() => error.to_string(),
            Err(error) => return Err(error),
        };
        let now = Timestamp::now();
        let Some(pause) = timeout.until_next(now, random.hash_one(polls)) else {
            let after = if keep {
                ClaimAfterTimeout::Kept
            } else if is_ours {
                delete(store, &claim).await?;
                ClaimAfterTimeout::Deleted
            } else {
                ClaimAfterTimeout::Foreign
            };
            let pending = LeaseRefusal::ClaimPending { why, claim: after };
            return Ok(answer(LeaseOutcome::Refused(pending)).timed_out(timeout.waited(now)));
        };
        if why != reported {
            progress.waiting(&why);
            reported = why;
        }
        polls += 1;
        tokio::time::sleep(pause).await;
        match store.claim(name).await {
            Ok(Some(found)) if found.metadata.uid == claim.metadata.uid => claim = found,
            Ok(_) => {
                return refused(LeaseRefusal::ClaimDeleted {
                    claim: name.to_owned(),
                });
            }
            // The next poll reports it.
            Err(error) if error.may_pass() => {}
            Err(error) => return Err(error),
        }
    }
}

/// The state of a claim.
enum Observation {
    Given {
        customization: Option<String>,
        cluster: String,
    },
    Pending(String),
    /// It will not get a cluster, or not keep it.
    Over(LeaseRefusal),
}

/// Everyone who may write claims can write any cluster's name into one, so the claim that the cluster names decides.
async fn poll(store: &Store<'_>, claim: &Claim, holder: Holder<'_>) -> Result<Observation, Error> {
    let name = &claim.metadata.name;
    if claim.metadata.is_deleting() {
        return Ok(Observation::Over(LeaseRefusal::ClaimDeleting {
            claim: name.clone(),
        }));
    }
    let pending = || Observation::Pending(format!("ClusterClaim {name} is pending: {}", claim.pending()));
    let Some(cluster) = claim.cluster() else {
        return Ok(pending());
    };
    // Its namespace has its name.
    let Some(deployment) = store.cluster(cluster, cluster).await? else {
        return Ok(pending());
    };
    if !deployment.is_of(store.namespace(), holder.pool) || deployment.claim() != Some(name) {
        return Ok(Observation::Pending(format!(
            "ClusterClaim {name} names ClusterDeployment {cluster}, which does not name the claim"
        )));
    }
    if deployment.metadata.is_deleting() {
        return Ok(Observation::Over(LeaseRefusal::ClaimedClusterDeleting {
            claim: name.clone(),
            cluster_deployment: cluster.to_owned(),
        }));
    }
    Ok(Observation::Given {
        customization: deployment.customization().map(str::to_owned),
        cluster: cluster.to_owned(),
    })
}

/// The claim of this name, and whether this command created it.
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
        goal: format!("create ClusterClaim {}", holder.cluster_deployment),
        attempts: MAX_ATTEMPTS,
    }))
}

/// Deletes a claim. Hive deprovisions its cluster.
///
/// # Errors
/// If the API server cannot be asked.
pub async fn delete(store: &Store<'_>, claim: &Claim) -> Result<(), Error> {
    let mut unanswered = None;
    for _ in 0..MAX_ATTEMPTS {
        match store.delete_claim(claim).await? {
            // `Changed`: another claim has the name now.
            Written::Stored | Written::Changed => return Ok(()),
            Written::Unknown(error) => {
                unanswered = Some(error);
                store.rest(REST).await;
            }
        }
    }
    unanswered.map_or(Ok(()), Err)
}
