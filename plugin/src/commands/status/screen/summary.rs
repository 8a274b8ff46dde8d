//! Prints the summary of a control plane, with the verdict of its checks.

use std::{fmt::Write as _, iter};

use jiff::Timestamp;
use kcp_api::{KubeadmControlPlane, Object as _, snapshot_record::SnapshotRecord};
use owo_colors::{OwoColorize as _, Style};

use crate::commands::status::screen::{Layout, age, findings::count_entries, subject::subjects};
use crate::terminal::style::{BAD, GOOD, HEADING, WARN};
use kcp_control_plane::{
    checks::{finding::CheckOutcome, machine_grace::are_machines_read},
    duration::format_duration,
    inspection::{Basis, Health, Inspection},
    quorum::Votes,
    snapshot::{Reading, Snapshot, Workload, etcd::NOSPACE, workload::Addon},
    staleness::format_age,
    topology::unfinished_hooks,
    why::{Explanation, WhyState, explain},
};

/// The width of a label in the summary, with its colon and spaces, in terminal cells.
const LABEL_WIDTH: usize = 15;

pub(super) fn summary(
    observed: &Snapshot,
    inspection: &Inspection,
    now: Timestamp,
    layout: Layout,
) -> String {
    let control_plane = &observed.control_plane;
    let plain = Style::new();
    let verdict = verdict(observed, inspection);
    let name = format!("{}/{}", control_plane.namespace(), control_plane.name());
    let (votes, votes_style) = etcd(observed, inspection);
    let workload_style = if observed.workload.failure().is_some() {
        WARN
    } else {
        plain
    };
    let mut lines = vec![
        ("Control plane", name, HEADING),
        (
            "Verdict",
            verdict,
            health_word(inspection.health, is_by_conditions(observed)).1,
        ),
    ];
    let explanation = explain(observed, inspection, now);
    let next = next(observed, &explanation, now);
    lines.extend(next.map(|text| ("Next", text, state_style(explanation.state))));
    lines.extend([
        ("Cluster", cluster(observed), plain),
        ("Version", versions(control_plane), plain),
    ]);
    lines.extend(
        topology(observed, now)
            .into_iter()
            .map(|(label, text)| (label, text, plain)),
    );
    lines.extend([
        ("Machines", counts(observed, inspection), plain),
        ("Workload", workload(&observed.workload), workload_style),
        ("etcd", votes, votes_style),
    ]);
    if let Some(record) = SnapshotRecord::from_control_plane(control_plane, now) {
        let age = age(Some(record.completed), now);
        let place = record.place.map(|place| format!(", in {place}"));
        let place = place.unwrap_or_default();
        let text = format!("{age} ago, from etcd member {}{place}", record.member);
        lines.push(("Snapshot", text, plain));
    }
    let mut text = String::new();
    for (label, value, style) in lines {
        let mut label = format!("{label}:");
        for line in layout.wrap_lines(&value, LABEL_WIDTH) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{label:<LABEL_WIDTH$}{}", line.style(style));
            label.clear();
        }
    }
    text
}

pub(in crate::commands) fn state_style(state: WhyState) -> Style {
    match state {
        WhyState::NothingToDo => GOOD,
        WhyState::Working => Style::new(),
        WhyState::PersonNeeded => BAD,
        WhyState::Unknown => WARN,
    }
}

/// Who acts next, because of which finding, and since when. The list of findings has its message and the commands. `None` if no
/// action is needed.
fn next(observed: &Snapshot, explanation: &Explanation, now: Timestamp) -> Option<String> {
    let who = match explanation.state {
        WhyState::NothingToDo => return None,
        WhyState::Unknown => "unknown".to_owned(),
        WhyState::Working | WhyState::PersonNeeded => explanation.who_acts(),
    };
    let Some(cause) = &explanation.cause else {
        return Some(who);
    };
    let control_plane = observed.object_name();
    let others: Vec<&str> = subjects(&cause.objects)
        .into_iter()
        .filter(|object| *object != control_plane)
        .collect();
    let mut text = match others.join(", ") {
        objects if objects.is_empty() => format!("{who} ({})", cause.check),
        objects => format!("{who}: {objects} ({})", cause.check),
    };
    if let Some(since) = cause.since {
        text = format!("{text}, for {}", format_age(since, now));
    }
    if let Some(usual) = cause.usual_time {
        text = format!("{text}; the usual maximum is {}", format_duration(usual));
    }
    let is_about_machine = others.iter().any(|object| object.starts_with("Machine/"));
    let is_person_needed = explanation.state == WhyState::PersonNeeded;
    if is_person_needed && is_about_machine && observed.is_without_health_check() {
        text.push_str("; no MachineHealthCheck, so nothing repairs this automatically");
    }
    Some(text)
}

