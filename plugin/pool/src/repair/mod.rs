//! What has leaked, with the cause of each fault, and the writes that repair it.
//!
//! - [`options`]: the request
//! - [`holder`]: whether a holder is gone
//! - [`decision`], [`missing_cluster`], [`leftovers`] -> [`finding`]: what is wrong, and what repairs it
//! - [`apply`], [`recreate`]: the writes, each after reading and deciding again
//! - [`sightings`]: what a repair records of living clusters
//! - [`report`]: what was found, and the result

pub mod apply;
pub mod decision;
pub mod finding;
pub mod holder;
mod leftovers;
mod missing_cluster;
pub mod options;
mod recreate;
pub mod report;
mod sightings;

use std::collections::BTreeSet;

use kcp_client::{Connection, Error};

use crate::{
    inventory::capacity::{Capacity, Findings, inventory_patch},
    objects::{
        cluster_deployment::{ClusterDeployment, Copy, LEASE_FINALIZER},
        cluster_pool::Pool,
        entry::Entry,
        record::{LABEL, Record},
    },
    repair::{
        apply::{apply, record_sighting},
        decision::findings,
        options::{Options, RepairRequest},
        report::{Found, RepairRefusal},
        sightings::{installed, sightings},
    },
    snapshot::Snapshot,
    store::{CUSTOMIZATION, Customizations as _, LEASE, Store},
};

/// The namespaces that a repair of all namespaces has to read.
///
/// # Errors
/// If the API server cannot be asked.
pub async fn namespaces(connection: &Connection, field_manager: &str) -> Result<BTreeSet<String>, Error> {
    let store = Store::new(connection, field_manager);
    let labelled = format!("{LABEL}=true");
    let traces = Traces {
        pools: store.pools(None, None).await?,
        entries: connection.list(&CUSTOMIZATION.at("v1"), None, None).await?,
        records: connection.list(&LEASE.at("v1"), None, Some(&labelled)).await?,
        clusters: store.deployments().await?.iter().cloned().collect(),
    };
    Ok(traces.namespaces())
}

/// Repairs one namespace. `found` keeps the findings and results even if a later step fails.
///
/// # Errors
/// If the API server cannot be asked, or refuses a write that belongs to no finding.
pub async fn repair(
    store: &Store<'_>,
    request: RepairRequest<'_>,
    found: &mut Vec<Found>,
) -> Result<Option<RepairRefusal>, Error> {
    let options = request.at(store.now());
    let snapshot = store.snapshot().await?;
    if let Some(pool) = options.pool
        && snapshot.pool(pool).is_none()
    {
        // The server's own error says that there is none.
        store.pool(pool).await?;
    }
    let missing = request.forced.iter().find(|name| snapshot.entry(name).is_none());
    if let Some(name) = missing {
        return Ok(Some(RepairRefusal::NoSuchEntry { name: name.clone() }));
    }
    for finding in findings(&snapshot, &options) {
        let result = if request.is_applied && finding.remedy.is_safe() {
            Some(apply(store, &options, &finding).await)
        } else {
            None
        };
        found.push(Found {
            namespace: store.namespace().to_owned(),
            finding,
            result,
        });
    }
    if request.is_applied {
        for sighting in sightings(&snapshot, &options) {
            record_sighting(store, &sighting).await?;
        }
        for entry in installed(&snapshot, &options) {
            // If it has changed, the next repair writes it.
            store
                .write_status(entry.name(), &entry.succeeded(store.now()))
                .await?;
        }
        write_pool_conditions(store, &snapshot, &options).await;
    }
    Ok(None)
}

/// Writes the conditions of pools that Hive does not run. The repairs above do not change them, and an account that
/// may not write them can still repair.
async fn write_pool_conditions(store: &Store<'_>, snapshot: &Snapshot, options: &Options<'_>) {
    let is_ours = |pool: &&Pool| {
        let is_asked = options.pool.is_none_or(|asked| asked == pool.name());
        is_asked && pool.spec.inventory.is_some() && !pool.is_run_by_hive() && !pool.is_deleting()
    };
    for pool in snapshot.pools.iter().filter(is_ours) {
        let capacity = Capacity::of(pool, snapshot.deployments.of_pool(pool.name()));
        let findings = Findings {
            entries: &snapshot.entries,
            broken: &BTreeSet::new(),
        };
        if let Some(patch) = inventory_patch(pool, findings, &capacity, store.now()) {
            drop(store.write_pool_status(pool.name(), &patch).await);
        }
    }
}

