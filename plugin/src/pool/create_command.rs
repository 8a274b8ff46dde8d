//! `pool lease --create`: where no Hive runs, the cluster of a lease is made as Hive would make it.

use anyhow::Context as _;

use super::{
    capacity::Capacity,
    cluster_creation::{Obstacle, WHILE_CREATING, make},
    creation::Parts,
    document::{PoolLease, Reason},
    entry_state::PoolName,
    install_config::InstallConfig,
    record::LeaseClaim,
    record_keeping::renew,
    store::{Customizations as _, Records as _, Store},
    taking::{Wish, take},
};

/// Takes a lease and makes its cluster. The same again goes on where it was broken off.
///
/// # Errors
/// When nothing could be decided. What was made stays: the same command again goes on with it.
pub(super) async fn create(
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
    let pool = store.pool(holder.pool).await?;
    if pool.is_run_by_hive() {
        return Ok(blocked(format!(
            "Hive runs pool {} and would delete a cluster that it has not made; lease with --claim",
            holder.pool
        )));
    }
    let deployments = store.deployments().await?;
    if deployments.made_for(holder).next().is_none()
        && let Err(full) = Capacity::of(&pool, deployments.of_pool(holder.pool)).room()
    {
        let pool = holder.pool.to_owned();
        return Ok(blocked(Obstacle::PoolFull { pool, full }.to_string()));
    }
    let passing = Wish {
        claim: LeaseClaim {
            duration: Some(WHILE_CREATING),
            // Who said until when it wants the lease gets no cluster after that.
            is_creating: wish.claim.duration.is_none(),
            ..wish.claim
        },
        install_config: Some(install_config),
        ..wish
    };
    let lease = take(store, passing).await?;
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
    let cluster = match make(store, parts).await.with_context(unfinished)? {
        Ok(cluster) => cluster,
        Err(why) => return Ok(blocked(format!("{}: {why}", unfinished()))),
    };
    let claim = LeaseClaim {
        cluster_deployment_uid: Some(&cluster.metadata.uid),
        ..wish.claim
    };
    let record = store.record(customization).await?;
    renew(store, customization, record.as_ref(), claim).await?;
    Ok(lease.lasting(wish.claim.duration).with_cluster())
}
