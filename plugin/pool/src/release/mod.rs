//! Releases what a holder has.
//!
//! - [`decision`]: what is released, and why something is not; [`in_use`]: a cluster that uses a customization

pub mod decision;
pub mod in_use;

use std::time::Duration;

use kcp_api::{ClusterClaim, ClusterDeployment, metadata::Object as _, names::finalizer};
use kcp_client::{Error, Written};

use crate::{
    acquire::claim,
    hive::HiveMode,
    lease::usage::{Clusters, is_own},
    objects::{
        Holder, PoolName,
        cluster_deployment::{Life, Lifetime as _},
        entry::Reserved as _,
    },
    release::{
        decision::{EntryRelease, InUse, ReleaseRefusal, ReleaseRequest, Target, not_held},
        in_use::Cluster,
    },
    store::{LeaseStore, Store},
};

/// How often entries and clusters are read again after other clients have changed them.
const MAX_ROUNDS: usize = 8;

/// Before they are read again after a write without an answer.
const REST: Duration = Duration::from_millis(200);

/// The result.
#[derive(Debug)]
pub struct Release {
    /// None if one customization was named.
    pub pool: Option<PoolName>,
    pub cluster_deployment: String,
    /// What was released, sorted.
    pub customizations: Vec<String>,
    /// The claim that was deleted, and with it the cluster.
    pub claim: Option<String>,
    pub refusal: Option<ReleaseRefusal>,
    /// Clusters that still use what was released.
    pub still_used: Vec<InUse>,
    /// Why it is unknown whether a cluster uses it.
    pub clusters_unread: Option<Error>,
    /// Whether a customization has the name that was given as a pool's.
    pub is_customization: bool,
}

/// What was released of entries.
#[derive(Debug, Default)]
pub struct Released {
    /// Sorted.
    pub customizations: Vec<String>,
    pub in_use: Vec<InUse>,
    pub may_be_in_use: Vec<String>,
    pub of_other_leases: Vec<String>,
    /// The clusters as they were read last.
    pub clusters: Option<Clusters>,
}

/// Releases the target, if the holder has it.
///
/// # Errors
/// If the API server cannot be asked.
pub async fn release(store: &Store<'_>, request: &ReleaseRequest<'_>) -> Result<Release, Error> {
    let name = request.cluster_deployment;
    let mut release = Release {
        pool: None,
        cluster_deployment: name.to_owned(),
        customizations: Vec::new(),
        claim: None,
        refusal: None,
        still_used: Vec::new(),
        clusters_unread: None,
        is_customization: false,
    };
    match request.target {
        Target::Pool(pool) => {
            release.pool = Some(PoolName::new(store.namespace(), pool));
            let holder = Holder {
                pool,
                cluster_deployment: name,
            };
            if let Some(claim) = claim_of(store, holder, request.hive).await? {
                return release_claim(store, claim, request, release).await;
            }
        }
        Target::Customization(customization) => {
            let entry = store.get(customization).await?;
            release.refusal = not_held(customization, entry.as_ref(), name);
            if release.refusal.is_some() {
                return Ok(release);
            }
        }
    }
    let released = release_entries(store, request).await?;
    let refused = !(released.in_use.is_empty()
        && released.may_be_in_use.is_empty()
        && released.of_other_leases.is_empty());
    if let (Target::Pool(pool), false, true) = (request.target, refused, released.customizations.is_empty()) {
        // A lease outlives its pool and can still be released; a mistyped name must not look like that.
        let found = store.pool(pool).await;
        release.is_customization =
            matches!(found, Err(Error::NotFound { .. })) && store.get(pool).await?.is_some();
        if !release.is_customization {
            found?;
        }
    }
    let clusters = released.clusters;
    if let Some(deployments) = clusters.as_ref().and_then(Clusters::known) {
        let is_meant = |cluster: &&ClusterDeployment| match request.target {
            Target::Pool(pool) => {
                let holder = Holder {
                    pool,
                    cluster_deployment: name,
                };
                is_own(cluster, deployments.namespace(), holder)
            }
            Target::Customization(customization) => {
                cluster.name() == name && cluster.customization() == Some(customization)
            }
        };
        for cluster in deployments.of_namespace().filter(is_meant) {
            if request.force || cluster.life() == Life::Over {
                remove_finalizer(store, cluster).await?;
            }
        }
        // What was released although a cluster uses it.
        let living = deployments
            .of_namespace()
            .filter(|cluster| cluster.life() != Life::Over);
        release.still_used = living
            .filter_map(|cluster| {
                let customization = cluster.customization()?.to_owned();
                let by = Cluster::from(cluster);
                released
                    .customizations
                    .contains(&customization)
                    .then_some(InUse { customization, by })
            })
            .collect();
    }
    release.refusal = if !released.in_use.is_empty() {
        Some(ReleaseRefusal::InUse(released.in_use))
    } else if !released.may_be_in_use.is_empty() {
        Some(ReleaseRefusal::MayBeInUse {
            customizations: released.may_be_in_use,
        })
    } else {
        let other = released.of_other_leases.into_iter().next();
        other.map(|customization| ReleaseRefusal::OtherLease {
            customization,
            cluster_deployment: name.to_owned(),
            id: request.id.unwrap_or_default().to_owned(),
        })
    };
    release.customizations = released.customizations;
    if let Some(Clusters::Unknown(error)) = clusters {
        release.clusters_unread = Some(error);
    }
    Ok(release)
}

