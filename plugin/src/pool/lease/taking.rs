//! Taking a lease of a pool as it stands: what is read, what is written, and what came of it.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    cluster::Error,
    pool::{
        document::{PoolLease, Reason},
        install_config::InstallConfig,
        inventory::{
            capacity::Capacity,
            entry_state::{EntryState, PoolName},
            inventory_conditions::{self, Findings},
            model::Standing,
        },
        lease::{self, Attempt, Outcome, Request},
        objects::{cluster_pool::Pool, deployments::Deployments, entry::Holder, record::LeaseClaim},
        store::Store,
    },
};

/// How long a lease is kept waiting for what is said of its pool.
const FOR_THE_POOL: Duration = Duration::from_secs(2);

/// Who asks for which lease.
#[derive(Clone, Copy, Debug)]
pub(in crate::pool) struct Wish<'w> {
    /// Holder and duration; whether its `ClusterDeployment` is there is found out.
    pub(in crate::pool) claim: LeaseClaim<'w>,
    pub(in crate::pool) install_config: Option<&'w InstallConfig>,
    /// Whether a lease that the holder has already is somebody else's.
    pub(in crate::pool) is_new: bool,
}

/// Takes a lease, if there is one.
pub(in crate::pool) async fn take(store: &Store<'_>, wish: Wish<'_>) -> anyhow::Result<PoolLease> {
    let holder = wish.claim.holder;
    let cluster_deployment = holder.cluster_deployment;
    let pool = store.pool(holder.pool).await?;
    let deployments = match store.deployments().await {
        // Clusters are in namespaces of their own, and a lessee may have rights in the pool's alone.
        Err(error @ Error::Forbidden { .. }) => Err(error),
        deployments => Ok(deployments?),
    };
    let seen = deployments.as_ref().ok();
    let name = PoolName {
        namespace: store.namespace().to_owned(),
        name: holder.pool.to_owned(),
    };
    if let Some((reason, message)) = obstacle(store, &pool, seen, holder).await? {
        return Ok(PoolLease::refused(name, cluster_deployment, reason, message));
    }
    let references = seen.map(Deployments::by_customization);
    let cluster = seen.and_then(|deployments| deployments.proof_of_life(holder));
    let request = Request {
        names: &pool.inventory(),
        references: references.as_ref(),
        claim: LeaseClaim {
            cluster_deployment_uid: cluster.map(|cluster| cluster.metadata.uid.as_str()),
            ..wish.claim
        },
        install_config: wish.install_config,
        is_new: wish.is_new,
        is_run_by_hive: pool.is_run_by_hive(),
    };
    let Attempt { outcome, entries } = lease::lease(store, request).await?;
    if let (Some(deployments), false) = (seen, pool.is_run_by_hive()) {
        let capacity = Capacity::of(&pool, deployments.of_pool(holder.pool));
        let findings = Findings {
            entries: &entries,
            broken: &outcome.broken(),
        };
        if let Some(patch) = inventory_conditions::patch(&pool, findings, &capacity, Timestamp::now()) {
            // A lessee may have no right to it, and others say the same: no lease fails for it, or is told late.
            let written = store.write_pool_status(holder.pool, &patch);
            drop(tokio::time::timeout(FOR_THE_POOL, written).await);
        }
    }
    let lease = match outcome {
        Outcome::Leased(leased) => {
            PoolLease::leased(name, cluster_deployment, leased).lasting(wish.claim.duration)
        }
        Outcome::Exhausted(standings) => {
            let entries = standings
                .into_iter()
                .map(|(name, standing)| EntryState::new(name, standing));
            PoolLease::exhausted(name, cluster_deployment, entries.collect())
        }
        Outcome::Bound {
            customization,
            standing,
        } => {
            // Of one that is not in the inventory also the references alone may say so.
            let has = match standing {
                Standing::Unnamed => "belongs with",
                _ => "was made with",
            };
            let state = EntryState::new(customization, standing);
            let message = format!(
                "ClusterDeployment {cluster_deployment} {has} {}, and gets no other",
                state.described(holder.pool)
            );
            PoolLease::refused(name, cluster_deployment, Reason::Blocked, message)
        }
        Outcome::HeldBefore { customization } => {
            let message = format!(
                "{cluster_deployment} holds {customization} already, for somebody who may still use it; release it, or \
                 choose another name"
            );
            PoolLease::refused(name, cluster_deployment, Reason::Blocked, message)
        }
        Outcome::HeldUnfit { customization, why } => {
            let message = format!("{cluster_deployment} holds {customization}, and gets no other: {why}");
            PoolLease::refused(name, cluster_deployment, Reason::Blocked, message)
        }
    };
    Ok(match deployments {
        Ok(_) => lease,
        Err(why) => lease.without_deployments(&why),
    })
}

/// What keeps a lease from being taken at all.
async fn obstacle(
    store: &Store<'_>,
    pool: &Pool,
    deployments: Option<&Deployments>,
    holder: Holder<'_>,
) -> Result<Option<(Reason, String)>, Error> {
    let Holder {
        pool: name,
        cluster_deployment,
    } = holder;
    if pool.inventory().is_empty() {
        let message = format!("pool {name} has no inventory: there is nothing to lease");
        return Ok(Some((Reason::NoSuchEntry, message)));
    }
    if pool.is_deleting() {
        return Ok(Some((Reason::Blocked, format!("pool {name} is being deleted"))));
    }
    let own = deployments.and_then(|deployments| deployments.made_for(holder).next());
    if own.is_some_and(|own| own.metadata.is_deleting()) {
        let message = format!(
            "ClusterDeployment {cluster_deployment} of pool {name} is being deleted; release it first, or choose another \
             name"
        );
        return Ok(Some((Reason::Blocked, message)));
    }
    if pool.is_run_by_hive() {
        let is_made_for_it = match deployments {
            Some(deployments) => deployments.contains(cluster_deployment, name),
            None => store
                .deployment(cluster_deployment)
                .await?
                .contains(cluster_deployment, name),
        };
        if !is_made_for_it {
            let message = format!(
                "Hive runs pool {name} and would revoke the lease at once: there is no ClusterDeployment \
                 {cluster_deployment} of that pool; to get a cluster from Hive, lease with --claim"
            );
            return Ok(Some((Reason::Blocked, message)));
        }
    }
    Ok(None)
}
