//! Releases the entries and ClusterClaims of a holder.
//! - [`decision`]: decides which entries are released; [`in_use`]: describes a cluster that uses a customization

pub mod decision;
pub mod in_use;

use std::{mem, time::Duration};

use kcp_api::{ClusterClaim, ClusterDeployment, metadata::Object as _, names::finalizer};
use kcp_client::{Error, Written};

use crate::{
    acquire::{
        claim,
        turn::{LEAVE_TIMEOUT, leave_now},
    },
    events::{LeaseChange, record_by_name},
    hive::HiveMode,
    lease::{
        reuse::Reuse,
        usage::{Clusters, belongs_to_holder},
    },
    objects::{
        Holder, PoolName,
        claim::ClaimLifetime as _,
        cluster_deployment::{ClusterDeployments, Deletion as _, DeletionState},
        entry::EntryStatus as _,
    },
    release::{
        decision::{
            EntryInUse, EntryRelease, ReleaseRefusal, ReleaseRequest, ReleaseTarget, cleaning_after,
            refusal_if_not_held,
        },
        in_use::UsingCluster,
    },
    store::{LeaseStore, Store},
};

/// The maximum number of attempts to free entries, or to change clusters, that other clients change at the same time.
const MAX_ROUNDS: usize = 8;

/// How often to try to remove the places of all holders from a queue that others change at the same time, before only the own
/// place is removed.
const QUEUE_ROUNDS: usize = 2;

/// The pause before the next attempt, after the response to a write is lost.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The result of a release request: what was released, and what was not.
#[derive(Debug)]
pub struct Release {
    /// The pool; `None` if the request named one customization instead.
    pub pool: Option<PoolName>,
    pub cluster_deployment: String,
    /// The names of the released customizations, sorted.
    pub customizations: Vec<String>,
    /// Those of the released customizations that must be cleaned before the next lease, sorted.
    pub cleaned_first: Vec<String>,
    /// The ClusterClaim that was deleted together with its cluster.
    pub claim: Option<String>,
    pub refusal: Option<ReleaseRefusal>,
    /// Clusters that still use customizations that were released with `--force`.
    pub still_used: Vec<EntryInUse>,
    /// Why the clusters could not be listed. It is then unknown whether a cluster uses the customizations.
    pub cluster_list_error: Option<Error>,
    /// Whether the user gave the name of a customization where the name of a pool is expected.
    pub names_customization_as_pool: bool,
}

/// The entries that a release has freed, and those that it has not.
#[derive(Debug, Default)]
pub struct ReleasedEntries {
    /// The names of the released customizations, sorted.
    pub customizations: Vec<String>,
    /// Those of the released customizations that must be cleaned before the next lease, sorted.
    pub cleaned_first: Vec<String>,
    pub in_use: Vec<EntryInUse>,
    pub possibly_in_use: Vec<String>,
    pub held_by_other_leases: Vec<String>,
    /// Those whose pool cannot be read.
    pub of_unknown_pools: Vec<String>,
    /// The clusters as they were last listed.
    pub clusters: Option<Clusters>,
}

impl ReleasedEntries {
    /// Why some entries were not released.
    fn take_refusal(&mut self, request: &ReleaseRequest<'_>) -> Option<ReleaseRefusal> {
        if !self.in_use.is_empty() {
            return Some(ReleaseRefusal::InUse(mem::take(&mut self.in_use)));
        }
        if !self.possibly_in_use.is_empty() {
            return Some(ReleaseRefusal::MayBeInUse {
                customizations: mem::take(&mut self.possibly_in_use),
            });
        }
        if !self.of_unknown_pools.is_empty() {
            return Some(ReleaseRefusal::PoolUnknown {
                customizations: mem::take(&mut self.of_unknown_pools),
            });
        }
        let other = self.held_by_other_leases.first().cloned();
        other.map(|customization| ReleaseRefusal::OtherLease {
            customization,
            cluster_deployment: request.cluster_deployment.to_owned(),
            id: request.id.unwrap_or_default().to_owned(),
        })
    }
}

