//! The text of `pool repair`.

use kcp_pool::repair::report::{Count, Found, RepairReport};
use owo_colors::Style;

use crate::terminal::{
    escape,
    style::{BAD, GOOD, WARN},
    table::{Cell, Column, Table},
};

const COLUMNS: &[Column] = &[
    Column::new("NAMESPACE").name(),
    Column::new("OBJECT").name(),
    Column::new("REMEDY"),
    Column::new("RESULT"),
    Column::new("CAUSE"),
];

/// The screen within a number of columns; none for no limit.
pub(crate) fn screen(report: &RepairReport, width: Option<usize>) -> String {
    if report.found.is_empty() && (report.refusal.is_some() || !report.failures.is_empty()) {
        // Stderr says why: that nothing is wrong would not be true.
        return String::new();
    }
    if report.found.is_empty() {
        return format!("nothing to repair in {}\n", place(report));
    }
    let mut table = Table::of(COLUMNS.iter().copied());
    for found in &report.found {
        table.row(row(found, report.namespace.is_none()));
    }
    format!(
        "{}\n{}",
        table.render_within(width, false),
        summary(report.count(), report.is_applied)
    )
}

/// Names, a line each, as kubectl takes them.
pub(crate) fn names(report: &RepairReport) -> String {
    let names = report
        .found
        .iter()
        .map(|found| found.finding.subject.resource_name());
    names.map(|name| name + "\n").collect()
}

fn place(report: &RepairReport) -> String {
    match (&report.namespace, &report.pool) {
        (Some(namespace), Some(pool)) => format!("pool {namespace}/{pool}"),
        (Some(namespace), None) => format!("namespace {}", escape(namespace)),
        (None, _) => "any namespace".to_owned(),
    }
}

fn row(found: &Found, is_of_all: bool) -> Vec<Cell> {
    let finding = &found.finding;
    let result = found.result().unwrap_or_default();
    let style = if found.is_mended() { GOOD } else { BAD };
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
        Cell::from(finding.sentence()).rest(),
    ]
}

/// How many there are of each sort, a line each.
fn summary(count: Count, is_applied: bool) -> String {
    let open = if is_applied {
        "not repaired: the same command tries again"
    } else {
        "to repair with --yes"
    };
    let of_sort = [
        (count.mended, "repaired"),
        (count.open, open),
        (count.blocked, "to make anew once nothing is in the way"),
        (
            count.by_name,
            "to free with --yes --force NAME, if you know that its holder is gone",
        ),
        (count.by_hand, "to settle by hand"),
        (count.kept, "not freed: whoever has it may still use it"),
    ];
    let lines = of_sort.iter().filter(|(number, _)| *number > 0);
    lines.fold(String::new(), |text, (number, what)| {
        text + &number.to_string() + " " + what + "\n"
    })
}

#[cfg(test)]
mod tests {
    use kcp_pool::testing::reports::reports;

    use super::screen;
    use crate::terminal::plain;

    #[test]
    fn screens() {
        for (name, report) in reports() {
            insta::assert_snapshot!(name, plain(&screen(&report, Some(80))));
        }
    }
}
