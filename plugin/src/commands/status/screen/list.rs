//! A list of control planes.

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::commands::status::screen::{
    Layout, Part, Screen, age, findings::outcome_style, summary::health_style,
};
use crate::terminal::{
    escape,
    table::{Cell, Column, Table},
};
use kcp_control_plane::{
    inspection::Inspection,
    snapshot::{Reading, Snapshot},
};

const COLUMNS: &[Column] = &[
    Column::new("NAMESPACE").name(),
    Column::new("NAME").name(),
    Column::new("CLUSTER").name().expendable(3),
    Column::new("VERSION").expendable(0),
    Column::new("THERE").wide(),
    Column::new("READY"),
    Column::new("UP TO DATE").expendable(1),
    Column::new("ETCD"),
    Column::new("AGE").expendable(2),
    Column::new("VERDICT"),
    Column::new("FINDINGS"),
];

/// The screen for several control planes. `namespace` is none for all namespaces.
pub fn list<'i>(
    inspected: impl IntoIterator<Item = (&'i Snapshot, &'i Inspection)>,
    namespace: Option<&str>,
    now: Timestamp,
    layout: Layout,
) -> Screen {
    let mut table = Table::with_columns(COLUMNS.iter().copied());
    let mut is_empty = true;
    for (observed, inspection) in inspected {
        is_empty = false;
        table.row(row(observed, inspection, namespace.is_none(), now));
    }
    let text = match namespace {
        _ if !is_empty => table.render(layout),
        Some(namespace) => format!("No control planes found in {} namespace.\n", escape(namespace)),
        None => "No control planes found.\n".to_owned(),
    };
    Screen {
        parts: vec![(Part::List, text)],
    }
}

fn row(observed: &Snapshot, inspection: &Inspection, is_of_all: bool, now: Timestamp) -> Vec<Cell> {
    let control_plane = &observed.control_plane;
    let desired = control_plane.desired_replicas();
    let namespace = if is_of_all { control_plane.namespace() } else { "" };
    let cluster = control_plane.cluster().unwrap_or("-");
    // Leave the cell empty if the Cluster has the control plane's name, so that the column can be omitted.
    let cluster = if cluster == control_plane.name() {
        ""
    } else {
        cluster
    };
    let etcd = match (&observed.etcd, inspection.votes) {
        (Reading::Read(_), Some(votes)) => {
            format!(
                "{}/{}",
                votes.voters.saturating_sub(votes.unhealthy),
                votes.voters
            )
        }
        _ => String::new(),
    };
    vec![
        Cell::from(namespace),
        Cell::from(&control_plane.name()),
        Cell::from(cluster),
        Cell::from(control_plane.spec.version.as_deref().unwrap_or("-")),
        Cell::from(control_plane.status.replicas.to_string()),
        Cell::from(format!("{}/{desired}", control_plane.status.ready_replicas)),
        Cell::from(format!("{}/{desired}", control_plane.status.up_to_date_replicas)),
        Cell::from(etcd),
        Cell::from(age(control_plane.creation_timestamp(), now)),
        Cell::styled(verdict(observed, inspection), health_style(inspection.health)),
        findings(inspection),
    ]
}

fn verdict(observed: &Snapshot, inspection: &Inspection) -> String {
    let health = inspection.health.as_str();
    match observed.etcd {
        Reading::Excluded { .. } => format!("{health} (by conditions)"),
        Reading::Read(_) | Reading::NotYet | Reading::OutOfReach(_) | Reading::Failed(_) => health.to_owned(),
    }
}

/// The checks that have findings, most severe first.
fn findings(inspection: &Inspection) -> Cell {
    let all = inspection.findings();
    let Some((_, heaviest)) = all.first() else {
        return Cell::from("");
    };
    let mut ids: Vec<&str> = Vec::new();
    for (checked, _) in &all {
        if !ids.contains(&checked.id) {
            ids.push(checked.id);
        }
    }
    Cell::styled(ids.join(", "), outcome_style(heaviest.outcome)).rest_of_line()
}
