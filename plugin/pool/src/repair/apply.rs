//! Mending what is wrong: each time everything is read and decided anew, and written under the resourceVersion that was
//! read. Killed anywhere, it leaves what the next repair finds.

use std::time::Duration;

use jiff::Timestamp;
use kcp_client::{Created, Error, Written};
use serde_json::Value;

use crate::{
    creation::{
        Parts,
        make::{Obstacle, make},
    },
    lease::record_keeping::{renew, withdraw_revoked},
    objects::{
        cluster_deployment::{ClusterDeployment, Copy},
        cluster_pool::Pool,
        entry::Holder,
        record::{LeaseClaim, Record, first},
    },
    repair::{
        decision::findings,
        finding::{Finding, Remedy, Subject},
        holder::recorded,
        options::Options,
        recreate::recreate,
        sightings::Sighting,
    },
    snapshot::Snapshot,
    store::{Customizations, Records, Store},
};

/// How often something is read and decided anew that others change meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// Before it is read anew after a write without an answer.
const REST: Duration = Duration::from_millis(200);

/// What repair reads and writes.
#[allow(async_fn_in_trait, reason = "used in this crate, on one thread")]
pub trait Mending: Customizations + Records {
    /// Everything, as it is now.
    async fn snapshot(&self) -> Result<Snapshot, Error>;

    /// Changes a cluster, once, by a merge patch with a resourceVersion. One that is gone has changed.
    async fn patch_cluster(&self, cluster: &ClusterDeployment, patch: &Value) -> Result<Written, Error>;

    /// Makes what a cluster needs and the cluster, as far as they are not there; or says why it is not made.
    /// Right before the cluster the lease is renewed as claimed.
    async fn make_cluster(
        &self,
        parts: Parts<'_>,
        claim: LeaseClaim<'_>,
    ) -> Result<Result<ClusterDeployment, Obstacle>, Error>;

    /// Does away with this version of a copy, once.
    async fn delete_copy(&self, copy: &Copy) -> Result<Written, Error>;
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairOutcome {
    Mended,
    /// Read again, it was no longer so: somebody else was faster.
    Settled,
    /// Its customization is not free yet.
    Waits,
    /// Something is in the way that was not known before.
    Blocked(Obstacle),
    /// Others change it faster than it can be written.
    Contended,
}

/// Mends one finding, if it is still so.
///
/// # Errors
/// When the API server cannot be asked, or refuses.
pub async fn mend(
    store: &impl Mending,
    options: &Options<'_>,
    planned: &Finding,
) -> Result<RepairOutcome, Error> {
    let mut may_be_written = false;
    for _ in 0..MAX_ATTEMPTS {
        let snapshot = store.snapshot().await?;
        let found = findings(&snapshot, options);
        // By a name that was forced, only the holder whom the plan has shown.
        let is_it = |finding: &&Finding| {
            finding.subject == planned.subject
                && finding.remedy == planned.remedy
                && finding.cluster_deployment == planned.cluster_deployment
        };
        let Some(finding) = found.iter().find(is_it) else {
            if let Some(why) = obstacle(&found, planned) {
                return Ok(RepairOutcome::Blocked(why.clone()));
            }
            if may_be_written {
                after(store, &snapshot, planned).await?;
                return Ok(RepairOutcome::Mended);
            }
            return Ok(RepairOutcome::Settled);
        };
        if finding.goes_after_its_entry() && holds_yet(&found, finding) {
            return Ok(RepairOutcome::Waits);
        }
        if let (Remedy::Recreate, Some(install_config)) = (&finding.remedy, options.install_config) {
            match recreate(store, &snapshot, finding, install_config).await? {
                Some(outcome) => return Ok(outcome),
                None => continue,
            }
        }
        match step(store, &snapshot, finding, store.now()).await? {
            Written::Stored => {
                after(store, &snapshot, finding).await?;
                return Ok(RepairOutcome::Mended);
            }
            Written::Changed => {}
            Written::Unknown(_) => {
                may_be_written = true;
                store.rest(REST).await;
            }
        }
    }
    Ok(RepairOutcome::Contended)
}

/// What is in the way of a finding's remedy by now.
fn obstacle<'f>(found: &'f [Finding], planned: &Finding) -> Option<&'f Obstacle> {
    let mut of_it = found.iter().filter(|finding| finding.subject == planned.subject);
    of_it.find_map(|finding| match &finding.remedy {
        Remedy::Blocked(why) => Some(why),
        _ => None,
    })
}

/// Whether the holder still has a customization that is to be freed.
fn holds_yet(found: &[Finding], after: &Finding) -> bool {
    found
        .iter()
        .any(|other| other.remedy == Remedy::Free && other.holder() == after.holder())
}

