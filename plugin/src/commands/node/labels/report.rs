//! How the labels of Nodes change: text and JSON (`kubectl-kcp.dev/v1alpha1`).

use kcp_api::kind::NODE;
use kcp_control_plane::verbs::node::labels::LabelChanges;
use owo_colors::OwoColorize as _;
use serde::Serialize;

use crate::{
    arguments::DryRun,
    document::{Document, Versioned, resource_name},
    output::Report,
    terminal::{escape, style::BAD, table::Layout},
    verdict::Verdict,
};

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NodeName<'r> {
    name: &'r str,
}

/// What a command did to the labels of one Node, or would do.
#[derive(Debug)]
pub(super) struct NodeResult {
    pub(super) name: String,
    pub(super) outcome: LabelsOutcome,
}

#[derive(Debug)]
pub(super) enum LabelsOutcome {
    Unchanged,
    Changed(LabelChanges),
    /// Why the command does not change the labels, one line each.
    Refused(Vec<String>),
    /// Why the server rejected the write, one line each.
    Rejected(Vec<String>),
    /// The labels that another client changed first, one line each.
    Conflict(Vec<String>),
    Failed(String),
    /// The command stopped before this Node.
    NotWritten,
}

impl LabelsOutcome {
    const fn name(&self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Changed(_) => "changed",
            Self::Refused(_) => "refused",
            Self::Rejected(_) => "rejected",
            Self::Conflict(_) => "conflict",
            Self::Failed(_) => "failed",
            Self::NotWritten => "notWritten",
        }
    }

    fn reasons(&self) -> Vec<&str> {
        match self {
            Self::Refused(why) | Self::Rejected(why) | Self::Conflict(why) => {
                why.iter().map(String::as_str).collect()
            }
            Self::Failed(why) => vec![why],
            Self::Unchanged | Self::Changed(_) | Self::NotWritten => Vec::new(),
        }
    }

    const fn changes(&self) -> Option<&LabelChanges> {
        match self {
            Self::Changed(changes) => Some(changes),
            _ => None,
        }
    }
}

/// The results for all Nodes of a command.
pub(super) struct ChangesReport {
    pub(super) results: Vec<NodeResult>,
    pub(super) dry_run: Option<DryRun>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct ChangesDocument<'r> {
    items: Vec<NodeLabelChanges<'r>>,
}

impl Document for ChangesDocument<'_> {
    const KIND: &'static str = "NodeLabelChangesList";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct NodeLabelChanges<'r> {
    metadata: NodeName<'r>,
    /// `unchanged`, `changed`, `refused`, `rejected`, `conflict`, `failed` or `notWritten`.
    result: &'static str,
    changes: Vec<LabelChangeDocument<'r>>,
    /// Why the labels were not changed, one sentence each.
    reasons: Vec<&'r str>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LabelChangeDocument<'r> {
    key: &'r str,
    /// The value before the change; null if the Node does not have the label.
    before: Option<&'r str>,
    /// The value after the change; null if the label is removed.
    after: Option<&'r str>,
}

impl ChangesReport {
    pub(super) fn verdict(&self) -> Verdict {
        let is_met = |result: &NodeResult| {
            matches!(
                result.outcome,
                LabelsOutcome::Unchanged | LabelsOutcome::Changed(_)
            )
        };
        if !self.results.is_empty() && self.results.iter().all(is_met) {
            Verdict::Met
        } else {
            Verdict::Negative
        }
    }
}

impl Report for ChangesReport {
    fn table(&self, layout: Layout) -> String {
        let mut text = String::new();
        for NodeResult { name, outcome } in &self.results {
            let object = escape(&resource_name(&NODE, name)).into_owned();
            let not_changed = "labels not changed".style(BAD);
            let heading = match outcome {
                LabelsOutcome::Unchanged => format!("{object} labels unchanged\n"),
                LabelsOutcome::Changed(_) => {
                    format!("{object} labels changed{}\n", DryRun::suffix(self.dry_run))
                }
                LabelsOutcome::Refused(_) => format!("{object} {not_changed}: refused by kubectl kcp\n"),
                LabelsOutcome::Rejected(_) => format!("{object} {not_changed}: refused by the server\n"),
                LabelsOutcome::Conflict(_) => {
                    format!("{object} {not_changed}: conflict: changed by another client\n")
                }
                LabelsOutcome::Failed(_) => format!("{object} {not_changed}: an error occurred\n"),
                LabelsOutcome::NotWritten => {
                    format!("{object} {not_changed}: the command stopped at another Node\n")
                }
            };
            text += &heading;
            for reason in outcome.reasons() {
                text += &layout.wrap_paragraph(reason);
            }
            let lines = outcome.changes().into_iter().flat_map(diff_lines);
            text.extend(lines.map(|line| format!("  {}\n", escape(&line))));
        }
        text
    }

    fn document(&self) -> impl Serialize {
        let items = self
            .results
            .iter()
            .map(|NodeResult { name, outcome }| NodeLabelChanges {
                metadata: NodeName { name },
                result: outcome.name(),
                changes: outcome
                    .changes()
                    .into_iter()
                    .flatten()
                    .map(|(key, change)| LabelChangeDocument {
                        key,
                        before: change.before.as_deref(),
                        after: change.after.as_deref(),
                    })
                    .collect(),
                reasons: outcome.reasons(),
            });
        Versioned(ChangesDocument {
            items: items.collect(),
        })
    }

    fn names(&self) -> Vec<String> {
        let results = self.results.iter();
        results.map(|result| resource_name(&NODE, &result.name)).collect()
    }
}

/// The value before and after each change, as lines of a diff.
fn diff_lines(changes: &LabelChanges) -> impl Iterator<Item = String> {
    changes.iter().flat_map(|(key, change)| {
        let line =
            |sign, value: &Option<String>| value.as_ref().map(|value| format!("{sign} {key}: {value:?}"));
        line('-', &change.before)
            .into_iter()
            .chain(line('+', &change.after))
    })
}
