//! Prints the result of `etcd check` as a table of the members, and what is wrong with them.

use std::fmt::Write as _;

use kcp_control_plane::{
    snapshot::etcd::metrics::EtcdMetrics,
    verbs::etcd::check::{Agreement, CheckedMember, EtcdCheck},
};

use crate::terminal::{
    style::{BAD, GOOD, WARN},
    table::{Cell, Column, Layout, Table, format_size},
};

/// The text of a cell whose value is unknown.
const UNKNOWN: &str = "-";

/// `is_sample` says that the counts are those between two readings.
pub(super) fn render(found: &EtcdCheck, is_sample: bool, layout: Layout) -> String {
    let mut table = Table::with_columns([
        Column::new("MEMBER"),
        Column::new("ROLE"),
        Column::new("DATA"),
        Column::new("VERSION").expendable(2),
        Column::new("SIZE"),
        Column::new("IN USE").expendable(1),
        Column::new("QUOTA"),
        Column::new("FSYNC P50/P99"),
        Column::new("COMMIT P50/P99"),
        Column::new("LEADER CHANGES").expendable(3),
        Column::new("SLOW APPLIES").expendable(4),
        Column::new("SINCE").expendable(5),
        Column::new("HASH").wide(),
    ]);
    for member in &found.members {
        table.add_row(row(member));
    }
    let mut text = table.render(layout);
    if !layout.no_headers {
        let compared = found.revision.map_or_else(String::new, |revision| {
            format!("DATA compares all keys and values up to revision {revision}. ")
        });
        let _ = writeln!(
            text,
            "\n{compared}FSYNC, COMMIT, LEADER CHANGES and SLOW APPLIES count since {}.",
            if is_sample {
                "the first of two readings"
            } else {
                "the member started"
            }
        );
    }
    for (title, lines) in [
        ("Failures", &found.failures),
        ("Warnings", &found.warnings),
        ("Hints", &found.hints),
    ] {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{title}:");
        }
        text = layout.append_paragraphs(text, lines);
    }
    text
}

fn row(member: &CheckedMember) -> [Cell; 13] {
    let (data, style) = match member.key_space {
        Agreement::Equal => ("equal", GOOD),
        Agreement::Differs => ("differs", BAD),
        Agreement::Unknown => ("unknown", WARN),
    };
    let EtcdMetrics {
        since,
        wal_fsync,
        backend_commit,
        leader_changes,
        slow_applies,
        ..
    } = member.metrics.unwrap_or_default();
    let size = |bytes: Option<u64>| shown(bytes.map(format_size));
    [
        Cell::from(member.name.clone()),
        Cell::from(member.role.as_str()),
        Cell::styled(data, style),
        shown(member.version.clone()),
        size(member.db_size),
        size(member.db_size_in_use),
        size(member.db_size_quota),
        shown(wal_fsync.map(|latency| latency.to_string())),
        shown(backend_commit.map(|latency| latency.to_string())),
        shown(leader_changes.map(|count| count.to_string())),
        shown(slow_applies.map(|count| count.to_string())),
        shown(since.map(|since| since.to_string())),
        shown(member.hash.map(|hash| format!("{hash:08x}"))),
    ]
}

fn shown(text: Option<String>) -> Cell {
    Cell::from(text.unwrap_or_else(|| UNKNOWN.to_owned()))
}