async fn step(
    store: &impl Mending,
    snapshot: &Snapshot,
    finding: &Finding,
    now: Timestamp,
) -> Result<Written, Error> {
    match (&finding.subject, &finding.remedy) {
        (Subject::Entry { name }, Remedy::Free) => free(store, snapshot, name, now).await,
        (
            Subject::Entry { name },
            Remedy::Reserve {
                pool,
                cluster_deployment,
            },
        ) => match snapshot.entry(name) {
            Some(entry) => {
                let holder = Holder {
                    pool,
                    cluster_deployment,
                };
                store.write_status(name, &entry.reserve(holder, now)).await
            }
            None => Ok(Written::Changed),
        },
        (Subject::Cluster { namespace, name }, Remedy::RemoveFinalizer) => {
            let mut clusters = snapshot.deployments.iter();
            match clusters.find(|cluster| cluster.name() == name && cluster.metadata.namespace == *namespace)
            {
                Some(cluster) => {
                    store
                        .patch_cluster(cluster, &cluster.without_lease_finalizer())
                        .await
                }
                None => Ok(Written::Changed),
            }
        }
        (Subject::Record { customization }, Remedy::Delete) => match snapshot.record(customization) {
            Some(record) => store.delete_record(record).await,
            None => Ok(Written::Changed),
        },
        (Subject::Copy { namespace, name }, Remedy::Delete) => {
            let mut copies = snapshot.copies.iter();
            let is_it = |copy: &&Copy| copy.metadata.name == *name && copy.metadata.namespace == *namespace;
            match copies.find(is_it) {
                Some(copy) => store.delete_copy(copy).await,
                None => Ok(Written::Changed),
            }
        }
        _ => Ok(Written::Changed),
    }
}

/// The record is taken away first, so that a holder who is not gone after all renews no more.
async fn free(
    store: &impl Mending,
    snapshot: &Snapshot,
    name: &str,
    now: Timestamp,
) -> Result<Written, Error> {
    let Some(entry) = snapshot.entry(name) else {
        return Ok(Written::Changed);
    };
    if let Some(record) = recorded(snapshot, entry).filter(|record| !record.is_revoked()) {
        match store.write_record(name, &record.revoked(now)).await? {
            Written::Stored => {}
            other => return Ok(other),
        }
    }
    store.write_status(name, &entry.release(now)).await
}

/// What follows a write: the record says the same as the status.
async fn after(store: &impl Mending, snapshot: &Snapshot, finding: &Finding) -> Result<(), Error> {
    let Subject::Entry { name } = &finding.subject else {
        return Ok(());
    };
    match (&finding.remedy, finding.holder()) {
        (Remedy::Free, Some(holder)) => withdraw_revoked(store, name, holder).await,
        (Remedy::Reserve { .. }, Some(holder)) => record_holder(store, snapshot, name, holder).await,
        _ => Ok(()),
    }
}

async fn record_holder(
    store: &impl Mending,
    snapshot: &Snapshot,
    name: &str,
    holder: Holder<'_>,
) -> Result<(), Error> {
    let record = snapshot.record(name);
    let is_run_by_hive = snapshot.pool(holder.pool).is_some_and(Pool::is_run_by_hive);
    if record.is_none() && is_run_by_hive {
        return Ok(());
    }
    let cluster = snapshot.deployments.proof_of_life(holder);
    let claim = LeaseClaim {
        holder,
        duration: record
            .filter(|record| record.names(holder))
            .and_then(Record::duration),
        cluster_deployment_uid: cluster.map(|cluster| cluster.metadata.uid.as_str()),
        is_creating: false,
    };
    renew(store, name, record, claim).await.map(drop)
}

/// Records that a cluster was seen. Once: what is not recorded now is seen again by the next repair.
///
/// # Errors
/// When the API server cannot be asked, or refuses.
pub async fn record_sighting(store: &impl Mending, sighting: &Sighting) -> Result<(), Error> {
    let Sighting {
        customization,
        pool,
        cluster_deployment,
        uid,
    } = sighting;
    let holder = Holder {
        pool,
        cluster_deployment,
    };
    match store.record(customization).await? {
        Some(record) if record.names(holder) => {
            store.write_record(customization, &record.with_uid(uid)).await?;
        }
        Some(_) => {}
        None => {
            let claim = LeaseClaim {
                holder,
                duration: None,
                cluster_deployment_uid: Some(uid),
                is_creating: false,
            };
            let record = first(customization, claim, store.now());
            let _: Created = store.create_record(&record).await?;
        }
    }
    Ok(())
}

impl Mending for Store<'_> {
    async fn snapshot(&self) -> Result<Snapshot, Error> {
        self.snapshot().await
    }

    async fn patch_cluster(&self, cluster: &ClusterDeployment, patch: &Value) -> Result<Written, Error> {
        self.write_cluster(&cluster.metadata.namespace, cluster.name(), patch)
            .await
    }

    async fn make_cluster(
        &self,
        parts: Parts<'_>,
        claim: LeaseClaim<'_>,
    ) -> Result<Result<ClusterDeployment, Obstacle>, Error> {
        make(self, parts, claim).await
    }

    async fn delete_copy(&self, copy: &Copy) -> Result<Written, Error> {
        self.delete_customization(&copy.metadata).await
    }
}

#[cfg(test)]
mod tests;
