//! A lease and its cluster, in pools that Hive does not run: created as Hive would create it.

use kcp_client::Error;

use crate::{
    acquire::{
        LeaseRequest, acquire,
        answer::{Lease, LeaseAnswer, LeaseOutcome, LeaseRefusal},
    },
    creation::{
        Parts,
        make::{Obstacle, make, unusable, while_creating},
    },
    install_config::InstallConfig,
    inventory::capacity::Capacity,
    lease::{LeaseError, renewal::hold},
    objects::{
        entry::Holder,
        record::{LeaseClaim, Record},
    },
    store::{Customizations as _, Records as _, Store},
};

/// Acquires a lease and creates its cluster. A second call continues where the first was interrupted.
///
/// # Errors
/// If nothing could be decided. Objects that were created stay, and the next call continues with them.
pub async fn create(
    store: &Store<'_>,
    request: LeaseRequest<'_>,
    install_config: &InstallConfig,
) -> Result<LeaseAnswer, LeaseError> {
    let holder = request.claim.holder;
    let name = holder.cluster_deployment;
    let refused = |refusal| {
        Ok(LeaseAnswer::new(
            store.namespace(),
            holder,
            LeaseOutcome::Refused(refusal),
        ))
    };
    if let Some(why) = unusable(holder) {
        return refused(LeaseRefusal::Creation(why));
    }
    let pool = store.pool(holder.pool).await?;
    if pool.is_run_by_hive() {
        return refused(LeaseRefusal::CreationInHivePool {
            pool: holder.pool.to_owned(),
        });
    }
    let deployments = store.deployments().await?;
    let has_cluster = deployments.of_holder(holder).next().is_some();
    if !has_cluster && let Err(full) = Capacity::of(&pool, deployments.of_pool(holder.pool)).room() {
        let pool = holder.pool.to_owned();
        return refused(LeaseRefusal::Creation(Obstacle::PoolFull { pool, full }));
    }
    let held = record_of_lease(store, holder).await?;
    let passing = LeaseClaim {
        duration: while_creating(held.as_ref(), has_cluster),
        // A lease with an end of its own gets no cluster after that end.
        is_creating: request.claim.duration.is_none(),
        ..request.claim
    };
    let wanted = LeaseRequest {
        claim: passing,
        install_config: Some(install_config),
        ..request
    };
    let answer = acquire(store, wanted).await?;
    let LeaseOutcome::Leased(lease) = &answer.outcome else {
        return Ok(answer);
    };
    let Some(patched) = &lease.leased.patched else {
        return Ok(answer);
    };
    let customization = &lease.leased.customization;
    let entry = store.get(customization).await?;
    let Some(entry) = entry.filter(|entry| entry.is_held_by(holder)) else {
        return refused(LeaseRefusal::Creation(Obstacle::LeaseLost {
            customization: customization.clone(),
        }));
    };
    let parts = Parts {
        pool: &pool,
        entry: &entry,
        holder,
        install_config: &patched.install_config,
    };
    let made = make(store, parts, passing)
        .await
        .map_err(|source| LeaseError::Unfinished {
            customization: customization.clone(),
            cluster_deployment: name.to_owned(),
            source: source.into(),
        })?;
    let cluster = match made {
        Ok(cluster) => cluster,
        Err(why) => {
            return refused(LeaseRefusal::Unfinished {
                customization: customization.clone(),
                cluster_deployment: name.to_owned(),
                why,
            });
        }
    };
    let claim = LeaseClaim {
        cluster_deployment_uid: Some(&cluster.metadata.uid),
        ..request.claim
    };
    if !hold(store, customization, claim).await? {
        return refused(LeaseRefusal::LostWhileCreating {
            customization: customization.clone(),
            cluster_deployment: name.to_owned(),
        });
    }
    let lease = Lease {
        duration: request.claim.duration,
        has_cluster: true,
        ..lease.clone()
    };
    Ok(LeaseAnswer {
        outcome: LeaseOutcome::Leased(lease),
        ..answer
    })
}

/// The record of a lease that the holder already has.
async fn record_of_lease(store: &Store<'_>, holder: Holder<'_>) -> Result<Option<Record>, Error> {
    let records = store.records().await?;
    for record in records
        .into_iter()
        .filter(|record| record.names(holder) && !record.is_revoked())
    {
        let Some(customization) = record.customization() else {
            continue;
        };
        if store
            .get(customization)
            .await?
            .is_some_and(|entry| entry.is_held_by(holder))
        {
            return Ok(Some(record));
        }
    }
    Ok(None)
}
