//! The text of `status`: a summary, the Machines, and what is wrong, last.

use std::fmt::Write as _;

use jiff::Timestamp;
use owo_colors::{OwoColorize as _, Style};

use crate::status::{
    finding::{Finding, Severity},
    health::{Assessment, Health},
    machine_health::age,
};
use crate::{
    arguments::duration::format_duration,
    control_plane::{ControlPlane, Machine, Snapshot},
    terminal::{
        escape,
        style::{BAD, FAINT, GOOD, HEADING, WARN},
        table::{Cell, Table},
    },
};

/// The screen of one control plane.
pub fn one(
    Snapshot {
        control_plane,
        machines,
    }: &Snapshot,
    assessment: &Assessment,
    now: Timestamp,
) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &dyn std::fmt::Display| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<15}{value}", format!("{label}:"));
    };
    line(
        "Control plane",
        &escape(&format!("{}/{}", control_plane.namespace, control_plane.name)),
    );
    line(
        "Cluster",
        &escape(control_plane.cluster.as_deref().unwrap_or("none yet")),
    );
    line("Version", &escape(&versions(control_plane)));
    line("Machines", &counts(control_plane));
    line(
        "Verdict",
        &assessment.health.as_str().style(health_style(assessment.health)),
    );
    text.push('\n');
    text.push_str(&machine_table(machines, now));
    text.push_str(&findings(
        assessment.findings.iter().map(|finding| (None, finding)),
    ));
    text
}

/// The screen of several control planes. `namespace` is none for all of them.
pub fn list(assessed: &[(Snapshot, Assessment)], namespace: Option<&str>, now: Timestamp) -> String {
    if assessed.is_empty() {
        return match namespace {
            Some(namespace) => format!("No control planes found in {} namespace.\n", escape(namespace)),
            None => "No control planes found.\n".to_owned(),
        };
    }
    let header = [
        "NAME",
        "CLUSTER",
        "VERSION",
        "READY",
        "UP TO DATE",
        "AGE",
        "VERDICT",
    ];
    let mut table = if namespace.is_none() {
        Table::new(&[&["NAMESPACE"], &header[..]].concat())
    } else {
        Table::new(&header)
    };
    for (Snapshot { control_plane, .. }, assessment) in assessed {
        let mut row: Vec<Cell> = Vec::with_capacity(header.len() + 1);
        let desired = control_plane.desired();
        if namespace.is_none() {
            row.push(Cell::from(&control_plane.namespace));
        }
        row.extend([
            Cell::from(&control_plane.name),
            Cell::from(control_plane.cluster.as_deref().unwrap_or("-")),
            Cell::from(control_plane.desired_version.as_deref().unwrap_or("-")),
            Cell::from(format!("{}/{desired}", control_plane.ready_replicas)),
            Cell::from(format!("{}/{desired}", control_plane.up_to_date_replicas)),
            Cell::from(age_of(control_plane.created, now)),
            Cell::styled(assessment.health.as_str(), health_style(assessment.health)),
        ]);
        table.row(row);
    }
    let mut text = table.render();
    let all = assessed.iter().flat_map(|(snapshot, assessment)| {
        let owner = &snapshot.control_plane;
        assessment
            .findings
            .iter()
            .map(move |finding| (Some(owner), finding))
    });
    // Here only what is wrong: what goes on as asked is in the columns, and on the screen of the one control plane.
    text.push_str(&findings(
        all.filter(|(_, finding)| finding.severity < Severity::Info),
    ));
    text
}

fn versions(control_plane: &ControlPlane) -> String {
    let desired = control_plane.desired_version.as_deref().unwrap_or("none");
    match control_plane.version.as_deref() {
        Some(version) if version != desired => format!("{version}, {desired} desired"),
        Some(version) => version.to_owned(),
        None => format!("{desired} desired"),
    }
}

fn counts(control_plane: &ControlPlane) -> String {
    format!(
        "{} desired, {} there, {} ready, {} up to date",
        control_plane.desired(),
        control_plane.replicas,
        control_plane.ready_replicas,
        control_plane.up_to_date_replicas
    )
}

fn machine_table(machines: &[Machine], now: Timestamp) -> String {
    if machines.is_empty() {
        return "No Machines.\n".to_owned();
    }
    // A column that would be blank throughout is left out, for the sake of 80 columns.
    let domains = machines.iter().any(|machine| machine.failure_domain.is_some());
    let mut header = vec!["MACHINE", "NODE", "VERSION", "READY", "UP TO DATE", "AGE"];
    if domains {
        header.push("DOMAIN");
    }
    let mut table = Table::new(&header);
    for machine in machines {
        let ready = if machine.deleting_since.is_some() {
            Cell::styled("Deleting", WARN)
        } else {
            yes_or_no(machine.ready(), BAD)
        };
        table.row([
            Cell::from(&machine.name),
            Cell::from(machine.node.as_deref().unwrap_or("-")),
            Cell::from(machine.version.as_deref().unwrap_or("-")),
            ready,
            yes_or_no(machine.up_to_date(), WARN),
            Cell::from(age_of(machine.created, now)),
            Cell::from(machine.failure_domain.as_deref().unwrap_or_default()),
        ]);
    }
    table.render()
}

fn yes_or_no(value: Option<bool>, style_of_no: Style) -> Cell {
    match value {
        Some(true) => Cell::styled("yes", GOOD),
        Some(false) => Cell::styled("no", style_of_no),
        None => Cell::from("?"),
    }
}

fn age_of(created: Option<Timestamp>, now: Timestamp) -> String {
    created.map_or_else(|| "-".to_owned(), |created| format_duration(age(created, now)))
}

/// What is wrong, a line each, and what to do below it; nothing when nothing is.
fn findings<'f>(findings: impl Iterator<Item = (Option<&'f ControlPlane>, &'f Finding)>) -> String {
    let mut text = String::new();
    for (owner, finding) in findings {
        if text.is_empty() {
            let _ = writeln!(text, "\n{}", "What to know:".style(HEADING));
        }
        let owner = owner.map_or_else(String::new, |owner| {
            format!("{}/{}: ", owner.namespace, owner.name)
        });
        let _ = writeln!(
            text,
            "  {}{} {}{}: {}",
            finding.severity.as_str().style(severity_style(finding.severity)),
            " ".repeat(7_usize.saturating_sub(finding.severity.as_str().len())),
            escape(&owner),
            escape(&finding.object),
            escape(&finding.message),
        );
        if let Some(hint) = &finding.hint {
            let _ = writeln!(text, "          {} {}", "hint:".style(FAINT), escape(hint));
        }
    }
    text
}

const fn health_style(health: Health) -> Style {
    match health {
        Health::Healthy => GOOD,
        Health::Degraded | Health::Blocked => BAD,
        Health::Unknown => WARN,
    }
}

const fn severity_style(severity: Severity) -> Style {
    match severity {
        Severity::Fail => BAD,
        Severity::Unknown | Severity::Warn => WARN,
        Severity::Info => FAINT,
    }
}

#[cfg(test)]
pub(in crate::status) mod tests;
