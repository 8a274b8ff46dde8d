//! Prints the checks of an audit as a table, and what to do about those that do not pass.

use kcp_control_plane::{
    audit::{AuditOutcome, Audited},
    duration::format_duration,
};
use owo_colors::Style;

use crate::{
    commands::audit::AuditReport,
    terminal::{
        escape,
        style::{BAD, GOOD, WARN},
        table::{Cell, Column, Layout, Table},
    },
};

/// The maximum number of lines of evidence that are shown for a check, unless the output is wide.
const MAX_EVIDENCE: usize = 3;

pub(super) fn render(report: &AuditReport, layout: Layout) -> String {
    let mut text = String::new();
    if !layout.no_headers {
        text.push_str(&heading(report));
    }
    let mut table = Table::with_columns([
        Column::new("RESULT"),
        Column::new("CHECK"),
        Column::new("EVIDENCE"),
    ]);
    for check in &report.checks {
        table.add_row(row(check, layout));
    }
    text.push_str(&table.render(layout));
    let remedies: Vec<String> = report
        .checks
        .iter()
        .filter_map(|check| Some(format!("{}: {}", check.id, check.remedy?)))
        .collect();
    if !remedies.is_empty() {
        text.push_str("\nWhat to do:\n");
    }
    layout.append_paragraphs(text, &remedies)
}

fn heading(report: &AuditReport) -> String {
    let cluster = match &report.control_plane {
        Some((namespace, name)) => format!("{namespace}/{name}, at {}", report.server),
        None => report.server.clone(),
    };
    let cluster = cluster.trim_end_matches(", at ").to_owned();
    let all = report.checks.len();
    let counted = match (
        report.count(AuditOutcome::Fail),
        report.count(AuditOutcome::Unknown),
    ) {
        (0, 0) => format!("all {all} checks pass"),
        (failed, 0) => format!("{failed} of {all} checks fail"),
        (0, unknown) => format!("{unknown} of {all} checks unknown"),
        (failed, unknown) => format!("{failed} of {all} checks fail, {unknown} unknown"),
    };
    format!(
        "Cluster:     {}\nAudit:       {counted}\nAssumed off: {} (--power-off)\n\n",
        escape(&cluster),
        format_duration(report.power_off)
    )
}

fn row(check: &Audited, layout: Layout) -> Vec<Cell> {
    let style = match check.outcome {
        AuditOutcome::Pass => GOOD,
        AuditOutcome::Unknown => WARN,
        AuditOutcome::Fail => BAD,
    };
    vec![
        Cell::styled(check.outcome.as_str(), style),
        Cell::styled(check.id, Style::new()),
        Cell::from(evidence(check, layout)).extend_to_line_end(),
    ]
}

fn evidence(check: &Audited, layout: Layout) -> String {
    let shown = if layout.is_wide { usize::MAX } else { MAX_EVIDENCE };
    let lines: Vec<&str> = check.evidence.iter().take(shown).map(String::as_str).collect();
    let text = lines.join("; ");
    match check.evidence.len().saturating_sub(shown) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}
