//! Prints the result of `pool repair` as a JSON document (schema: `plugin/schema/poolrepair.json`) or as a table.

use kcp_pool::repair::report::{FindingCounts, FindingResult, NamespaceFailure, RepairRefusal, RepairReport};
use owo_colors::Style;
use serde::Serialize;

use crate::{
    document::{Document, Versioned},
    output::Report,
    terminal::{
        escape,
        style::{BAD, GOOD, WARN},
        table::{Cell, Column, Layout, Table},
    },
};

/// The problems that a repair found, and the result of each remedy.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct PoolRepair {
    /// The namespace that was repaired; absent for all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// The pool that was repaired; absent for all pools of the namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// Whether `--yes` is set, so that problems are repaired.
    applied: bool,
    findings: Vec<LeaseProblemDocument>,
    /// The namespaces that were not repaired completely; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<NamespaceError>,
    /// Why the request was refused. One of: no-such-entry. Absent if the request was not refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Why the request was refused, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl Document for PoolRepair {
    const KIND: &'static str = "PoolRepair";
}

/// A namespace that was not repaired completely, and why.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NamespaceError {
    namespace: String,
    message: String,
}

/// A problem of a lease, and its remedy.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct LeaseProblemDocument {
    /// The pool's namespace.
    namespace: String,
    object: ObjectName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// The ClusterDeployment that holds the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_deployment: Option<String>,
    /// What causes the problem. One of: ended (the lease has ended), cluster-gone (the cluster of the lease no longer exists),
    /// unrecorded (the status of the entry is incomplete, or contradicts the clusters), contested (several clusters use the entry),
    /// unknown (the holder is unknown), left (an object of an ended lease still exists), hive (Hive causes the problem); with --force
    /// also in-use (there is no problem, but the command does not free the entry).
    cause: &'static str,
    /// The problem in one sentence.
    message: String,
    /// How to repair the problem. One of: free, clean (the entry must be cleaned before it is free), record, remove, recreate (only
    /// with --recreate), force (the entry is freed only with --force), none.
    remedy: &'static str,
    /// The result of the remedy. One of: done, settled (the problem no longer existed), waits (for its customization, or for the other
    /// clusters of the pool),
    /// contended (conflicts with other clients), blocked, failed; absent if the remedy was not applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'static str>,
    /// Why the remedy failed or cannot be applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The object that has the problem.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ObjectName {
    kind: &'static str,
    namespace: String,
    name: String,
}

impl PoolRepair {
    fn new(report: &RepairReport) -> Self {
        Self {
            namespace: report.namespace.clone(),
            pool: report.pool.clone(),
            applied: report.is_confirmed,
            findings: report.results.iter().map(LeaseProblemDocument::new).collect(),
            errors: report.failures.iter().map(NamespaceError::new).collect(),
            reason: report.refusal.as_ref().map(RepairRefusal::reason),
            message: report.refusal.as_ref().map(ToString::to_string),
        }
    }
}

impl NamespaceError {
    fn new(failure: &NamespaceFailure) -> Self {
        Self {
            namespace: failure.namespace.clone(),
            message: failure.error.to_string(),
        }
    }
}

impl LeaseProblemDocument {
    fn new(found: &FindingResult) -> Self {
        let FindingResult {
            namespace, finding, ..
        } = found;
        let subject = &finding.subject;
        Self {
            namespace: namespace.clone(),
            object: ObjectName {
                kind: subject.kind(),
                namespace: subject.namespace().unwrap_or(namespace).to_owned(),
                name: subject.name().to_owned(),
            },
            pool: finding.pool.clone(),
            cluster_deployment: finding.cluster_deployment.clone(),
            cause: finding.cause.as_str(),
            message: finding.sentence(),
            remedy: finding.remedy.as_str(),
            result: found.result(),
            error: (found.error().map(ToString::to_string))
                .or_else(|| found.obstacle().map(ToString::to_string)),
        }
    }
}

