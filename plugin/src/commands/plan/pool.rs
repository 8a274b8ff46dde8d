//! The effect of a change to a cluster pool.

use kcp_api::{ClusterPool, metadata::Object as _};
use kcp_pool::{
    hive::HiveMode,
    plan as model,
    plan::{EntryChange, StaleCluster, StaleReason, VersionChange, plan},
    store::{CLUSTER_POOL, Store},
};
use serde::Serialize;

use crate::{
    commands::pool::PoolDocumentName,
    document::{Document, Versioned, resource_name},
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::{
        escape,
        style::{BAD, WARN},
        table::{Cell, Column, Layout, Table},
    },
    verdict::Verdict,
};

/// Plans a change to a pool.
pub(super) async fn run(
    pool: &ClusterPool,
    output: &OutputArguments,
    session: &Session,
) -> anyhow::Result<Verdict> {
    let mut connection = session.connect().await?;
    if !pool.namespace().is_empty() {
        pool.namespace().clone_into(&mut connection.namespace);
    }
    let snapshot = Store::new(&connection, "kubectl-kcp")
        .snapshot(HiveMode::Auto, None)
        .await?;
    let plan = plan(&snapshot, pool);
    print(&plan, output, &session.terminal)?;
    Ok(if plan.is_destructive() {
        Verdict::Negative
    } else {
        Verdict::Met
    })
}

impl Report for model::PoolPlan {
    fn table(&self, layout: Layout) -> String {
        screen(self, layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(PoolPlan::new(self))
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(&CLUSTER_POOL, &self.name)]
    }
}

/// The effects of a change to a pool on the pool's clusters and entries.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolPlan<'p> {
    metadata: PoolDocumentName,
    /// Whether the change creates the pool.
    new: bool,
    /// Whether Hive manages the pool, and therefore replaces and deletes clusters. Also true if this is unknown.
    run_by_hive: bool,
    version: &'p VersionChange,
    /// The unclaimed clusters that the change makes stale.
    stale: &'p [StaleCluster],
    /// How many unclaimed clusters Hive deletes because `size` becomes smaller.
    excess: usize,
    entries: Vec<EntryDocument>,
    /// The problems that the pool has after the change, one sentence each.
    problems: &'p [String],
}

impl Document for PoolPlan<'_> {
    const KIND: &'static str = "PoolPlan";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct EntryDocument {
    name: String,
    /// Whether the change adds the entry or drops it. One of: added, dropped.
    change: &'static str,
    /// The effect of the change on the entry. One of: free, missing, shared, unused, cluster-stale,
    /// cluster-claimed, held.
    effect: &'static str,
    /// The effect of the change on the entry, in one sentence.
    message: String,
}

impl<'p> PoolPlan<'p> {
    pub(crate) fn new(plan: &'p model::PoolPlan) -> Self {
        Self {
            metadata: PoolDocumentName {
                namespace: plan.namespace.clone(),
                name: plan.name.clone(),
            },
            new: plan.is_new,
            run_by_hive: plan.is_managed_by_hive,
            version: &plan.version,
            stale: &plan.stale_clusters,
            excess: plan.excess,
            entries: plan.entries.iter().map(EntryDocument::new).collect(),
            problems: &plan.problems,
        }
    }
}

impl EntryDocument {
    fn new(entry: &EntryChange) -> Self {
        Self {
            name: entry.name.clone(),
            change: entry.change.as_str(),
            effect: entry.effect.as_str(),
            message: entry.effect.to_string(),
        }
    }
}

const ENTRY_COLUMNS: &[Column] = &[Column::new("ENTRY"), Column::new("CHANGE"), Column::new("EFFECT")];

const STALE_COLUMNS: &[Column] = &[Column::new("CLUSTER"), Column::new("STALE BECAUSE")];

