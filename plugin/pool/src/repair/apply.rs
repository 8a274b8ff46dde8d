//! Applies the remedy of a finding: everything is read and decided again, and written under the resourceVersion that
//! was read. If the process is killed at any point, the next repair finds the rest.

use std::time::Duration;

use jiff::Timestamp;
use kcp_client::{Created, Error, Written};
use serde_json::Value;

use crate::{
    creation::{
        Parts,
        make::{Obstacle, make},
    },
    lease::record_keeping::{delete_revoked, renew},
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

/// How often an object is read and decided again that other clients change.
const MAX_ATTEMPTS: usize = 5;

/// Before it is read again after a write without an answer.
const REST: Duration = Duration::from_millis(200);

/// What a repair reads and writes.
#[allow(async_fn_in_trait, reason = "used in this crate, on one thread")]
pub trait RepairStore: Customizations + Records {
    /// Reads everything.
    async fn snapshot(&self) -> Result<Snapshot, Error>;

    /// Changes a ClusterDeployment once, by a merge patch with a resourceVersion. `Changed` if it is gone.
    async fn patch_cluster(&self, cluster: &ClusterDeployment, patch: &Value) -> Result<Written, Error>;

    /// Creates a missing cluster and what it needs, or returns why it is not created. Renews the lease as claimed
    /// right before the ClusterDeployment.
    async fn create_cluster(
        &self,
        parts: Parts<'_>,
        claim: LeaseClaim<'_>,
    ) -> Result<Result<ClusterDeployment, Obstacle>, Error>;

    /// Deletes this version of a copy, once.
    async fn delete_copy(&self, copy: &Copy) -> Result<Written, Error>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairOutcome {
    Repaired,
    /// When it was read again, the fault was gone: another client was faster.
    Settled,
    /// Its customization is not free yet.
    Waits,
    /// Blocked by something that was not known before.
    Blocked(Obstacle),
    /// Other clients change it faster than it can be written.
    Contended,
}

/// Repairs one finding, if it still exists.
///
/// # Errors
/// If the API server cannot be asked, or refuses.
pub async fn apply(
    store: &impl RepairStore,
    options: &Options<'_>,
    planned: &Finding,
) -> Result<RepairOutcome, Error> {
    let mut may_be_written = false;
    for _ in 0..MAX_ATTEMPTS {
        let snapshot = store.snapshot().await?;
        let found = findings(&snapshot, options);
        // An entry that was named with --force is freed only if it still has the holder that was shown.
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
                return Ok(RepairOutcome::Repaired);
            }
            return Ok(RepairOutcome::Settled);
        };
        if finding.is_removed_after_its_entry() && still_holds(&found, finding) {
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
                return Ok(RepairOutcome::Repaired);
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

/// What blocks a finding's remedy now.
fn obstacle<'f>(found: &'f [Finding], planned: &Finding) -> Option<&'f Obstacle> {
    let mut of_it = found.iter().filter(|finding| finding.subject == planned.subject);
    of_it.find_map(|finding| match &finding.remedy {
        Remedy::Blocked(why) => Some(why),
        _ => None,
    })
}

/// Whether the holder still has a customization that is to be freed.
fn still_holds(found: &[Finding], after: &Finding) -> bool {
    found
        .iter()
        .any(|other| other.remedy == Remedy::Free && other.holder() == after.holder())
}

async fn step(
    store: &impl RepairStore,
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

/// Revokes the record first, so that a holder that still exists stops renewing.
async fn free(
    store: &impl RepairStore,
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

/// Makes the record match the status after a write.
async fn after(store: &impl RepairStore, snapshot: &Snapshot, finding: &Finding) -> Result<(), Error> {
    let Subject::Entry { name } = &finding.subject else {
        return Ok(());
    };
    match (&finding.remedy, finding.holder()) {
        (Remedy::Free, Some(holder)) => delete_revoked(store, name, holder).await,
        (Remedy::Reserve { .. }, Some(holder)) => record_holder(store, snapshot, name, holder).await,
        _ => Ok(()),
    }
}

async fn record_holder(
    store: &impl RepairStore,
    snapshot: &Snapshot,
    name: &str,
    holder: Holder<'_>,
) -> Result<(), Error> {
    let record = snapshot.record(name);
    let is_run_by_hive = snapshot.pool(holder.pool).is_some_and(Pool::is_run_by_hive);
    if record.is_none() && is_run_by_hive {
        return Ok(());
    }
    let cluster = snapshot.deployments.proof_of_existence(holder);
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

/// Records that a cluster was seen. Tried once: the next repair sees it again.
///
/// # Errors
/// If the API server cannot be asked, or refuses.
pub async fn record_sighting(store: &impl RepairStore, sighting: &Sighting) -> Result<(), Error> {
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

impl RepairStore for Store<'_> {
    async fn snapshot(&self) -> Result<Snapshot, Error> {
        self.snapshot().await
    }

    async fn patch_cluster(&self, cluster: &ClusterDeployment, patch: &Value) -> Result<Written, Error> {
        self.write_cluster(&cluster.metadata.namespace, cluster.name(), patch)
            .await
    }

    async fn create_cluster(
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
