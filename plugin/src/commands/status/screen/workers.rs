//! Prints the table of the workers of a Cluster with a managed topology: what makes their Machines, and what keeps them at their
//! version.

use owo_colors::Style;

use crate::commands::status::screen::Layout;
use crate::terminal::{
    style::{BAD, WARN},
    table::{Cell, Column, Table},
};
use kcp_control_plane::{
    kubelet_skew::{minors_behind, skew},
    snapshot::{Snapshot, workers::Worker},
    topology::annotation_holding,
};

const COLUMNS: &[Column] = &[
    Column::new("WORKERS"),
    Column::new("VERSION"),
    Column::new("BEHIND"),
    Column::new("READY"),
    Column::new("UP TO DATE").expendable(1),
    Column::new("STATE"),
];

/// The maximum number of rows, unless the output is wide.
const MAX_ROWS: usize = 10;

pub(super) fn workers(observed: &Snapshot, layout: Layout) -> String {
    let Some(workers) = observed.workers.as_deref() else {
        return String::new();
    };
    let shown = if layout.is_wide { usize::MAX } else { MAX_ROWS };
    let mut table = Table::with_columns(COLUMNS.iter().copied());
    for worker in workers.workers.iter().take(shown) {
        table.add_row(row(observed, worker));
    }
    let text = if workers.workers.is_empty() {
        String::new()
    } else {
        table.render(layout)
    };
    let hidden = workers.workers.len().saturating_sub(shown);
    let hidden = (hidden > 0).then(|| format!("and {hidden} more; to see all, use -o wide"));
    let notes: Vec<String> = hidden
        .into_iter()
        .chain(workers.read_failures.iter().cloned())
        .collect();
    layout.append_paragraphs(text, &notes)
}

fn row(observed: &Snapshot, worker: &Worker) -> Vec<Cell> {
    let server = observed.control_plane.spec.version();
    let behind = minors_behind(&worker.version, server).map_or_else(
        || "?".to_owned(),
        |minors| match minors {
            0 => String::new(),
            1 => "1 minor".to_owned(),
            minors => format!("{minors} minors"),
        },
    );
    let style = match skew(&worker.version, server) {
        Some(_) => BAD,
        None => Style::new(),
    };
    let machines = worker.machines.clone().unwrap_or_default();
    let number = |number: Option<i64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let desired = number(machines.desired);
    vec![
        Cell::from(worker.object.as_str()),
        Cell::from(worker.version.as_str()),
        Cell::styled(behind, style),
        Cell::from(format!("{}/{desired}", machines.ready)),
        Cell::from(format!("{}/{desired}", number(machines.up_to_date))),
        Cell::styled(state(observed, worker), WARN).extend_to_line_end(),
    ]
}

/// Why the workers do not have the version of the control plane, or why some of their Machines are outdated. Empty if neither is
/// true.
fn state(observed: &Snapshot, worker: &Worker) -> String {
    let machines = worker.machines.clone().unwrap_or_default();
    let topology = observed.topology();
    let holding = topology.and_then(|topology| annotation_holding(topology, worker));
    let is_outdated = machines
        .up_to_date
        .zip(machines.desired)
        .is_some_and(|(up_to_date, desired)| up_to_date < desired);
    match holding {
        Some((annotation, holder)) if worker.version != observed.control_plane.spec.version() => {
            let name = annotation.rsplit('/').next().unwrap_or_default();
            format!("held by {name} of {holder}")
        }
        _ if is_outdated => "Machines are being replaced".to_owned(),
        _ if worker.version != observed.control_plane.spec.version() => {
            "waits for the topology controller".to_owned()
        }
        _ => String::new(),
    }
}