/// The objects of all namespaces that may belong to a lease.
#[derive(Clone, Debug, Default)]
pub(super) struct Traces {
    pub pools: Vec<Pool>,
    /// With copies in the namespaces of clusters.
    pub entries: Vec<Entry>,
    pub records: Vec<Record>,
    pub clusters: Vec<ClusterDeployment>,
}

impl Traces {
    /// Namespaces with pools, or with leases whose pool may be gone.
    pub(super) fn namespaces(self) -> BTreeSet<String> {
        let pools = self.pools.into_iter().map(|pool| pool.metadata.namespace);
        let records = self.records.into_iter().map(|record| record.metadata.namespace);
        let entries = self.entries.into_iter().flat_map(|entry| {
            let is_taken = entry.is_reserved() || entry.pool().is_some();
            let copy = Copy {
                metadata: entry.metadata,
            };
            let original = copy.pool_namespace().map(str::to_owned);
            original
                .into_iter()
                .chain(is_taken.then_some(copy.metadata.namespace))
        });
        let clusters = self.clusters.into_iter().filter_map(|cluster| {
            let is_ours = cluster.metadata.has_finalizer(LEASE_FINALIZER);
            let reference = cluster.pool_reference.filter(|_| is_ours)?;
            Some(reference.namespace)
        });
        pools
            .chain(records)
            .chain(entries)
            .chain(clusters)
            .filter(|namespace| !namespace.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Traces;
    use crate::testing::objects::{LONG_AGO, cluster, entry, pool_object, record};

    fn read<T: serde::de::DeserializeOwned>(object: Value) -> Vec<T> {
        vec![serde_json::from_value(object).unwrap()]
    }

    #[test]
    fn each_trace_of_a_lease_leads_to_its_namespace() {
        let none = Traces::default;
        let mut copy = entry("True", None, LONG_AGO);
        copy["metadata"]["namespace"] = "us".into();
        copy["metadata"]["labels"] = json!({"hive.openshift.io/clusterpool-namespace": "d"});
        let mut kept = cluster("us", "gone", Some("a"));
        kept["metadata"]["finalizers"] = json!(["kubectl-kcp.dev/pool-lease"]);
        for (case, traces, expected) in [
            ("nothing", none(), None),
            (
                "a pool",
                Traces {
                    pools: read(pool_object("pool", &json!({}))),
                    ..none()
                },
                Some("d"),
            ),
            (
                "a record",
                Traces {
                    records: read(record("us", LONG_AGO, None)),
                    ..none()
                },
                Some("d"),
            ),
            (
                "an entry of a pool",
                Traces {
                    entries: read(entry("True", Some("us"), LONG_AGO)),
                    ..none()
                },
                Some("d"),
            ),
            (
                "an entry that is reserved without a holder",
                Traces {
                    entries: read(entry("False", None, LONG_AGO)),
                    ..none()
                },
                Some("d"),
            ),
            (
                "a free entry",
                Traces {
                    entries: read(entry("True", None, LONG_AGO)),
                    ..none()
                },
                None,
            ),
            (
                "a copy",
                Traces {
                    entries: read(copy),
                    ..none()
                },
                Some("d"),
            ),
            (
                "a cluster with our finalizer",
                Traces {
                    clusters: read(kept),
                    ..none()
                },
                Some("d"),
            ),
            (
                "a cluster without it",
                Traces {
                    clusters: read(cluster("us", "gone", Some("a"))),
                    ..none()
                },
                None,
            ),
        ] {
            let namespaces: Vec<_> = traces.namespaces().into_iter().collect();
            assert_eq!(namespaces, Vec::from_iter(expected), "{case}");
        }
    }
}
