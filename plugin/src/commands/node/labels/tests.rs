//! The output of `node labels`.

use kcp_control_plane::verbs::node::labels::{LabelChange, LabelChanges};

use super::report::{ChangesReport, LabelsOutcome, NodeResult};
use crate::{
    arguments::DryRun,
    output::Report,
    terminal::{plain, table::Layout},
    testing::{assert_every_format, schema},
    verdict::Verdict::{Met, Negative},
};

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

fn results(outcomes: Vec<LabelsOutcome>, dry_run: Option<DryRun>) -> ChangesReport {
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
            vec![LabelsOutcome::Changed(changed()), LabelsOutcome::Unchanged],
            None,
            Met,
        ),
        (
            "dry run",
            vec![LabelsOutcome::Changed(changed())],
            Some(DryRun::Server),
            Met,
        ),
        (
            "refused",
            vec![LabelsOutcome::Refused(why()), LabelsOutcome::NotWritten],
            None,
            Negative,
        ),
        (
            "rejected",
            vec![LabelsOutcome::Rejected(why()), LabelsOutcome::Conflict(why())],
            None,
            Negative,
        ),
        (
            "failed",
            vec![LabelsOutcome::Failed("cannot patch".to_owned())],
            None,
            Negative,
        ),
    ] {
        let report = results(outcomes, dry_run);
        assert_every_format(&report);
        assert_eq!(report.verdict(), verdict, "{name}");
        insta::assert_snapshot!(name, plain(&report.table(Layout::default())));
    }
    let report = results(
        vec![LabelsOutcome::Changed(changed()), LabelsOutcome::Refused(why())],
        None,
    );
    insta::assert_snapshot!(
        "changes_json",
        serde_json::to_string_pretty(&report.document()).unwrap()
    );
}

#[test]
fn the_schema_is_checked_in() {
    schema::checked_in::<super::report::ChangesDocument<'_>>("nodelabelchangeslist.json");
}