/// The word for a verdict, and its style. Conditions can stay True for minutes after etcd has lost its quorum. So if only
/// conditions say that the control plane is healthy, it is called unverified.
pub(super) const fn health_word(health: Health, is_by_conditions: bool) -> (&'static str, Style) {
    match health {
        Health::Healthy if is_by_conditions => ("Unverified", WARN.bold()),
        Health::Healthy => (health.as_str(), GOOD.bold()),
        Health::Degraded | Health::Blocked => (health.as_str(), BAD.bold()),
        Health::Unknown => (health.as_str(), WARN.bold()),
    }
}

/// Whether the workload cluster or etcd was left out on purpose.
pub(in crate::commands) const fn is_by_conditions(observed: &Snapshot) -> bool {
    matches!(observed.workload, Reading::Excluded { .. }) || matches!(observed.etcd, Reading::Excluded { .. })
}

/// The verdict, such as `Blocked: 3 problems (etcd unreachable; based on conditions)`. It counts the entries that the list
/// of findings shows.
pub(super) fn verdict(observed: &Snapshot, inspection: &Inspection) -> String {
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let counts = [
        (CheckOutcome::Fail, "problem"),
        (CheckOutcome::Unknown, "unknown"),
        (CheckOutcome::Warn, "warning"),
    ]
    .map(|(outcome, what)| (count_entries(inspection, outcome), what));
    let counts: Vec<String> = counts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| match what {
            "unknown" => format!("{count} unknown"),
            _ => plural(count, what),
        })
        .collect();
    let (word, _) = health_word(inspection.health, is_by_conditions(observed));
    let mut text = word.to_owned();
    if !counts.is_empty() {
        text = format!("{text}: {}", counts.join(", "));
    }
    if inspection.basis == Basis::Conditions {
        let what = unread_source(observed);
        text = format!("{text} ({what}; based on conditions)");
    }
    text
}

/// A remark for the verdict that names the source that was not read, because the verdict is then based on conditions.
fn unread_source(observed: &Snapshot) -> &'static str {
    fn state<T>(
        reading: &Reading<T>,
        unreachable: &'static str,
        excluded: &'static str,
    ) -> Option<&'static str> {
        match reading {
            Reading::Read(_) => None,
            Reading::Failed(_) | Reading::OutOfReach(_) => Some(unreachable),
            Reading::Excluded { .. } | Reading::NotYet => Some(excluded),
        }
    }
    let workload = state(
        &observed.workload,
        "workload cluster unreachable",
        "workload cluster not read",
    );
    workload
        .or_else(|| state(&observed.etcd, "etcd unreachable", "etcd not read"))
        .unwrap_or("etcd unreachable")
}

/// Why a source was not read; `None` if it was read.
pub(super) fn unread_reason<T>(reading: &Reading<T>) -> Option<String> {
    match reading {
        Reading::Read(_) => None,
        Reading::Excluded { flag } => Some(format!("not read ({flag})")),
        Reading::NotYet => Some("the control plane is not initialized yet".to_owned()),
        Reading::OutOfReach(failure) => Some(format!("unreachable from this machine: {}", failure.text())),
        Reading::Failed(failure) => Some(format!("could not be read: {}", failure.text())),
    }
}

fn cluster(observed: &Snapshot) -> String {
    let control_plane = &observed.control_plane;
    let name = control_plane.cluster().unwrap_or("none yet");
    let cluster = observed.cluster.value();
    let endpoint = cluster.and_then(|cluster| cluster.spec.control_plane_endpoint.as_ref());
    match endpoint.filter(|endpoint| !endpoint.host.is_empty()) {
        Some(endpoint) => format!("{name}, at {endpoint}"),
        None => name.to_owned(),
    }
}

