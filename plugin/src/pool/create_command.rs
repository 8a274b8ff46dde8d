//! `pool lease --create`: where no Hive runs, the cluster of a lease is made as Hive would make it.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use super::{
    capacity::Capacity,
    creation::{Creation, Parts},
    deployments::ClusterDeployment,
    document::{PoolLease, Reason},
    entry_state::PoolName,
    install_config::InstallConfig,
    record::{LABEL, LeaseClaim},
    record_keeping::renew,
    store::{Customizations as _, Made, Records as _, Store},
    taking::{Wish, take},
};
use crate::cluster::{Created, Error};

/// How often an object is made whose answers get lost.
const MAX_ATTEMPTS: usize = 5;

/// Before it is made once more.
const REST: Duration = Duration::from_millis(200);

/// How long the lease lasts until its cluster is there: who is killed before leaves one that ends by itself.
const WHILE_CREATING: Duration = Duration::from_secs(600);

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
        return Ok(blocked(format!("pool {} is full: {full}", holder.pool)));
    }
    let passing = Wish {
        claim: LeaseClaim {
            duration: Some(WHILE_CREATING),
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
    let cluster = match make(store, name, &parts.objects()?)
        .await
        .with_context(unfinished)?
    {
        Ok(cluster) => cluster,
        Err(why) => return Ok(blocked(format!("{}: {why}", unfinished()))),
    };
    if cluster.customization() != Some(customization) || !cluster.is_of(store.namespace(), holder.pool) {
        return Ok(blocked(format!(
            "{}: there is a ClusterDeployment {name} that was not made with it",
            unfinished()
        )));
    }
    let claim = LeaseClaim {
        cluster_deployment_uid: Some(&cluster.metadata.uid),
        ..wish.claim
    };
    let record = store.record(customization).await?;
    renew(store, customization, record.as_ref(), claim).await?;
    Ok(lease.lasting(wish.claim.duration).with_cluster())
}

/// Makes what is not there yet, and returns the cluster; or why it cannot be made.
async fn make(
    store: &Store<'_>,
    name: &str,
    objects: &Creation,
) -> anyhow::Result<Result<ClusterDeployment, String>> {
    ensure(store, Made::Namespace, &objects.namespace).await?;
    if !store.has_label(name, LABEL).await? {
        return Ok(Err(format!(
            "namespace {name} is there, and was not made for a lease"
        )));
    }
    ensure(store, Made::Secret(name), &objects.install_config).await?;
    ensure(store, Made::Customization(name), &objects.customization).await?;
    ensure(store, Made::Deployment(name), &objects.deployment).await?;
    let cluster = store.cluster(name, name).await?;
    Ok(cluster.ok_or_else(|| format!("ClusterDeployment {name} was deleted meanwhile")))
}

/// Makes an object, unless it is there.
async fn ensure(store: &Store<'_>, made: Made<'_>, object: &Value) -> Result<(), Error> {
    let mut attempt = 1;
    loop {
        match store.make(made, object).await? {
            Created::Stored(_) | Created::Exists => return Ok(()),
            Created::Unknown(error) if attempt == MAX_ATTEMPTS => return Err(error),
            Created::Unknown(_) => {
                attempt += 1;
                store.rest(REST).await;
            }
        }
    }
}