/// Releases the holder's entries or the holder's ClusterClaim, as the request says.
pub async fn release(store: &Store<'_>, request: &ReleaseRequest<'_>) -> Result<Release, Error> {
    let name = request.cluster_deployment;
    let mut release = Release {
        pool: None,
        cluster_deployment: name.to_owned(),
        customizations: Vec::new(),
        cleaned_first: Vec::new(),
        claim: None,
        refusal: None,
        still_used: Vec::new(),
        cluster_list_error: None,
        names_customization_as_pool: false,
    };
    let pool = match request.target {
        ReleaseTarget::Pool(pool) => {
            release.pool = Some(PoolName::new(store.namespace(), pool));
            let holder = Holder {
                pool,
                cluster_deployment: name,
            };
            if let Some(claim) = find_claim_of_hive(store, holder, request.hive).await? {
                return release_claim(store, claim, request, release).await;
            }
            Some(pool.clone())
        }
        ReleaseTarget::Customization(customization) => {
            let entry = store.get(customization).await?;
            release.refusal = refusal_if_not_held(customization, entry.as_ref(), name);
            if release.refusal.is_some() {
                return Ok(release);
            }
            entry.and_then(|entry| entry.status.pool().map(str::to_owned))
        }
    };
    if let Some(pool) = pool {
        let holder = Holder {
            pool: &pool,
            cluster_deployment: name,
        };
        leave_queue(store, holder).await;
    }
    let mut released = release_entries(store, request).await?;
    let refused = !(released.in_use.is_empty()
        && released.possibly_in_use.is_empty()
        && released.of_unknown_pools.is_empty()
        && released.held_by_other_leases.is_empty());
    if let (ReleaseTarget::Pool(pool), false, true) =
        (request.target, refused, released.customizations.is_empty())
    {
        // A pool that no longer exists is allowed, because its leases can still be released. But report a mistyped name.
        let found = store.read_pool(pool).await;
        release.names_customization_as_pool =
            matches!(found, Err(Error::NotFound { .. })) && store.get(pool).await?.is_some();
        if !release.names_customization_as_pool {
            found?;
        }
    }
    let clusters = released.clusters.take();
    if let Some(deployments) = clusters.as_ref().and_then(Clusters::cluster_deployments) {
        let is_meant = |cluster: &&ClusterDeployment| match request.target {
            ReleaseTarget::Pool(pool) => {
                let holder = Holder {
                    pool,
                    cluster_deployment: name,
                };
                belongs_to_holder(cluster, deployments.namespace(), holder)
            }
            ReleaseTarget::Customization(customization) => {
                cluster.name() == name && cluster.customization() == Some(customization)
            }
        };
        for cluster in deployments.in_namespace().filter(is_meant) {
            if request.force || cluster.deletion_state() == DeletionState::Deprovisioned {
                remove_finalizer(store, cluster).await?;
            }
        }
        release.still_used = still_used(deployments, &released.customizations);
    }
    release.refusal = released.take_refusal(request);
    release.customizations = released.customizations;
    release.cleaned_first = released.cleaned_first;
    Box::pin(record_releases(store, &release)).await;
    if let Some(Clusters::Unknown(error)) = clusters {
        release.cluster_list_error = Some(error);
    }
    Ok(release)
}

/// The clusters that still use released customizations. With `--force`, customizations are released although clusters use
/// them.
fn still_used(deployments: &ClusterDeployments, released: &[String]) -> Vec<EntryInUse> {
    let living = deployments
        .in_namespace()
        .filter(|cluster| cluster.deletion_state() != DeletionState::Deprovisioned);
    let of_released = living.filter_map(|cluster| {
        let customization = cluster.customization()?.to_owned();
        released.contains(&customization).then(|| EntryInUse {
            customization,
            cluster: UsingCluster::from(cluster),
        })
    });
    of_released.collect()
}

/// Removes the holder's place from the queue of the pool, so that its next request does not continue at this place. Also removes
/// the places of all others that hold an entry, so that their releases need no write. Ignores errors, because the place ends
/// soon.
pub async fn leave_queue(store: &impl LeaseStore, holder: Holder<'_>) {
    let left = async {
        let mut part = 0;
        for _ in 0..QUEUE_ROUNDS {
            let Ok(queue) = store.queue(holder.pool).await else {
                return;
            };
            let Some(place) = queue.find(holder.cluster_deployment, store.now()) else {
                return;
            };
            part = place.part;
            let Ok(entries) = store.list().await else { return };
            let patch = queue.without_served(part, holder, &entries);
            match store.write_queue(holder.pool, part, &patch).await {
                Ok(Written::Changed) => {}
                _ => return,
            }
        }
        leave_now(store, part, holder).await;
    };
    drop(tokio::time::timeout(LEAVE_TIMEOUT, left).await);
}

/// Writes Events about the released customizations.
async fn record_releases(store: &Store<'_>, release: &Release) {
    let holder = release.cluster_deployment.as_str();
    let change = LeaseChange::Released { holder };
    let changes = release
        .customizations
        .iter()
        .map(|entry| (entry.as_str(), change));
    let pool = release.pool.as_ref().map(|pool| pool.name.as_str());
    record_by_name(store, pool, changes).await;
}

