//! What has leaked, with the cause of each, and the writes that repair it.
//!
//! - [`namespaces`]: where to search
//! - [`proof`]: whether a holder is gone
//! - [`wanted`]: what is asked for; [`decision`] -> [`finding`]: what is wrong and what repairs it
//! - [`missing_cluster`]: which clusters are made again; [`installed`]: which customizations have succeeded; [`kept`]: which
//!   are not freed although they are named
//! - [`mend`], [`recreation`], [`reads`]: the writes, each after reading and deciding anew
//! - [`report`]: what was found, and what came of it

pub mod decision;
pub mod finding;
pub mod installed;
pub mod kept;
pub mod mend;
pub mod missing_cluster;
pub mod namespaces;
pub mod proof;
mod reads;
mod recreation;
pub mod report;
pub mod wanted;

use std::collections::BTreeSet;

use jiff::SignedDuration;
use kcp_client::{Connection, Error};

use crate::{
    install_config::InstallConfig,
    inventory::{
        capacity::Capacity,
        inventory_conditions::{self, Findings},
    },
    objects::{cluster_pool::Pool, record::LABEL},
    repair::{
        decision::{findings, sightings},
        installed::installed,
        mend::{mend, record_sighting},
        namespaces::Traces,
        proof::Clock,
        report::{Found, RepairRefusal},
        wanted::Wanted,
    },
    store::{CUSTOMIZATION, Customizations as _, LEASE, Store},
    survey::Survey,
};

/// What is asked of a repair, whatever the namespace.
#[derive(Clone, Copy, Debug)]
pub struct RepairRequest<'r> {
    /// None for all pools of the namespace.
    pub pool: Option<&'r str>,
    /// How long a holder's cluster may be missing.
    pub grace: SignedDuration,
    /// Customizations to repair although nothing proves that their holders are gone.
    pub forced: &'r [String],
    /// What missing clusters are made from; none where their customizations are freed.
    pub install_config: Option<&'r InstallConfig>,
    /// Whether to write, or only to report.
    pub is_applied: bool,
}

/// The namespaces that a repair of all namespaces has to read.
///
/// # Errors
/// When the API server cannot be asked.
pub async fn namespaces(connection: &Connection, field_manager: &str) -> Result<BTreeSet<String>, Error> {
    let store = Store::new(connection, field_manager);
    let labelled = format!("{LABEL}=true");
    let traces = Traces {
        pools: store.pools(None).await?,
        entries: connection.list(&CUSTOMIZATION.at("v1"), None, None).await?,
        records: connection.list(&LEASE.at("v1"), None, Some(&labelled)).await?,
        clusters: store.deployments().await?.iter().cloned().collect(),
    };
    Ok(traces.namespaces())
}

/// Repairs one namespace. What is found, and what comes of it, is kept also of a repair that fails later.
///
/// # Errors
/// When the API server cannot be asked, or refuses a write that is not of one finding.
pub async fn repair(
    store: &Store<'_>,
    request: RepairRequest<'_>,
    found: &mut Vec<Found>,
) -> Result<Option<RepairRefusal>, Error> {
    let wanted = Wanted {
        pool: request.pool,
        clock: Clock {
            now: store.now(),
            grace: request.grace,
        },
        forced: request.forced,
        install_config: request.install_config,
    };
    let survey = store.survey().await?;
    if let Some(pool) = wanted.pool
        && survey.pool(pool).is_none()
    {
        // The server's own answer says that there is none.
        store.pool(pool).await?;
    }
    let missing = request.forced.iter().find(|name| survey.entry(name).is_none());
    if let Some(name) = missing {
        return Ok(Some(RepairRefusal::NoSuchEntry { name: name.clone() }));
    }
    for finding in findings(&survey, &wanted) {
        let result = if request.is_applied && finding.remedy.is_safe() {
            Some(mend(store, &wanted, &finding).await)
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
        for sighting in sightings(&survey, &wanted) {
            record_sighting(store, &sighting).await?;
        }
        for entry in installed(&survey, &wanted) {
            // Of one that has changed the next repair says it.
            store
                .write_status(entry.name(), &entry.succeeded(store.now()))
                .await?;
        }
        write_pool_conditions(store, &survey, &wanted).await;
    }
    Ok(None)
}

/// What the pools say of their inventories, where no Hive says it. No repair of a finding changes it, and who may not write
/// it repairs all the same.
async fn write_pool_conditions(store: &Store<'_>, survey: &Survey, wanted: &Wanted<'_>) {
    let is_ours = |pool: &&Pool| {
        let is_asked = wanted.pool.is_none_or(|asked| asked == pool.name());
        is_asked && pool.spec.inventory.is_some() && !pool.is_run_by_hive() && !pool.is_deleting()
    };
    for pool in survey.pools.iter().filter(is_ours) {
        let capacity = Capacity::of(pool, survey.deployments.of_pool(pool.name()));
        let findings = Findings {
            entries: &survey.entries,
            broken: &BTreeSet::new(),
        };
        if let Some(patch) = inventory_conditions::patch(pool, findings, &capacity, store.now()) {
            drop(store.write_pool_status(pool.name(), &patch).await);
        }
    }
}
