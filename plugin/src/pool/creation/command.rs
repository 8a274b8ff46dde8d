//! `pool lease --create`: where no Hive runs, the cluster of a lease is made as Hive would make it.

use anyhow::Context as _;

use crate::{
    cluster::Error,
    pool::{
        creation::{
            Parts,
            holding::hold,
            making::{Obstacle, make, unusable, while_creating},
        },
        document::{PoolLease, Reason},
        install_config::InstallConfig,
        inventory::{capacity::Capacity, entry_state::PoolName},
        lease::taking::{Wish, take},
        objects::{
            entry::Holder,
            record::{LeaseClaim, Record},
        },
        store::{Customizations as _, Records as _, Store},
    },
};

/// Takes a lease and makes its cluster. The same again goes on where it was broken off.
///
/// # Errors
/// When nothing could be decided. What was made stays: the same command again goes on with it.
pub(in crate::pool) async fn create(
    store: &Store<'_>,
    wish: Wish<'_>,
    install_config: &InstallConfig,
) -> anyhow::Result<PoolLease> {
    let holder = wish.claim.holder;
    let name = holder.cluster_deployment;
    let pool_name = PoolName {
        namespace: store.namespace().to_owned(),
        name: holder.pool.to_owned(),
    };
    let blocked = |message: String| PoolLease::refused(pool_name.clone(), name, Reason::Blocked, message);
    if let Some(why) = unusable(holder) {
        return Ok(blocked(why.to_string()));
    }
    let pool = store.pool(holder.pool).await?;
    if pool.is_run_by_hive() {
        return Ok(blocked(format!(
            "Hive runs pool {} and would delete a cluster that it has not made; lease with --claim",
            holder.pool
        )));
    }
    let deployments = store.deployments().await?;
    let has_cluster = deployments.made_for(holder).next().is_some();
    if !has_cluster && let Err(full) = Capacity::of(&pool, deployments.of_pool(holder.pool)).room() {
        let pool = holder.pool.to_owned();
        return Ok(blocked(Obstacle::PoolFull { pool, full }.to_string()));
    }
    let held = record_of_lease(store, holder).await?;
    let passing = LeaseClaim {
        duration: while_creating(held.as_ref(), has_cluster),
        // Who said until when it wants the lease gets no cluster after that.
        is_creating: wish.claim.duration.is_none(),
        ..wish.claim
    };
    let wanted = Wish {
        claim: passing,
        install_config: Some(install_config),
        ..wish
    };
    let lease = take(store, wanted).await?;
    let (Some(customization), Some(patched)) = (lease.customization(), lease.install_config()) else {
        return Ok(lease);
    };
    let entry = store.get(customization).await?;
    let Some(entry) = entry.filter(|entry| entry.is_held_by(holder)) else {
        return Ok(blocked(format!("{customization} was taken away meanwhile")));
    };
    let parts = Parts {
        pool: &pool,
        entry: &entry,
        holder,
        install_config: patched,
    };
    let unfinished = || {
        format!(
            "{customization} is leased, and the cluster {name} is not made; the same command again goes on"
        )
    };
    let cluster = match make(store, parts, passing).await.with_context(unfinished)? {
        Ok(cluster) => cluster,
        Err(why) => return Ok(blocked(format!("{}: {why}", unfinished()))),
    };
    let claim = LeaseClaim {
        cluster_deployment_uid: Some(&cluster.metadata.uid),
        ..wish.claim
    };
    if !hold(store, customization, claim).await? {
        return Ok(blocked(format!(
            "{customization} was taken away while cluster {name} was made with it: delete ClusterDeployment {name}"
        )));
    }
    Ok(lease.lasting(wish.claim.duration).with_cluster())
}

/// The record of a lease that the holder has already.
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
