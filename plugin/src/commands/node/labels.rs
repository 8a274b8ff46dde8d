//! `kubectl kcp node labels set`: replaces the labels of Nodes.
//!
//! - [`arguments`]: Nodes and labels on one command line, as in `kubectl label`
//! - [`report`]: how the labels change, as text and JSON

mod arguments;
mod report;

use std::collections::{BTreeMap, BTreeSet};

pub use arguments::LabelsCommand;
use arguments::{Selection, SetArguments};
use kcp_api::kind::NODE;
use kcp_client::{
    Connection, Error,
    reads::node::{list_nodes, read_node},
    update::{Change, UpdateTarget, Updated, WriteResult, update},
};
use kcp_control_plane::{
    change::decision::ObjectWrite,
    verbs::node::{
        labelled_node::LabelledNode,
        labels::{LabelDecision, LabelEdit, decide, label_patch, refuse_unconfirmed, removals},
    },
};
use report::{ChangesReport, LabelsOutcome, NodeResult};

use crate::{
    change::arguments::WriteArguments,
    output::{Report, print},
    session::Session,
    terminal::{Terminal, table::Layout},
    verdict::Verdict,
};

async fn read(connection: &Connection, selection: &Selection) -> Result<Vec<LabelledNode>, Error> {
    match selection {
        Selection::Matching(selector) => list_nodes(connection, Some(selector)).await,
        Selection::Named(names) => {
            let mut nodes = Vec::new();
            for name in names {
                nodes.push(read_node(connection, name, LabelledNode::new).await?);
            }
            Ok(nodes)
        }
    }
}

/// Runs `node labels set`. Writes nothing if the change is refused for any of the Nodes.
pub(super) async fn run(arguments: &SetArguments, session: &Session) -> anyhow::Result<Verdict> {
    let (selection, edit) = arguments.request.parse()?;
    let confirm = arguments.confirm;
    let connection = session.connect().await?;
    let nodes = read(&connection, &selection).await?;
    let decisions: Vec<(&LabelledNode, LabelDecision)> =
        nodes.iter().map(|node| (node, decide(node, &edit))).collect();
    let write = &arguments.write;
    if decisions
        .iter()
        .any(|(_, decision)| matches!(decision, LabelDecision::Refused(_)))
    {
        let results = decisions.into_iter().map(|(node, decision)| NodeResult {
            name: node.name.clone(),
            outcome: match decision {
                LabelDecision::Unchanged => LabelsOutcome::Unchanged,
                LabelDecision::Refused(refusal) => LabelsOutcome::Refused(refusal.why),
                LabelDecision::Change(_) => LabelsOutcome::NotWritten,
            },
        });
        return finish(results.collect(), write, session);
    }
    let confirmed = removed_keys(&decisions);
    if !confirm.yes && write.dry_run.is_none() && !confirmed.is_empty() {
        show(&confirmed, &session.terminal);
        let place = format!("in cluster {}", connection.server);
        let answer = confirm.confirm("remove these labels", &place, false, &session.terminal);
        if !answer.await? {
            let results = nodes.iter().map(|node| NodeResult {
                name: node.name.clone(),
                outcome: LabelsOutcome::Refused(vec!["you did not confirm the change".to_owned()]),
            });
            return finish(results.collect(), write, session);
        }
    }
    let confirmed = (!confirm.yes).then_some(&confirmed);
    let mut results = Vec::new();
    let mut nodes = nodes.into_iter();
    let mut failure = None;
    for node in nodes.by_ref() {
        let name = node.name.clone();
        match write_labels(&connection, write, node, &edit, confirmed).await {
            Ok(outcome) => results.push(NodeResult { name, outcome }),
            Err(error) => {
                results.push(NodeResult {
                    name,
                    outcome: LabelsOutcome::Failed(error.to_string()),
                });
                failure = Some(error);
                break;
            }
        }
    }
    results.extend(nodes.map(|node| NodeResult {
        name: node.name,
        outcome: LabelsOutcome::NotWritten,
    }));
    let verdict = finish(results, write, session)?;
    failure.map_or(Ok(verdict), |error| Err(error.into()))
}

type Confirmed = BTreeMap<String, BTreeSet<String>>;

/// The labels that the changes remove, by Node.
fn removed_keys(decisions: &[(&LabelledNode, LabelDecision)]) -> Confirmed {
    let of_node = decisions.iter().filter_map(|(node, decision)| {
        let LabelDecision::Change(changes) = decision else {
            return None;
        };
        let removed: BTreeSet<_> = removals(changes).map(str::to_owned).collect();
        (!removed.is_empty()).then(|| (node.name.clone(), removed))
    });
    of_node.collect()
}

/// Shows the labels that would be removed.
fn show(removed: &Confirmed, terminal: &Terminal) {
    for (node, keys) in removed {
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        terminal.note(&format!("this removes from node/{node}: {}", keys.join(", ")));
    }
}

/// Writes the labels of one Node, unless the command now refuses the change.
async fn write_labels(
    connection: &Connection,
    arguments: &WriteArguments,
    node: LabelledNode,
    edit: &LabelEdit,
    confirmed: Option<&Confirmed>,
) -> Result<LabelsOutcome, Error> {
    let name = node.name.clone();
    let unconfirmed = BTreeSet::new();
    let target = UpdateTarget {
        connection,
        resource: &NODE.api_resource("v1"),
        namespace: None,
        name: &name,
        field_manager: &arguments.field_manager,
        verb: "label",
        mode: arguments.mode(),
    };
    let mut first = Some(node);
    let read = async || match first.take() {
        Some(node) => Ok(node),
        None => read_node(connection, &name, LabelledNode::new).await,
    };
    let decide = |node: &LabelledNode| -> Result<Change<LabelDecision>, Error> {
        let decision = decide(node, edit);
        let decision = match confirmed {
            Some(confirmed) => refuse_unconfirmed(decision, confirmed.get(&name).unwrap_or(&unconfirmed)),
            None => decision,
        };
        let write = match &decision {
            LabelDecision::Change(changes) => Some(ObjectWrite::patch(label_patch(changes))),
            LabelDecision::Unchanged | LabelDecision::Refused(_) => None,
        };
        Ok(Change { write, decision })
    };
    let Updated { decision, result, .. } = update(&target, read, decide).await?;
    Ok(match (result, decision) {
        (WriteResult::Rejected(why), _) => LabelsOutcome::Rejected(why),
        (WriteResult::Conflict(fields), _) => LabelsOutcome::Conflict(fields),
        (_, LabelDecision::Refused(refusal)) => LabelsOutcome::Refused(refusal.why),
        (_, LabelDecision::Unchanged) => LabelsOutcome::Unchanged,
        (_, LabelDecision::Change(changes)) => LabelsOutcome::Changed(changes),
    })
}

/// Prints the results.
fn finish(results: Vec<NodeResult>, write: &WriteArguments, session: &Session) -> anyhow::Result<Verdict> {
    let report = ChangesReport {
        results,
        dry_run: write.dry_run,
    };
    if report.results.is_empty() {
        session.terminal.note("no Node matches the selector");
    }
    if !write.output.is_text() {
        let text = anstream::adapter::strip_str(&report.table(Layout::default())).to_string();
        text.lines().for_each(|line| session.terminal.note(line));
    }
    print(&report, &write.output, &session.terminal)?;
    Ok(report.verdict())
}

#[cfg(test)]
mod tests;