fn versions(control_plane: &KubeadmControlPlane) -> String {
    let desired = control_plane.spec.version.as_deref().unwrap_or("none");
    match control_plane.status.version.as_deref() {
        Some(version) if version != desired => format!("{version}, {desired} desired"),
        Some(version) => version.to_owned(),
        None => format!("{desired} desired"),
    }
}

/// The lines about the managed topology of the Cluster, and the upgrade that its controller makes. Empty without a topology.
fn topology(observed: &Snapshot, now: Timestamp) -> Vec<(&'static str, String)> {
    let Some((cluster, topology)) = observed.cluster.value().zip(observed.topology()) else {
        return Vec::new();
    };
    let mut text = topology.version.clone().unwrap_or_default();
    if let Some(class) = topology.class() {
        text = format!("{text} of class {}", class.name);
    }
    match &cluster.status.topology_reconciled {
        _ if !cluster.is_topology_seen() => text.push_str(", not seen by its controller yet"),
        Some(condition) if condition.is_true() => text.push_str(", reconciled"),
        Some(condition) => {
            let age = age(condition.last_transition_time, now);
            text = format!("{text}, not reconciled for {age}: {}", condition.reason);
        }
        None => {}
    }
    let versions = |what: &str, versions: &[String]| {
        (!versions.is_empty()).then(|| format!("{what} over {}", versions.join(", ")))
    };
    let status = &cluster.status;
    let step = cluster.topology_upgrade_step().filter(|step| !step.is_empty());
    let upgrade: Vec<String> = step
        .map(|step| format!("at step {step}"))
        .into_iter()
        .chain(versions("control plane", &status.control_plane_upgrades))
        .chain(versions("workers", &status.worker_upgrades))
        .collect();
    [
        ("Topology", text),
        ("Upgrade", upgrade.join("; ")),
        ("Hooks", unfinished_hooks(cluster).join(", ")),
    ]
    .into_iter()
    .filter(|(_, text)| !text.is_empty())
    .collect()
}

/// The counts that the controller reports, such as `4 of 3 desired (surge 1), 4 ready, 1 up to date`. Says if the controller
/// has not yet compared the Machines with the latest change.
fn counts(observed: &Snapshot, inspection: &Inspection) -> String {
    let control_plane = &observed.control_plane;
    let (replicas, desired) = (control_plane.status.replicas, control_plane.desired_replicas());
    let surge = if replicas > desired && control_plane.is_rolling_out() {
        format!(" (surge {})", replicas - desired)
    } else {
        String::new()
    };
    let before = if control_plane.has_compared_machines() {
        ""
    } else {
        " before the latest change"
    };
    let counted = control_plane.status.up_to_date_replicas;
    let found = found_up_to_date(observed, inspection).filter(|found| *found != counted);
    let up_to_date = match found {
        Some(found) if before.is_empty() => format!("{found} up to date (the controller counts {counted})"),
        _ => format!("{counted} up to date{before}"),
    };
    let ready = control_plane.status.ready_replicas;
    let ready = if quorum_check_failed(inspection) {
        format!("{ready} ready by their last conditions")
    } else {
        format!("{ready} ready")
    };
    format!("{replicas} of {desired} desired{surge}, {ready}, {up_to_date}")
}

/// How many Machines the table of Machines shows as up to date. `None` if that is unknown for one of them.
fn found_up_to_date(observed: &Snapshot, inspection: &Inspection) -> Option<i64> {
    if !are_machines_read(observed) {
        return None;
    }
    let verdicts = observed
        .machines
        .iter()
        .map(|machine| inspection.is_up_to_date(machine));
    let verdicts: Vec<bool> = verdicts.collect::<Option<_>>()?;
    verdicts
        .into_iter()
        .filter(|is_up_to_date| *is_up_to_date)
        .count()
        .try_into()
        .ok()
}

