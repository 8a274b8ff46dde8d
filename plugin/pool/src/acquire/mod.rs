//! Acquires a lease, or a cluster, from a pool.
//!
//! - [`answer`]: the result
//! - [`wait`]: tries again until an entry is free
//! - [`create`]: a lease and its cluster, without Hive; [`claim`]: a cluster from Hive

pub mod answer;
pub mod claim;
pub mod create;
pub mod wait;

use std::time::Duration;

use jiff::Timestamp;
use kcp_client::Error;

use crate::{
    acquire::answer::{Lease, LeaseAnswer, LeaseOutcome, LeaseRefusal},
    install_config::InstallConfig,
    inventory::capacity::{Capacity, Findings, inventory_patch},
    lease::{Attempt, AttemptOutcome, AttemptRequest, LeaseError, attempt::attempt},
    objects::{
        cluster_deployment::Deployments,
        cluster_pool::{Pool, PoolName},
        entry::Holder,
        record::LeaseClaim,
    },
    store::Store,
};

/// How long a lease waits for the write of its pool's conditions.
const FOR_THE_POOL: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest<'w> {
    /// The holder and the duration. [`acquire`] finds out whether the ClusterDeployment exists.
    pub claim: LeaseClaim<'w>,
    pub install_config: Option<&'w InstallConfig>,
    /// Whether a lease under this name that exists already belongs to another process.
    pub is_new: bool,
}

/// Acquires a lease, if an entry is free now.
pub async fn acquire(store: &Store<'_>, request: LeaseRequest<'_>) -> Result<LeaseAnswer, LeaseError> {
    let holder = request.claim.holder;
    let pool = store.pool(holder.pool).await?;
    let deployments = match store.deployments().await {
        // Clusters are in their own namespaces, and a client may have rights in the pool's namespace only.
        Err(error @ Error::Forbidden { .. }) => Err(error),
        deployments => Ok(deployments?),
    };
    let seen = deployments.as_ref().ok();
    let answer = |outcome| LeaseAnswer::new(store.namespace(), holder, outcome);
    if let Some(refusal) = refusal(store, &pool, seen, holder).await? {
        return Ok(answer(LeaseOutcome::Refused(refusal)));
    }
    let references = seen.map(Deployments::by_customization);
    let cluster = seen.and_then(|deployments| deployments.proof_of_existence(holder));
    let attempted = AttemptRequest {
        names: &pool.inventory(),
        references: references.as_ref(),
        claim: LeaseClaim {
            cluster_deployment_uid: cluster.map(|cluster| cluster.metadata.uid.as_str()),
            ..request.claim
        },
        install_config: request.install_config,
        is_new: request.is_new,
        is_run_by_hive: pool.is_run_by_hive(),
    };
    let Attempt { outcome, entries } = attempt(store, attempted).await?;
    if let (Some(deployments), false) = (seen, pool.is_run_by_hive()) {
        let capacity = Capacity::of(&pool, deployments.of_pool(holder.pool));
        let findings = Findings {
            entries: &entries,
            broken: &outcome.broken(),
        };
        if let Some(patch) = inventory_patch(&pool, findings, &capacity, Timestamp::now()) {
            // The client may not have the right, and other clients write the same: this neither fails a lease nor
            // delays it.
            let written = store.write_pool_status(holder.pool, &patch);
            drop(tokio::time::timeout(FOR_THE_POOL, written).await);
        }
    }
    Ok(LeaseAnswer {
        clusters_unread: deployments.err(),
        ..answer(outcome_of(outcome, store.namespace(), request.claim))
    })
}

fn outcome_of(outcome: AttemptOutcome, namespace: &str, claim: LeaseClaim<'_>) -> LeaseOutcome {
    let Holder {
        pool,
        cluster_deployment,
    } = claim.holder;
    let cluster_deployment = cluster_deployment.to_owned();
    match outcome {
        AttemptOutcome::Leased(leased) => LeaseOutcome::Leased(Lease {
            leased,
            duration: claim.duration,
            has_cluster: false,
        }),
        AttemptOutcome::Exhausted(entries) => LeaseOutcome::Refused(LeaseRefusal::Exhausted {
            pool: PoolName::new(namespace, pool),
            entries,
        }),
        AttemptOutcome::Bound {
            customization,
            standing,
        } => LeaseOutcome::Refused(LeaseRefusal::Bound {
            cluster_deployment,
            pool: pool.to_owned(),
            customization,
            standing,
        }),
        AttemptOutcome::HeldBefore { customization } => LeaseOutcome::Refused(LeaseRefusal::HeldBefore {
            cluster_deployment,
            customization,
        }),
        AttemptOutcome::HeldUnfit { customization, why } => LeaseOutcome::Refused(LeaseRefusal::HeldUnfit {
            cluster_deployment,
            customization,
            why,
        }),
    }
}

/// Why no entry of the pool can be leased at all.
async fn refusal(
    store: &Store<'_>,
    pool: &Pool,
    deployments: Option<&Deployments>,
    holder: Holder<'_>,
) -> Result<Option<LeaseRefusal>, Error> {
    let name = holder.pool.to_owned();
    let cluster_deployment = holder.cluster_deployment.to_owned();
    if pool.inventory().is_empty() {
        return Ok(Some(LeaseRefusal::NoInventory { pool: name }));
    }
    if pool.is_deleting() {
        return Ok(Some(LeaseRefusal::PoolDeleting { pool: name }));
    }
    let own = deployments.and_then(|deployments| deployments.of_holder(holder).next());
    if own.is_some_and(|own| own.metadata.is_deleting()) {
        return Ok(Some(LeaseRefusal::ClusterDeleting {
            cluster_deployment,
            pool: name,
        }));
    }
    if pool.is_run_by_hive() {
        let is_made_for_it = match deployments {
            Some(deployments) => deployments.contains(&cluster_deployment, &name),
            None => store
                .deployment(&cluster_deployment)
                .await?
                .contains(&cluster_deployment, &name),
        };
        if !is_made_for_it {
            return Ok(Some(LeaseRefusal::RunByHive {
                cluster_deployment,
                pool: name,
            }));
        }
    }
    Ok(None)
}
