//! What a control plane is, and the verdict on it.

use std::fmt::Write as _;

use owo_colors::{OwoColorize as _, Style};

use crate::commands::status::screen::{Layout, absence::absence};
use crate::terminal::style::{BAD, GOOD, HEADING, WARN};
use kcp_control_plane::{
    checks::finding::CheckOutcome,
    control_plane::ControlPlane,
    inspection::{Basis, Health, Inspection},
    quorum::Votes,
    snapshot::{Observed, Reading, Workload, workload::Addon},
};

/// Cells of a label, its colon and the blanks after it.
const LABEL: usize = 15;

pub(super) fn summary(observed: &Observed, inspection: &Inspection, layout: Layout) -> String {
    let control_plane = &observed.management.control_plane.control_plane;
    let plain = Style::new();
    let verdict = verdict(inspection);
    let name = format!("{}/{}", control_plane.namespace, control_plane.name);
    let (votes, votes_style) = etcd(observed, inspection);
    let workload_style = if observed.workload.failure().is_some() {
        WARN
    } else {
        plain
    };
    let lines = [
        ("Control plane", name, HEADING),
        ("Verdict", verdict, health_style(inspection.health)),
        ("Cluster", cluster(observed), plain),
        ("Version", versions(control_plane), plain),
        ("Machines", counts(observed), plain),
        ("Workload", workload(&observed.workload), workload_style),
        ("etcd", votes, votes_style),
    ];
    let mut text = String::new();
    for (label, value, style) in lines {
        let mut label = format!("{label}:");
        for line in layout.lines(&value, LABEL) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{label:<LABEL$}{}", line.style(style));
            label.clear();
        }
    }
    text
}

pub(super) const fn health_style(health: Health) -> Style {
    match health {
        Health::Healthy => GOOD.bold(),
        Health::Degraded | Health::Blocked => BAD.bold(),
        Health::Unknown => WARN.bold(),
    }
}

/// The verdict and what it rests on.
pub(super) fn verdict(inspection: &Inspection) -> String {
    let basis = match inspection.basis {
        Basis::AllSources => "",
        Basis::Conditions => " by conditions",
    };
    let count = |outcome: CheckOutcome| {
        let findings = inspection.checks.iter().flat_map(|checked| &checked.findings);
        findings.filter(|finding| finding.outcome == outcome).count()
    };
    let counts = [
        (count(CheckOutcome::Fail), "wrong"),
        (count(CheckOutcome::Unknown), "not known"),
        (count(CheckOutcome::Warn), "to look at"),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let counts = if counts.is_empty() {
        String::new()
    } else {
        format!(": {}", counts.join(", "))
    };
    format!("{}{basis}{counts}", inspection.health.as_str())
}

fn cluster(observed: &Observed) -> String {
    let management = &observed.management;
    let control_plane = &management.control_plane.control_plane;
    let name = control_plane.cluster.as_deref().unwrap_or("none yet");
    match management.cluster.read().and_then(|link| link.endpoint.as_ref()) {
        Some(endpoint) => format!("{name}, at {endpoint}"),
        None => name.to_owned(),
    }
}

fn versions(control_plane: &ControlPlane) -> String {
    let desired = control_plane.desired_version.as_deref().unwrap_or("none");
    match control_plane.version.as_deref() {
        Some(version) if version != desired => format!("{version}, {desired} desired"),
        Some(version) => version.to_owned(),
        None => format!("{desired} desired"),
    }
}

/// Machines counted by the controller, except those that it does not know to be outdated.
fn counts(observed: &Observed) -> String {
    let control_plane = &observed.management.control_plane.control_plane;
    format!(
        "{} desired, {} there, {} ready, {} up to date",
        control_plane.desired(),
        control_plane.replicas,
        control_plane.ready_replicas,
        control_plane.up_to_date_replicas
    )
}

fn etcd(observed: &Observed, inspection: &Inspection) -> (String, Style) {
    let is_external = observed.management.control_plane.control_plane.external_etcd;
    let failure = observed.etcd.failure();
    let why = match absence(&observed.etcd) {
        // The line above says it.
        Some(_) if failure.is_some() && failure == observed.workload.failure() => {
            Some("could not be read, for the same reason".to_owned())
        }
        why => why,
    };
    let style = if failure.is_some() { WARN } else { Style::new() };
    match (why, inspection.votes) {
        (Some(why), _) if is_external => (format!("external, {why}"), style),
        (Some(why), _) => (why, style),
        (None, Some(votes)) => quorum(votes),
        (None, None) if is_external => ("external".to_owned(), style),
        (None, None) if has_lost_quorum(inspection) => ("no quorum, and no member answers".to_owned(), BAD),
        (None, None) => ("votes are not known: no member answers".to_owned(), WARN),
    }
}

/// By what others know of the members.
fn has_lost_quorum(inspection: &Inspection) -> bool {
    let mut checks = inspection.checks.iter();
    checks.any(|checked| checked.id == "etcd-quorum" && checked.outcome == CheckOutcome::Fail)
}

fn quorum(votes: Votes) -> (String, Style) {
    let Votes {
        voters,
        unhealthy,
        starting,
    } = votes;
    let (quorum, may_fail) = (votes.quorum(), votes.may_fail());
    let starting = if starting > 0 {
        format!(", {starting} yet to vote")
    } else {
        String::new()
    };
    let plural = if voters == 1 { "" } else { "s" };
    if !votes.has_quorum() {
        let healthy = voters.saturating_sub(unhealthy);
        let text =
            format!("no quorum: {healthy} of {voters} voter{plural} healthy, {quorum} needed{starting}");
        return (text, BAD);
    }
    let may_fail = match may_fail {
        0 if unhealthy == 0 => "none may fail".to_owned(),
        0 => "no more may fail".to_owned(),
        1 if unhealthy == 0 => "1 may fail".to_owned(),
        count if unhealthy == 0 => format!("{count} may fail"),
        count => format!("{count} more may fail"),
    };
    let text = format!("{voters} voter{plural}, quorum {quorum}, {may_fail}{starting}");
    (text, if unhealthy > 0 { WARN } else { Style::new() })
}

fn workload(reading: &Reading<Workload>) -> String {
    let workload = match reading {
        Reading::Read(workload) => workload,
        other => return absence(other).unwrap_or_default(),
    };
    let nodes = match &workload.nodes {
        Reading::Read(nodes) => {
            let ready = nodes.iter().filter(|node| node.ready == Some(true)).count();
            format!("{ready} of {} nodes ready", nodes.len())
        }
        other => format!("nodes {}", absence(other).unwrap_or_default()),
    };
    let addons = [
        ("kube-proxy", &workload.kube_proxy),
        ("CoreDNS", &workload.core_dns),
    ];
    let addons = addons.map(|(name, addon)| self::addon(name, addon));
    format!("{nodes}, {}", addons.join(", "))
}

fn addon(name: &str, reading: &Reading<Option<Addon>>) -> String {
    match reading {
        Reading::Read(Some(Addon { desired, ready, .. })) => format!("{name} {ready}/{desired}"),
        Reading::Read(None) => format!("no {name}"),
        other => format!("{name} {}", absence(other).unwrap_or_default()),
    }
}
