//! A cluster from Hive, requested by a ClusterClaim. Its customization is the one that Hive gave it.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use jiff::Timestamp;
use kcp_api::{ClusterClaim, metadata::Object as _};
use kcp_client::{CreateResult, Error, Written};
use serde_json::Value;

use crate::{
    acquire::{
        answer::{ClaimAfterTimeout, LeaseAnswer, LeaseOutcome, LeaseRefusal},
        wait::{Progress, Timeout},
    },
    hive::HiveMode,
    objects::Holder,
    store::{LeaseStore as _, Store},
};

/// How often a claim is created, or read back, whose answers get lost.
const MAX_ATTEMPTS: usize = 5;

/// Before it is read back.
const REST: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub struct ClaimRequest<'r> {
    pub holder: Holder<'r>,
    pub timeout: Timeout,
    /// Whether a claim of ours that gets no cluster is kept.
    pub keep: bool,
    /// How long Hive keeps the cluster, as a Go duration.
    pub lifetime: Option<&'r str>,
    /// Who may use the cluster.
    pub subjects: &'r [Value],
    pub hive: HiveMode,
}

/// Asks Hive for a cluster of the pool, and waits for it. If it gets none, for whatever reason, the claim is deleted,
/// unless the caller keeps it or did not create it.
///
/// # Errors
/// If the API server cannot be asked.
pub async fn claim(
    store: &Store<'_>,
    request: &ClaimRequest<'_>,
    progress: &impl Progress,
) -> Result<LeaseAnswer, Error> {
    let holder = request.holder;
    let name = holder.cluster_deployment;
    let answer = |outcome| LeaseAnswer::new(store.namespace(), holder, outcome);
    let refused = |refusal| Ok(answer(LeaseOutcome::Refused(refusal)));
    let conclusion = store
        .hive(request.hive)
        .await?
        .of(&store.pool(holder.pool).await?);
    if !conclusion.runs {
        return refused(LeaseRefusal::NotRunByHive {
            pool: holder.pool.to_owned(),
            because: conclusion.because,
        });
    }
    let (claim, is_ours) = made(store, request).await?;
    if claim.spec.cluster_pool_name != holder.pool {
        return refused(LeaseRefusal::ClaimOfOtherPool {
            claim: name.to_owned(),
            pool: claim.spec.cluster_pool_name,
        });
    }
    let uid = claim.uid().to_owned();
    let waited = wait(store, claim, request, progress).await;
    if let Ok(Waited::Given {
        customization,
        cluster,
    }) = waited
    {
        let name = name.to_owned();
        let outcome = LeaseOutcome::Claimed { name, customization };
        return Ok(LeaseAnswer {
            cluster_deployment: cluster,
            ..answer(outcome)
        });
    }
    let after = match (request.keep, is_ours) {
        (true, _) => ClaimAfterTimeout::Kept,
        (false, false) => ClaimAfterTimeout::Foreign,
        (false, true) => ClaimAfterTimeout::Deleted,
    };
    if after == ClaimAfterTimeout::Deleted
        && let Some(claim) = store.claim(name).await?.filter(|claim| claim.uid() == uid)
    {
        delete(store, &claim).await?;
    }
    match waited? {
        Waited::Over(refusal) => refused(refusal),
        Waited::TimedOut { why, waited } => {
            let pending = LeaseRefusal::ClaimPending { why, claim: after };
            Ok(answer(LeaseOutcome::Refused(pending)).timed_out(waited))
        }
        Waited::Given { .. } => refused(LeaseRefusal::ClaimDeleted {
            claim: name.to_owned(),
        }),
    }
}

/// The end of a wait.
enum Waited {
    Given {
        customization: Option<String>,
        cluster: String,
    },
    /// It will not get a cluster, or not keep it.
    Over(LeaseRefusal),
    TimedOut {
        why: String,
        waited: Duration,
    },
}

async fn wait(
    store: &Store<'_>,
    mut claim: ClusterClaim,
    request: &ClaimRequest<'_>,
    progress: &impl Progress,
) -> Result<Waited, Error> {
    let (name, timeout) = (request.holder.cluster_deployment, request.timeout);
    let random = RandomState::new();
    let mut polls = 0_u64;
    let mut reported = String::new();
    loop {
        let why = match poll(store, &claim, request.holder).await {
            Ok(Observation::Ended(waited)) => return Ok(waited),
            Ok(Observation::Pending(why)) => why,
            Err(error) if error.is_transient() => error.to_string(),
            Err(error) => return Err(error),
        };
        let now = Timestamp::now();
        let Some(pause) = timeout.until_next(now, random.hash_one(polls)) else {
            let waited = timeout.waited(now);
            return Ok(Waited::TimedOut { why, waited });
        };
        if why != reported {
            progress.waiting(&why);
            reported = why;
        }
        polls += 1;
        tokio::time::sleep(pause).await;
        match store.claim(name).await {
            Ok(Some(found)) if found.uid() == claim.uid() => claim = found,
            Ok(_) => {
                return Ok(Waited::Over(LeaseRefusal::ClaimDeleted {
                    claim: name.to_owned(),
                }));
            }
            // The next poll reports it.
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
    }
}

/// The state of a claim.
enum Observation {
    Ended(Waited),
    Pending(String),
}

/// Everyone who may write claims can write any cluster's name into one, so the claim that the cluster names decides.
async fn poll(store: &Store<'_>, claim: &ClusterClaim, holder: Holder<'_>) -> Result<Observation, Error> {
    let name = claim.name();
    if claim.is_deleting() {
        return Ok(Observation::Ended(Waited::Over(LeaseRefusal::ClaimDeleting {
            claim: name.to_owned(),
        })));
    }
    let pending = || {
        Observation::Pending(format!(
            "ClusterClaim {name} is pending: {}",
            claim.pending().unwrap_or("Hive has not processed it yet")
        ))
    };
    let Some(cluster) = claim.cluster_deployment() else {
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
    if deployment.is_deleting() {
        return Ok(Observation::Ended(Waited::Over(
            LeaseRefusal::ClaimedClusterDeleting {
                claim: name.to_owned(),
                cluster_deployment: cluster.to_owned(),
            },
        )));
    }
    Ok(Observation::Ended(Waited::Given {
        customization: deployment.customization().map(str::to_owned),
        cluster: cluster.to_owned(),
    }))
}

/// The claim of this name, and whether this command created it.
async fn made(store: &Store<'_>, request: &ClaimRequest<'_>) -> Result<(ClusterClaim, bool), Error> {
    let holder = request.holder;
    let mut unanswered = None;
    for attempt in 0..MAX_ATTEMPTS {
        if let Some(claim) = store.claim(holder.cluster_deployment).await? {
            return Ok((claim, attempt > 0));
        }
        if let CreateResult::Unknown(error) = store
            .create_claim(holder, request.lifetime, request.subjects)
            .await?
        {
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
pub async fn delete(store: &Store<'_>, claim: &ClusterClaim) -> Result<(), Error> {
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