/// Frees the requested entries that no cluster uses, or has them cleaned first if their pool asks for this, even if the pool no
/// longer lists them. Entries of other holders do not change.
pub async fn release_entries(
    store: &impl LeaseStore,
    request: &ReleaseRequest<'_>,
) -> Result<ReleasedEntries, Error> {
    let (mut customizations, mut cleaned_first) = (Vec::new(), Vec::new());
    for _ in 0..MAX_ROUNDS {
        let entries = store.list().await?;
        let meant: Vec<_> = entries.iter().filter(|entry| request.includes(entry)).collect();
        // List the clusters after the entries: if a cluster is created later, its entry has changed, and the server refuses
        // the write.
        let clusters = store.clusters().await?;
        let mut released = ReleasedEntries::default();
        let mut settled = true;
        for entry in meant {
            let name = entry.name().to_owned();
            match request.decide(entry, &clusters) {
                EntryRelease::InUse(cluster) => released.in_use.push(EntryInUse {
                    customization: name,
                    cluster,
                }),
                EntryRelease::MayBeInUse => released.possibly_in_use.push(name),
                EntryRelease::OtherLease => released.held_by_other_leases.push(name),
                EntryRelease::Free => {
                    let (reuse, now) = (store.reuse(entry).await?, store.now().latest);
                    if reuse == Reuse::Unknown {
                        released.of_unknown_pools.push(name);
                        continue;
                    }
                    let cleaning = cleaning_after(entry, reuse, now);
                    let patch = match &cleaning {
                        Some(record) => entry.clean(record, now),
                        None => entry.free(now),
                    };
                    let written = store.write_status(&name, &patch).await?;
                    if matches!(written, Written::Changed) {
                        settled = false;
                        continue;
                    }
                    if matches!(written, Written::Unknown(_)) {
                        // The next read shows whether the write was stored. If not, this loop sends the write
                        // again. The server stores only one of the two writes.
                        settled = false;
                        store.pause(RETRY_PAUSE).await;
                    }
                    if cleaning.is_some() {
                        cleaned_first.push(name.clone());
                    }
                    customizations.push(name);
                }
            }
        }
        if settled {
            for names in [&mut customizations, &mut cleaned_first] {
                names.sort();
                names.dedup();
            }
            return Ok(ReleasedEntries {
                customizations,
                cleaned_first,
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
    if let Some(id) = request.id.filter(|id| claim.id() != Some(id)) {
        let refusal = ReleaseRefusal::OtherClaim {
            claim: name,
            id: id.to_owned(),
        };
        return Ok(Release {
            refusal: Some(refusal),
            ..release
        });
    }
    if request.delete_cluster {
        claim::delete(store, &claim).await?;
        return Ok(Release {
            claim: Some(name),
            ..release
        });
    }
    let cluster = match claim.cluster_deployment() {
        Some(cluster) => match store.read_cluster(cluster, cluster).await {
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

/// The claim of the holder; `None` if Hive does not manage the pool.
async fn find_claim_of_hive(
    store: &Store<'_>,
    holder: Holder<'_>,
    hive: HiveMode,
) -> Result<Option<ClusterClaim>, Error> {
    match store.read_pool(holder.pool).await {
        Ok(pool) if store.read_hive(hive).await?.manages(&pool) => find_claim(store, holder).await,
        // The pool was deleted. Its leases can still be released, but it has no claims.
        Ok(_) | Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The ClusterClaim with the holder's name, or else the claim of the ClusterDeployment with that name.
pub async fn find_claim(store: &Store<'_>, holder: Holder<'_>) -> Result<Option<ClusterClaim>, Error> {
    let is_of_pool = |claim: &ClusterClaim| claim.spec.cluster_pool_name == holder.pool;
    let name = holder.cluster_deployment;
    // An account without permission to read claims has not created a claim. An account without permission to read clusters must
    // pass the name of its claim.
    match store.read_claim(name).await {
        Err(Error::Forbidden { .. }) => return Ok(None),
        found => {
            if let Some(claim) = found?.filter(is_of_pool) {
                return Ok(Some(claim));
            }
        }
    }
    let cluster = match store.read_cluster(name, name).await {
        Err(Error::Forbidden { .. }) => None,
        found => found?,
    };
    let cluster = cluster.filter(|cluster| cluster.belongs_to_pool(store.namespace(), holder.pool));
    let Some(claim) = cluster.as_ref().and_then(ClusterDeployment::claim) else {
        return Ok(None);
    };
    Ok(store.read_claim(claim).await?.filter(is_of_pool))
}

/// Removes this program's finalizer from a ClusterDeployment that has it.
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
            Written::Unknown(_) => store.pause(RETRY_PAUSE).await,
        }
        current = store.read_cluster(namespace, name).await?;
    }
    Err(Error::Contended {
        goal: format!("remove the finalizer of ClusterDeployment {name}"),
        attempts: MAX_ROUNDS,
    })
}

#[cfg(test)]
mod tests;