fn etcd(observed: &Snapshot, inspection: &Inspection) -> (String, Style) {
    let is_external = observed.has_external_etcd();
    let failure = observed.etcd.failure();
    let why = match unread_reason(&observed.etcd) {
        // The line about the workload cluster already shows the reason.
        Some(_) if failure.is_some() && failure == observed.workload.failure() => {
            Some("could not be read for the same reason".to_owned())
        }
        why => why,
    };
    let style = if failure.is_some() { WARN } else { Style::new() };
    match (why, inspection.votes) {
        (Some(why), _) if is_external => (format!("external, {why}"), style),
        (Some(why), _) => (why, style),
        (None, Some(votes)) if votes.has_quorum() && is_read_only(observed) => {
            let (votes, _) = quorum(votes, quorum_check_failed(inspection));
            (format!("{votes}; read-only, because of the alarm {NOSPACE}"), BAD)
        }
        (None, Some(votes)) => quorum(votes, quorum_check_failed(inspection)),
        (None, None) if is_external => ("external".to_owned(), style),
        (None, None) if quorum_check_failed(inspection) => {
            ("no quorum, and no member responds".to_owned(), BAD)
        }
        (None, None) => ("votes are unknown: no member responds".to_owned(), WARN),
    }
}

fn is_read_only(observed: &Snapshot) -> bool {
    let survey = observed.etcd.value();
    survey.is_some_and(|survey| {
        survey
            .alarms_by_member()
            .iter()
            .any(|(_, alarm)| alarm == NOSPACE)
    })
}

/// Whether the check of etcd's quorum has failed.
pub(super) fn quorum_check_failed(inspection: &Inspection) -> bool {
    let mut checks = inspection.checks.iter();
    checks.any(|checked| checked.id == "etcd-no-quorum" && checked.outcome == CheckOutcome::Fail)
}

fn quorum(votes: Votes, is_lost: bool) -> (String, Style) {
    let Votes {
        voters,
        unhealthy,
        starting,
    } = votes;
    let (quorum, may_fail) = (votes.quorum(), votes.failure_tolerance());
    let starting = if starting > 0 {
        format!(", {starting} not voting yet")
    } else {
        String::new()
    };
    let plural = if voters == 1 { "" } else { "s" };
    let healthy = voters.saturating_sub(unhealthy);
    let dots = "●".repeat(healthy) + &"○".repeat(voters - healthy);
    if !votes.has_quorum() {
        let counted =
            format!("{dots} {healthy} of {voters} voter{plural} healthy, {quorum} needed{starting}");
        return if is_lost {
            (format!("no quorum: {counted}"), BAD)
        } else {
            (format!("{counted}, a member is joining"), WARN)
        };
    }
    let may_fail = match may_fail {
        0 if unhealthy == 0 => "cannot lose a member".to_owned(),
        0 => "cannot lose another member".to_owned(),
        1 => "can lose 1 member".to_owned(),
        count => format!("can lose {count} members"),
    };
    let text = format!("{dots} {voters} voter{plural}, quorum {quorum}, {may_fail}{starting}");
    (text, if unhealthy > 0 { WARN } else { Style::new() })
}

fn workload(reading: &Reading<Workload>) -> String {
    let workload = match reading {
        Reading::Read(workload) => workload,
        other => return unread_reason(other).unwrap_or_default(),
    };
    let nodes = match &workload.nodes {
        Reading::Read(nodes) => {
            let ready = nodes.iter().filter(|node| node.ready == Some(true)).count();
            format!("{ready} of {} nodes ready", nodes.len())
        }
        other => format!("nodes {}", unread_reason(other).unwrap_or_default()),
    };
    let addons = [
        ("kube-proxy", &workload.kube_proxy),
        ("CoreDNS", &workload.core_dns),
    ];
    let addons = addons
        .into_iter()
        .filter_map(|(name, reading)| addon(name, reading));
    let parts: Vec<String> = iter::once(nodes).chain(addons).collect();
    parts.join(", ")
}

/// `None` if the cluster does without the addon.
fn addon(name: &str, reading: &Reading<Option<Addon>>) -> Option<String> {
    Some(match reading {
        Reading::Read(Some(Addon {
            desired_pods: desired,
            ready_pods: ready,
            ..
        })) => format!("{name} {ready}/{desired}"),
        Reading::Read(None) => return None,
        other => format!("{name} {}", unread_reason(other).unwrap_or_default()),
    })
}
