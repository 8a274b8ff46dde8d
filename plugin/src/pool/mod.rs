//! `kubectl kcp pool`: leases on the customizations of a cluster pool.
//!
//! - [`store`]: what is read from and written to the API server
//! - [`cluster_pool`], [`entry`], [`deployments`], [`claims`], [`record`]: the objects, and the patches that change them
//! - [`metadata`], [`conditions`]: what those have in common
//! - [`model`]: what is free, and the order of choice
//! - [`capacity`], [`staleness`]: how many clusters a pool may have, and which of them it has left behind
//! - [`record_keeping`], [`lease`], [`release`]: the writes
//! - [`survey`], [`copies`]: what there is of all pools of a namespace
//! - [`repair`]: finding and mending what has leaked
//! - [`document`], [`entry_state`]: how the result is told

#![allow(
    dead_code,
    reason = "what is read of a pool is for verbs that come one after the other"
)]

mod arguments;
mod capacity;
mod claims;
mod cluster_pool;
mod conditions;
mod copies;
mod deployments;
mod document;
mod entry;
mod entry_state;
#[cfg(test)]
mod fake;
mod lease;
mod metadata;
mod model;
mod record;
mod record_keeping;
mod release;
mod repair;
#[cfg(test)]
mod schema;
mod staleness;
mod store;
mod survey;
#[cfg(test)]
mod survey_example;

pub use arguments::PoolArguments;

use crate::{cluster::Error, document::text, session::Session, verdict::Verdict};
use arguments::{LeaseArguments, LeaseName, LeaseOutput, PoolCommand, ReleaseArguments, ReleaseOutput};
use cluster_pool::Pool;
use deployments::Deployments;
use document::{PoolLease, PoolRelease, Reason};
use entry::Holder;
use entry_state::{EntryState, PoolName};
use lease::Outcome;
use record::LeaseClaim;
use release::Needs;
use store::Store;

/// Runs `pool`.
///
/// # Errors
/// When nothing could be decided.
pub async fn run(arguments: PoolArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        PoolCommand::Lease(arguments) => run_lease(arguments, session).await,
        PoolCommand::Release(arguments) => run_release(arguments, session).await,
        PoolCommand::Repair(arguments) => Box::pin(repair::run(arguments, session)).await,
    }
}

async fn run_lease(arguments: LeaseArguments, session: &Session) -> anyhow::Result<Verdict> {
    let LeaseName {
        pool,
        cluster_deployment,
        field_manager,
    } = &arguments.lease;
    let connection = session.connect().await?;
    let store = Store::new(&connection, field_manager);
    session.terminal.on_interrupt(format!(
        "interrupted: a lease may have been taken; give it back with: kubectl kcp pool release {pool} \
         --cluster-deployment {cluster_deployment} -n {}",
        connection.namespace
    ));
    let result = take(&store, &connection.namespace, pool, cluster_deployment).await?;
    for warning in result.warnings() {
        session.terminal.warning(warning);
    }
    match (arguments.output, result.sentence()) {
        (Some(LeaseOutput::Json), _) => {
            session.terminal.print(&text(&result)?)?;
        }
        (Some(LeaseOutput::Name), _) => {
            if let Some(name) = result.resource_name() {
                session.terminal.line(&name)?;
            }
        }
        (None, Some(sentence)) => session.terminal.line(&sentence)?,
        (None, None) => {}
    }
    match result.refusal() {
        Some(refusal) => {
            session.terminal.note(&refusal);
            Ok(Verdict::Negative)
        }
        None => Ok(Verdict::Met),
    }
}

async fn take(
    store: &Store<'_>,
    namespace: &str,
    pool_name: &str,
    cluster_deployment: &str,
) -> anyhow::Result<PoolLease> {
    let pool = store.pool(pool_name).await?;
    let deployments = match store.deployments().await {
        // Clusters are in namespaces of their own, and a lessee may have rights in the pool's alone.
        Err(error @ Error::Forbidden { .. }) => Err(error),
        deployments => Ok(deployments?),
    };
    let name = PoolName {
        namespace: namespace.to_owned(),
        name: pool_name.to_owned(),
    };
    let holder = Holder {
        pool: pool_name,
        cluster_deployment,
    };
    if let Some((reason, message)) = obstacle(store, &pool, deployments.as_ref().ok(), holder).await? {
        return Ok(PoolLease::refused(name, cluster_deployment, reason, message));
    }
    let references = deployments.as_ref().ok().map(Deployments::by_customization);
    let cluster = deployments
        .as_ref()
        .ok()
        .and_then(|deployments| deployments.proof_of_life(holder));
    let claim = LeaseClaim {
        holder,
        duration: None,
        cluster_deployment_uid: cluster.map(|cluster| cluster.metadata.uid.as_str()),
    };
    let lease = match lease::lease(store, &pool.inventory(), references.as_ref(), claim).await? {
        Outcome::Leased {
            customization,
            already,
        } => PoolLease::leased(name, cluster_deployment, &customization, already),
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
            let state = EntryState::new(customization, standing);
            let message = format!(
                "ClusterDeployment {cluster_deployment} was made with {}, and gets no other",
                state.described(pool_name)
            );
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
                 {cluster_deployment} of that pool; create a ClusterClaim to get a cluster from Hive"
            );
            return Ok(Some((Reason::Blocked, message)));
        }
    }
    Ok(None)
}

async fn run_release(arguments: ReleaseArguments, session: &Session) -> anyhow::Result<Verdict> {
    let LeaseName {
        pool,
        cluster_deployment,
        field_manager,
    } = &arguments.lease;
    let connection = session.connect().await?;
    let store = Store::new(&connection, field_manager);
    let result = give_back(&store, &connection.namespace, pool, cluster_deployment).await?;
    for warning in result.warnings() {
        session.terminal.warning(warning);
    }
    session.terminal.print(&match arguments.output {
        Some(ReleaseOutput::Json) => text(&result)?,
        Some(ReleaseOutput::Name) => result.resource_names(),
        None => result.sentences(),
    })?;
    match result.refusal() {
        Some(refusal) => {
            session.terminal.note(&refusal);
            Ok(Verdict::Negative)
        }
        None => Ok(Verdict::Met),
    }
}

async fn give_back(
    store: &Store<'_>,
    namespace: &str,
    pool: &str,
    cluster_deployment: &str,
) -> anyhow::Result<PoolRelease> {
    let holder = Holder {
        pool,
        cluster_deployment,
    };
    let mut deployments = store.deployments().await;
    if let Err(Error::Forbidden { .. }) = deployments {
        deployments = store.deployment(cluster_deployment).await;
    }
    let (needs, unseen) = match deployments {
        Err(error @ Error::Forbidden { .. }) => (Needs::new(), Some(error)),
        deployments => (deployments?.needs(holder), None),
    };
    let release::Outcome { released, needed } = release::release(store, &needs, holder).await?;
    if released.is_empty() && needed.is_empty() {
        // A lease outlives its pool, and can still be given back; a name that was mistyped must not look like that.
        store.pool(pool).await?;
    }
    let name = PoolName {
        namespace: namespace.to_owned(),
        name: pool.to_owned(),
    };
    let mut result = PoolRelease::new(name, cluster_deployment, &released);
    if let Some(why) = unseen {
        result = result.without_deployment(&why);
    }
    let why: Vec<_> = needed
        .iter()
        .filter_map(|customization| {
            Some(
                needs
                    .get(customization)?
                    .refusal(cluster_deployment, customization),
            )
        })
        .collect();
    Ok(if why.is_empty() {
        result
    } else {
        result.blocked(&why)
    })
}

#[cfg(test)]
mod tests;