fn screen(plan: &model::PoolPlan, layout: Layout) -> String {
    let mut parts = vec![summary(plan)];
    if !plan.entries.is_empty() {
        let mut table = Table::with_columns(ENTRY_COLUMNS.iter().copied());
        for entry in &plan.entries {
            table.add_row([
                Cell::from(&entry.name),
                Cell::from(entry.change.as_str()),
                Cell::from(entry.effect.to_string()).extend_to_line_end(),
            ]);
        }
        parts.push(table.render(layout));
    }
    if !plan.stale_clusters.is_empty() {
        let mut table = Table::with_columns(STALE_COLUMNS.iter().copied());
        for cluster in &plan.stale_clusters {
            let why = match cluster.why {
                StaleReason::Version => "created from another version",
                StaleReason::DroppedFromInventory => "the change removes its entry from the inventory",
            };
            table.add_row([
                Cell::from(&cluster.name),
                Cell::styled(why, WARN).extend_to_line_end(),
            ]);
        }
        parts.push(table.render(layout));
    }
    if !plan.problems.is_empty() {
        let mut table = Table::with_columns([Column::new("PROBLEMS AFTER THE CHANGE")]);
        for problem in &plan.problems {
            table.add_row([Cell::styled(problem, BAD).extend_to_line_end()]);
        }
        parts.push(table.render(layout));
    }
    parts.join("\n")
}

fn summary(plan: &model::PoolPlan) -> String {
    let new = if plan.is_new { " (new)" } else { "" };
    let version = match (&plan.version.before, &plan.version.after) {
        (_, None) if plan.version.is_changed => "will change; the new version is unknown".to_owned(),
        (_, None) => "unknown (spec.platform has a field that only a newer Hive knows)".to_owned(),
        (Some(_), Some(after)) if !plan.version.is_changed => format!("{after}, unchanged"),
        (Some(before), Some(after)) => format!("{before} -> {after}"),
        (None, Some(after)) => after.clone(),
    };
    let stale = match plan.stale_clusters.len() {
        0 => "no cluster becomes stale".to_owned(),
        1 => "1 becomes stale".to_owned(),
        stale => format!("{stale} become stale"),
    };
    let excess = match plan.excess {
        0 => String::new(),
        1 => ", 1 exceeds the size and is deleted".to_owned(),
        excess => format!(", {excess} exceed the size and are deleted"),
    };
    let who = match (plan.is_destructive(), plan.is_managed_by_hive) {
        (false, _) => "",
        (true, true) => "; Hive replaces stale clusters one at a time",
        (true, false) => {
            "; Hive does not manage the pool, so you must replace and delete the clusters yourself"
        }
    };
    format!(
        "Pool:      {}/{}{new}\nVersion:   {version}\nUnclaimed: {stale}{excess}{who}\n",
        escape(&plan.namespace),
        escape(&plan.name)
    )
}

#[cfg(test)]
mod tests {
    use kcp_pool::testing::plans::plans;

    use super::{Layout, PoolPlan, screen};
    use crate::{
        document::Versioned,
        terminal::plain,
        testing::{
            assert_every_format,
            schema::{checked_in, faults, of},
        },
    };

    #[test]
    fn documents() {
        let schema = serde_json::to_value(of::<PoolPlan<'_>>()).unwrap();
        for (name, plan) in plans() {
            let document = serde_json::to_value(Versioned(PoolPlan::new(&plan))).unwrap();
            assert_eq!(faults(&schema, &document), Vec::<String>::new(), "{name}");
            assert_every_format(&plan);
            insta::assert_snapshot!(
                format!("JSON of {name}"),
                serde_json::to_string_pretty(&document).unwrap()
            );
        }
    }

    #[test]
    fn the_schema_is_checked_in() {
        checked_in::<PoolPlan<'_>>("poolplan.json");
    }

    #[test]
    fn screens() {
        let layout = Layout {
            width: Some(80),
            ..Layout::default()
        };
        for (name, plan) in plans() {
            insta::assert_snapshot!(name, plain(&screen(&plan, layout)));
        }
    }
}