/// Releases the entries that the request is about and no cluster uses, in the inventory or not. Entries of other
/// holders are not changed.
///
/// # Errors
/// If the API server cannot be asked, or an entry changes faster than it can be written.
pub async fn release_entries(
    store: &impl LeaseStore,
    request: &ReleaseRequest<'_>,
) -> Result<Released, Error> {
    let mut customizations = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let entries = store.list().await?;
        let meant: Vec<_> = entries.iter().filter(|entry| request.is_about(entry)).collect();
        // After the entries: a cluster that is created later finds its entry changed.
        let clusters = store.clusters().await?;
        let mut released = Released::default();
        let mut settled = true;
        for entry in meant {
            let name = entry.name().to_owned();
            match request.decide(entry, &clusters) {
                EntryRelease::InUse(by) => released.in_use.push(InUse {
                    customization: name,
                    by,
                }),
                EntryRelease::MayBeInUse => released.may_be_in_use.push(name),
                EntryRelease::OtherLease => released.of_other_leases.push(name),
                EntryRelease::Free => {
                    match store.write_status(&name, &entry.free(store.now().latest)).await? {
                        Written::Stored => customizations.push(name),
                        Written::Changed => settled = false,
                        // When it is read again, it is either free by this write, or still ours: then the next write
                        // decides, because the server stores only one of the two.
                        Written::Unknown(_) => {
                            customizations.push(name);
                            settled = false;
                            store.rest(REST).await;
                        }
                    }
                }
            }
        }
        if settled {
            customizations.sort();
            customizations.dedup();
            return Ok(Released {
                customizations,
                clusters: Some(clusters),
                ..released
            });
        }
    }
    Err(Error::Contended {
        goal: format!("release the customizations of {}", request.cluster_deployment),
        attempts: MAX_ROUNDS,
    })
}

async fn release_claim(
    store: &Store<'_>,
    claim: ClusterClaim,
    request: &ReleaseRequest<'_>,
    release: Release,
) -> Result<Release, Error> {
    let name = claim.name().to_owned();
    if request.delete_cluster {
        claim::delete(store, &claim).await?;
        return Ok(Release {
            claim: Some(name),
            ..release
        });
    }
    let cluster = match claim.cluster_deployment() {
        Some(cluster) => match store.cluster(cluster, cluster).await {
            Err(Error::Forbidden { .. }) => None,
            cluster => cluster?,
        },
        None => None,
    };
    let customization = cluster
        .as_ref()
        .and_then(ClusterDeployment::customization)
        .map(str::to_owned);
    let cluster = claim.cluster_deployment().map(str::to_owned);
    let refusal = ReleaseRefusal::DestroysCluster {
        claim: name,
        cluster,
        customization,
    };
    Ok(Release {
        refusal: Some(refusal),
        ..release
    })
}

/// The claim with the holder's name in a pool that Hive runs, or else the claim of the ClusterDeployment with that
/// name.
async fn claim_of(
    store: &Store<'_>,
    holder: Holder<'_>,
    hive: HiveMode,
) -> Result<Option<ClusterClaim>, Error> {
    match store.pool(holder.pool).await {
        Ok(pool) if store.hive(hive).await?.runs(&pool) => {}
        // A lease outlives its pool.
        Ok(_) | Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    }
    let is_of_pool = |claim: &ClusterClaim| claim.spec.cluster_pool_name == holder.pool;
    let name = holder.cluster_deployment;
    // An account that may not read claims has created none; one that may not read clusters was given the claim's
    // name.
    match store.claim(name).await {
        Err(Error::Forbidden { .. }) => return Ok(None),
        found => {
            if let Some(claim) = found?.filter(is_of_pool) {
                return Ok(Some(claim));
            }
        }
    }
    let cluster = match store.cluster(name, name).await {
        Err(Error::Forbidden { .. }) => None,
        found => found?,
    };
    let cluster = cluster.filter(|cluster| cluster.is_of(store.namespace(), holder.pool));
    let Some(claim) = cluster.as_ref().and_then(ClusterDeployment::claim) else {
        return Ok(None);
    };
    Ok(store.claim(claim).await?.filter(is_of_pool))
}

/// Removes our finalizer, if it is there.
///
/// # Errors
/// If the API server cannot be asked, or the cluster changes faster than it can be written.
pub async fn remove_finalizer(store: &Store<'_>, cluster: &ClusterDeployment) -> Result<(), Error> {
    let (namespace, name) = (cluster.namespace(), cluster.name());
    let mut current = Some(cluster.clone());
    for _ in 0..MAX_ROUNDS {
        let Some(found) = current.filter(|found| found.uid() == cluster.uid()) else {
            return Ok(());
        };
        if !found.has_finalizer(finalizer::POOL_LEASE) {
            return Ok(());
        }
        match store
            .write_cluster(namespace, name, &found.without_lease_finalizer())
            .await?
        {
            Written::Stored => return Ok(()),
            Written::Changed => {}
            Written::Unknown(_) => store.rest(REST).await,
        }
        current = store.cluster(namespace, name).await?;
    }
    Err(Error::Contended {
        goal: format!("remove the finalizer of ClusterDeployment {name}"),
        attempts: MAX_ROUNDS,
    })
}

#[cfg(test)]
mod tests;
