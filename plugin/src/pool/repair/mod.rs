//! `pool repair`: what has leaked, with the cause of each, and mending it.
//!
//! - [`namespaces`], [`reads`]: what is read
//! - [`proof`]: whether a holder is gone
//! - [`wanted`]: what is asked for; [`decision`] -> [`finding`]: what is wrong and what mends it
//! - [`missing_cluster`]: which clusters are made anew; [`installed`]: which customizations have succeeded; [`kept`]: which
//!   are not freed although they are named
//! - [`mend`], [`recreation`]: the writes, each after reading and deciding anew
//! - [`report`], [`document`], [`screen`]: how it is told

mod arguments;
pub(super) mod decision;
mod document;
#[cfg(test)]
mod example;
pub(super) mod finding;
mod installed;
mod kept;
mod mend;
mod missing_cluster;
mod namespaces;
pub(super) mod proof;
mod reads;
mod recreation;
mod report;
mod screen;
pub(super) mod wanted;

use std::collections::BTreeSet;

use anyhow::Context as _;
pub(super) use arguments::RepairArguments;
use arguments::RepairOutput;

use crate::{
    cluster::{Connection, Error},
    document::{text, yaml},
    pool::{
        install_config::InstallConfig,
        inventory::{
            capacity::Capacity,
            inventory_conditions::{self, Findings},
        },
        objects::{cluster_pool::Pool, record::LABEL},
        store::{CUSTOMIZATION, Customizations as _, LEASE, Store},
        survey::Survey,
    },
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
};
use decision::{findings, sightings};
use document::PoolRepair;
use installed::installed;
use mend::{mend, record_sighting};
use namespaces::Traces;
use proof::Clock;
use report::{Failure, Found, Refusal, Report};
use wanted::Wanted;

/// Runs `pool repair`.
///
/// # Errors
/// When nothing could be decided.
pub(super) async fn run(arguments: RepairArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let mut report = Report {
        namespace: (!arguments.all_namespaces).then(|| connection.namespace.clone()),
        pool: arguments.pool.clone(),
        is_applied: arguments.yes,
        found: Vec::new(),
        failures: Vec::new(),
        refusal: None,
    };
    if arguments.yes {
        let again = "interrupted: what is mended stays so; the same command goes on with the rest";
        session.terminal.on_interrupt(again);
    }
    let namespaces = match &report.namespace {
        Some(namespace) => BTreeSet::from([namespace.clone()]),
        None => namespaces(&connection, &arguments.field_manager).await?,
    };
    let install_config = match &arguments.install_config {
        Some(source) => Some(InstallConfig::read(source, &connection).await?),
        None => None,
    };
    for namespace in namespaces {
        let mut connection = connection.clone();
        connection.namespace = namespace;
        let store = Store::new(&connection, &arguments.field_manager);
        let repaired = repair(&store, &arguments, install_config.as_ref(), &mut report.found).await;
        match repaired {
            Ok(refusal) => report.refusal = refusal,
            Err(error) if report.found.is_empty() && !arguments.all_namespaces => return Err(error.into()),
            Err(error) => report.failures.push(Failure {
                namespace: store.namespace().to_owned(),
                error,
            }),
        }
    }
    show(&report, arguments.output, &session.terminal)?;
    Ok(report.verdict())
}

async fn namespaces(connection: &Connection, field_manager: &str) -> Result<BTreeSet<String>, Error> {
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

/// What is found, and what comes of it, is kept also of a repair that fails later.
async fn repair(
    store: &Store<'_>,
    arguments: &RepairArguments,
    install_config: Option<&InstallConfig>,
    found: &mut Vec<Found>,
) -> Result<Option<Refusal>, Error> {
    let wanted = Wanted {
        pool: arguments.pool.as_deref(),
        clock: Clock {
            now: store.now(),
            grace: arguments.grace(),
        },
        forced: &arguments.force,
        install_config,
    };
    let survey = store.survey().await?;
    if let Some(pool) = wanted.pool
        && survey.pool(pool).is_none()
    {
        // The server's own answer says that there is none.
        store.pool(pool).await?;
    }
    let missing = arguments.force.iter().find(|name| survey.entry(name).is_none());
    if let Some(name) = missing {
        return Ok(Some(Refusal::NoSuchEntry { name: name.clone() }));
    }
    for finding in findings(&survey, &wanted) {
        let result = if arguments.yes && finding.remedy.is_safe() {
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
    if arguments.yes {
        for sighting in sightings(&survey, &wanted) {
            record_sighting(store, &sighting).await?;
        }
        for entry in installed(&survey, &wanted) {
            // Of one that has changed the next repair tells it.
            store
                .write_status(entry.name(), &entry.succeeded(store.now()))
                .await?;
        }
        tell_of_inventories(store, &survey, &wanted).await;
    }
    Ok(None)
}

/// What the pools say of their inventories, where no Hive says it. Nothing that is mended changes it, and who may not write
/// it repairs all the same.
async fn tell_of_inventories(store: &Store<'_>, survey: &Survey, wanted: &Wanted<'_>) {
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

fn show(report: &Report, output: Option<RepairOutput>, terminal: &Terminal) -> anyhow::Result<()> {
    let width = Terminal::size().map(|size| size.width);
    let text = match output {
        None => screen::screen(report, width),
        Some(RepairOutput::Json) => text(&PoolRepair::of(report))?,
        Some(RepairOutput::Yaml) => yaml(&PoolRepair::of(report))?,
        Some(RepairOutput::Name) => screen::names(report),
    };
    terminal.print(&text).context("cannot write to stdout")?;
    for found in &report.found {
        if let Some(error) = found.error() {
            let hint = error.hint();
            let error = anyhow::anyhow!("{error}");
            terminal.error(&error, hint.as_deref());
        }
        if let Some(why) = found.obstacle() {
            terminal.note(&format!("blocked: {}: {why}", found.finding.subject.short_name()));
        }
    }
    for Failure { namespace, error } in &report.failures {
        let hint = error.hint();
        let error = anyhow::anyhow!("namespace {namespace} is not repaired to the end: {error}");
        terminal.error(&error, hint.as_deref());
    }
    if let Some(refusal) = &report.refusal {
        terminal.note(&format!("{}: {refusal}", refusal.reason()));
    }
    Ok(())
}