const COLUMNS: &[Column] = &[
    Column::new("NAMESPACE"),
    Column::new("OBJECT"),
    Column::new("REMEDY"),
    Column::new("RESULT"),
    Column::new("CAUSE"),
];

impl Report for RepairReport {
    fn table(&self, layout: Layout) -> String {
        screen(self, layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(PoolRepair::new(self))
    }

    fn names(&self) -> Vec<String> {
        let found = self.results.iter();
        found.map(|found| found.finding.subject.resource_name()).collect()
    }
}

fn screen(report: &RepairReport, layout: Layout) -> String {
    if report.results.is_empty() && (report.refusal.is_some() || !report.failures.is_empty()) {
        // Print no table: stderr contains the reason, and "nothing to repair" would be wrong.
        return String::new();
    }
    if report.results.is_empty() {
        return format!("nothing to repair in {}\n", place(report));
    }
    let mut table = Table::with_columns(COLUMNS.iter().copied());
    for found in &report.results {
        table.add_row(row(found, report.namespace.is_none()));
    }
    format!(
        "{}\n{}",
        table.render(layout),
        summary(report.count(), report.is_confirmed)
    )
}

fn place(report: &RepairReport) -> String {
    match (&report.namespace, &report.pool) {
        (Some(namespace), Some(pool)) => format!("pool {namespace}/{pool}"),
        (Some(namespace), None) => format!("namespace {}", escape(namespace)),
        (None, _) => "any namespace".to_owned(),
    }
}

fn row(found: &FindingResult, is_of_all: bool) -> Vec<Cell> {
    let finding = &found.finding;
    let result = found.result().unwrap_or_default();
    let style = if found.is_repaired() { GOOD } else { BAD };
    let remedy = if finding.remedy.is_safe() {
        Style::new()
    } else {
        WARN
    };
    vec![
        Cell::from(if is_of_all { found.namespace.as_str() } else { "" }),
        Cell::from(finding.subject.short_name()),
        Cell::styled(finding.remedy.as_str(), remedy),
        Cell::styled(result, style),
        Cell::from(finding.sentence()).extend_to_line_end(),
    ]
}

/// The number of problems with each result, one line each.
fn summary(count: FindingCounts, is_applied: bool) -> String {
    let open = if is_applied {
        "not repaired: run the same command again"
    } else {
        "to repair with --yes"
    };
    let of_sort = [
        (count.repaired, "repaired"),
        (count.open, open),
        (count.blocked, "blocked: the cluster was not created again"),
        (
            count.needs_force,
            "to free with --yes --force NAME, if you know that the holder no longer exists",
        ),
        (count.needs_manual_repair, "to resolve by hand"),
        (count.not_freed, "not freed by --force"),
    ];
    let lines = of_sort.iter().filter(|(number, _)| *number > 0);
    lines.fold(String::new(), |text, (number, what)| {
        text + &number.to_string() + " " + what + "\n"
    })
}

#[cfg(test)]
mod tests {
    use kcp_pool::testing::reports::reports;

    use super::{Layout, PoolRepair, screen};
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
        let schema = serde_json::to_value(of::<PoolRepair>()).unwrap();
        for (name, report) in reports() {
            let document = serde_json::to_value(Versioned(PoolRepair::new(&report))).unwrap();
            assert_eq!(faults(&schema, &document), Vec::<String>::new(), "{name}");
            assert_every_format(&report);
            insta::with_settings!({snapshot_path => "../snapshots"}, {
                insta::assert_snapshot!(format!("JSON of {name}"), serde_json::to_string_pretty(&document).unwrap());
            });
        }
    }

    #[test]
    fn the_schema_is_checked_in() {
        checked_in::<PoolRepair>("poolrepair.json");
    }

    #[test]
    fn screens() {
        let layout = Layout {
            width: Some(80),
            ..Layout::default()
        };
        for (name, report) in reports() {
            insta::with_settings!({snapshot_path => "../snapshots"}, {
                insta::assert_snapshot!(name, plain(&screen(&report, layout)));
            });
        }
    }
}
