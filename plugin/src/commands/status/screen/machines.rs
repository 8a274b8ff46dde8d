//! Prints the table of Machines by failure domain, outdated Machines first. The findings say why Machines are outdated. If the table is
//! too wide, it shows what the names share once, so these names cannot be pasted; `-o wide` shows whole names.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _};
use owo_colors::Style;

use crate::commands::status::screen::{Layout, age, style_of_no, summary::quorum_check_failed};
use crate::terminal::{
    style::{FAINT, GOOD, WARN},
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
    let full = table(observed, inspection, &machines, Affixes::default(), now, layout);
    if full.fits(layout) {
        return full.render(layout);
    }
    let affixes = Affixes::shared(&machines);
    let legend = affixes.legend();
    if legend.is_empty() {
        return full.render(layout);
    }
    let short = table(observed, inspection, &machines, affixes, now, layout);
    let mut text = short.render(layout);
    text.extend(legend.iter().map(|line| layout.styled_lines(line, FAINT)));
    text
}

/// What the names of all Machines begin with, and what the names of their nodes end with. A table that is too wide shows it once.
#[derive(Clone, Copy, Default)]
struct Affixes<'m> {
    machine_prefix: &'m str,
    node_suffix: &'m str,
}

/// Stands for the shared part of a name.
const ELLIPSIS: &str = "…";

impl<'m> Affixes<'m> {
    fn shared(machines: &[&'m Machine]) -> Self {
        let first = machines.first().map_or("", |machine| machine.name());
        let prefixes = first.rmatch_indices('-').map(|(index, _)| &first[..=index]);
        let machine_prefix = prefixes
            .filter(|_| machines.len() > 1)
            .find(|prefix| machines.iter().all(|machine| machine.name().starts_with(prefix)));
        let nodes = machines
            .iter()
            .filter_map(|machine| machine.node().filter(|node| *node != machine.name()));
        let nodes: Vec<&str> = nodes.collect();
        let first = nodes.first().copied().unwrap_or("");
        let mut suffixes = first
            .match_indices('.')
            .filter(|_| nodes.len() > 1)
            .map(|(index, _)| &first[index..]);
        let node_suffix = suffixes.find(|suffix| nodes.iter().all(|node| node.ends_with(suffix)));
        Self {
            machine_prefix: machine_prefix.unwrap_or(""),
            node_suffix: node_suffix.unwrap_or(""),
        }
    }

    fn machine(self, name: &str) -> String {
        match name.strip_prefix(self.machine_prefix) {
            Some(rest) if !self.machine_prefix.is_empty() => format!("{ELLIPSIS}{rest}"),
            _ => name.to_owned(),
        }
    }

    fn node(self, name: &str) -> String {
        match name.strip_suffix(self.node_suffix) {
            Some(rest) if !self.node_suffix.is_empty() => format!("{rest}{ELLIPSIS}"),
            _ => name.to_owned(),
        }
    }

    /// A line for each shared part.
    fn legend(self) -> Vec<String> {
        let parts = [("MACHINE", self.machine_prefix), ("NODE", self.node_suffix)];
        let parts = parts.into_iter().filter(|(_, affix)| !affix.is_empty());
        parts
            .map(|(column, affix)| format!("{ELLIPSIS} in {column} stands for {affix}"))
            .collect()
    }
}

fn table(
    observed: &Snapshot,
    inspection: &Inspection,
    machines: &[&Machine],
    affixes: Affixes<'_>,
    now: Timestamp,
    layout: Layout,
) -> Table {
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
        let node = match machine.node() {
            None => "-".to_owned(),
            Some(node) if node == machine.name() && !layout.is_wide => String::new(),
            Some(node) => affixes.node(node),
        };
        let names = [shown.to_owned(), affixes.machine(machine.name()), node];
        let row = names.map(Cell::from).into_iter();
        table.add_row(row.chain(facts(observed, inspection, machine, now)));
    }
    table
}

/// The cells after the names of the Machine and its node. Without a quorum, a Machine can be ready by conditions that are older than
/// the loss.
fn facts(observed: &Snapshot, inspection: &Inspection, machine: &Machine, now: Timestamp) -> [Cell; 7] {
    let style_of_no = style_of_no(inspection);
    let ready = match machine.deletion_timestamp() {
        Some(since) => Cell::styled(format!("deleting {}", age(Some(since), now)), WARN),
        None if quorum_check_failed(inspection) && machine.ready() == Some(true) => Cell::styled("?", WARN),
        None => yes_or_no(machine.ready(), style_of_no),
    };
    [
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
