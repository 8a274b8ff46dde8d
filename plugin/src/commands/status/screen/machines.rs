//! Prints the table of Machines by failure domain, outdated Machines first. The findings say why Machines are outdated.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _};
use owo_colors::Style;

use crate::commands::status::screen::{Layout, age, style_of_no};
use crate::terminal::{
    style::{GOOD, WARN},
    table::{Cell, Column, Table},
};
use kcp_control_plane::{inspection::Inspection, snapshot::Snapshot};

const COLUMNS: &[Column] = &[
    Column::new("DOMAIN"),
    Column::new("MACHINE"),
    Column::new("NODE"),
    Column::new("VERSION"),
    Column::new("READY"),
    Column::new("UP TO DATE"),
    Column::new("PODS"),
    Column::new("AGE").expendable(1),
    Column::new("PHASE").wide(),
    Column::new("KUBELET").wide(),
];

pub(super) fn machines(
    observed: &Snapshot,
    inspection: &Inspection,
    now: Timestamp,
    layout: Layout,
) -> String {
    let mut machines: Vec<&Machine> = observed.machines.iter().collect();
    if machines.is_empty() {
        return "No Machines.\n".to_owned();
    }
    let is_outdated = |machine: &Machine| inspection.is_up_to_date(machine) == Some(false);
    machines.sort_by_key(|machine| {
        let domain = &machine.spec.failure_domain;
        (
            domain.is_none(),
            domain.clone(),
            !is_outdated(machine),
            machine.name().to_owned(),
        )
    });
    let has_domains = machines
        .iter()
        .any(|machine| machine.spec.failure_domain.is_some());
    let mut table = Table::with_columns(COLUMNS.iter().copied());
    let mut before = None;
    for machine in machines {
        let domain = machine.spec.failure_domain.as_deref();
        let shown = if before == Some(domain) || !has_domains {
            ""
        } else {
            domain.unwrap_or("(none)")
        };
        before = Some(domain);
        table.add_row(row(observed, inspection, machine, shown, now));
    }
    table.render(layout)
}

fn row(
    observed: &Snapshot,
    inspection: &Inspection,
    machine: &Machine,
    domain: &str,
    now: Timestamp,
) -> Vec<Cell> {
    let style_of_no = style_of_no(inspection);
    let ready = match machine.deletion_timestamp() {
        Some(since) => Cell::styled(format!("deleting {}", age(Some(since), now)), WARN),
        None => yes_or_no(machine.ready(), style_of_no),
    };
    vec![
        Cell::from(domain),
        Cell::from(machine.name()),
        Cell::from(machine.node().unwrap_or("-")),
        Cell::from(machine.spec.version.as_deref().unwrap_or("-")),
        ready,
        yes_or_no(inspection.is_up_to_date(machine), WARN),
        pods(observed, machine.node(), style_of_no),
        Cell::from(age(machine.creation_timestamp(), now)),
        Cell::from(machine.status.phase.as_deref().unwrap_or("-")),
        Cell::from(kubelet(observed, machine.node())),
    ]
}

fn yes_or_no(value: Option<bool>, style_of_no: Style) -> Cell {
    match value {
        Some(true) => Cell::styled("yes", GOOD),
        Some(false) => Cell::styled("no", style_of_no),
        None => Cell::from("?"),
    }
}

/// The cell with the number of ready static Pods on a node; empty if the Pods were not read.
fn pods(observed: &Snapshot, node: Option<&str>, style_of_no: Style) -> Cell {
    let pods = observed
        .workload
        .value()
        .and_then(|workload| workload.static_pods.value());
    let (Some(pods), Some(node)) = (pods, node) else {
        return Cell::from("");
    };
    let ready = pods.iter().filter(|pod| pod.node == node && pod.ready).count();
    let external = observed.has_external_etcd();
    let wanted = if external { 3 } else { 4 };
    let style = if ready < wanted { style_of_no } else { Style::new() };
    Cell::styled(format!("{ready}/{wanted}"), style)
}

fn kubelet<'o>(observed: &'o Snapshot, node: Option<&str>) -> &'o str {
    let nodes = observed
        .workload
        .value()
        .and_then(|workload| workload.nodes.value());
    let found = nodes.and_then(|nodes| nodes.iter().find(|other| Some(other.name.as_str()) == node));
    found.map_or("", |node| &node.kubelet_version)
}
