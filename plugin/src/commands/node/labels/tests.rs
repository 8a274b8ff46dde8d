//! The output of `node labels`.

use kcp_control_plane::verbs::node::{
    labelled_node::LabelledNode,
    labels::{LabelChange, LabelChanges},
};
use serde_json::json;

use super::report::{ChangesReport, LabelsReport, NodeResult, Outcome};
use crate::{
    arguments::DryRun,
    output::Report,
    terminal::{plain, table::Layout},
    testing::{assert_every_format, schema},
    verdict::Verdict::{Met, Negative},
};

fn labels() -> LabelsReport {
    let worker = json!({"metadata": {
        "name": "worker-1",
        "labels": {"kubernetes.io/hostname": "worker-1", "rack": "r1", "node-role.kubernetes.io/gateway": ""},
        "annotations": {"cluster.x-k8s.io/machine": "edge-1", "cluster.x-k8s.io/cluster-namespace": "fleet"},
    }});
    let bare = json!({"metadata": {"name": "worker-2"}});
    let nodes = [worker, bare].map(|node| LabelledNode::new(node.to_string()).unwrap());
    LabelsReport { nodes: nodes.into() }
}

fn changes(rows: &[(&str, Option<&str>, Option<&str>)]) -> LabelChanges {
    let rows = rows.iter().map(|(key, before, after)| {
        let change = LabelChange {
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        ((*key).to_owned(), change)
    });
    rows.collect()
}

fn results(outcomes: Vec<Outcome>, dry_run: Option<DryRun>) -> ChangesReport {
    let results = outcomes
        .into_iter()
        .enumerate()
        .map(|(index, outcome)| NodeResult {
            name: format!("worker-{index}"),
            outcome,
        });
    ChangesReport {
        results: results.collect(),
        dry_run,
    }
}

#[test]
fn the_labels_name_their_owners() {
    let report = labels();
    assert_every_format(&report);
    insta::assert_snapshot!(plain(&report.table(Layout::default())));
    let document = serde_json::to_string_pretty(&report.document()).unwrap();
    insta::assert_snapshot!("labels_json", document);
}

#[test]
fn each_outcome_has_its_text_and_exit_code() {
    let changed = || {
        changes(&[
            ("pool", None, Some("batch")),
            ("rack", Some("r1"), Some("r2")),
            ("zone", Some(""), None),
        ])
    };
    let why = || vec!["label zone belongs to somebody".to_owned()];
    for (name, outcomes, dry_run, verdict) in [
        ("none", vec![], None, Negative),
        (
            "changed",
            vec![Outcome::Changed(changed()), Outcome::Unchanged],
            None,
            Met,
        ),
        (
            "dry run",
            vec![Outcome::Changed(changed())],
            Some(DryRun::Server),
            Met,
        ),
        (
            "differs",
            vec![Outcome::Differs(changed()), Outcome::Unchanged],
            None,
            Negative,
        ),
        (
            "refused",
            vec![Outcome::Refused(why()), Outcome::NotWritten],
            None,
            Negative,
        ),
        (
            "rejected",
            vec![Outcome::Rejected(why()), Outcome::Conflict(why())],
            None,
            Negative,
        ),
        (
            "failed",
            vec![Outcome::Failed("cannot patch".to_owned())],
            None,
            Negative,
        ),
    ] {
        let report = results(outcomes, dry_run);
        assert_every_format(&report);
        assert_eq!(report.verdict(), verdict, "{name}");
        insta::assert_snapshot!(name, plain(&report.table(Layout::default())));
    }
    let report = results(vec![Outcome::Changed(changed()), Outcome::Refused(why())], None);
    insta::assert_snapshot!(
        "changes_json",
        serde_json::to_string_pretty(&report.document()).unwrap()
    );
}

#[test]
fn the_schemas_are_checked_in() {
    schema::checked_in::<super::report::LabelsDocument<'_>>("nodelabelslist.json");
    schema::checked_in::<super::report::ChangesDocument<'_>>("nodelabelchangeslist.json");
}
