//! Prints a diagnosis: first who acts and where to look next, then the facts.

use jiff::Timestamp;
use kcp_api::Condition;
use kcp_control_plane::{
    diagnosis::{
        Diagnosis, MemberReport, NodeReport, ObjectReport, PodReport,
        command::NextCommand,
        steps::{Step, StepState},
    },
    inspection::Basis,
    staleness::format_age,
    why::WhyState,
};
use owo_colors::Style;

use super::DiagnosisReport;
use crate::{
    commands::{
        status::screen::state_style,
        timeline::{entries_table, second},
        why::{WhyReport, screen::render as render_explanation},
    },
    terminal::{
        escape,
        style::{BAD, WARN},
        table::{Cell, Column, Layout, Table},
        width::width,
    },
};

/// The maximum number of Events that are shown, unless the output is wide.
const MAX_EVENTS: usize = 20;

pub(super) fn render(report: &DiagnosisReport<'_>, layout: Layout) -> String {
    let diagnosis = report.diagnosis;
    let mut text = layout.styled_lines(&heading(report), Style::new());
    text += &answer(report, layout);
    if let Some(next) = &diagnosis.next_command {
        text += &next_text(next, layout);
    }
    let facts = [
        diagnosis.node.as_ref().map(|node| node_text(node, report.now)),
        diagnosis.member.as_ref().map(member_text),
        diagnosis
            .certificates_expire
            .map(|expires| format!("certificates: the first expires on {}", second(expires))),
    ];
    let facts = facts.into_iter().flatten();
    let facts: String = facts
        .map(|fact| layout.styled_lines(&fact, Style::new()))
        .collect();
    let pods = if diagnosis.static_pods.is_empty() {
        String::new()
    } else {
        static_pods(&diagnosis.static_pods, report.now).render(layout)
    };
    let parts = [
        text,
        steps(diagnosis, report.now).render(layout),
        objects(diagnosis, report.now, layout).render(layout),
        facts,
        pods,
        events(diagnosis, layout),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let text = parts.join("\n");
    if diagnosis.unread.is_empty() {
        return text;
    }
    layout.append_paragraphs(text + "\nWhat could not be read:\n", &diagnosis.unread)
}

/// The Machine, its owner, and what identifies its host.
fn heading(report: &DiagnosisReport<'_>) -> String {
    let diagnosis = report.diagnosis;
    let owner = match (&diagnosis.control_plane, diagnosis.of_control_plane) {
        (Some(name), true) => format!(" of KubeadmControlPlane/{name}"),
        (Some(name), false) => format!(", a worker of the Cluster of KubeadmControlPlane/{name}"),
        (None, true) => String::new(),
        (None, false) => ", a worker".to_owned(),
    };
    let host = diagnosis
        .host_address
        .as_ref()
        .map(|address| format!("host {address}"));
    let created = diagnosis.creation_timestamp;
    let created = created.map(|created| format!("created {} ago", format_age(created, report.now)));
    let facts = [diagnosis.version.clone(), diagnosis.phase.clone(), host, created];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    format!("Machine/{}{owner}: {}", report.machine.name, facts.join(", "))
}

/// Who acts next, and because of what: the words of `why` if a check has found something.
fn answer(report: &DiagnosisReport<'_>, layout: Layout) -> String {
    let Diagnosis {
        state, explanation, ..
    } = report.diagnosis;
    let mut text = match report.observed.filter(|_| explanation.cause.is_some()) {
        Some(observed) => {
            let why = WhyReport {
                observed,
                basis: Basis::AllSources,
                explanation,
                webhook_off: None,
                now: report.now,
            };
            render_explanation(&why, layout)
        }
        None => String::new(),
    };
    if text.is_empty() || (*state == WhyState::Unknown && explanation.state != WhyState::Unknown) {
        text += &layout.styled_lines(&sentence(report.diagnosis), state_style(*state));
    }
    text
}

fn sentence(diagnosis: &Diagnosis) -> String {
    let mut steps = diagnosis.steps.iter();
    let what = match &diagnosis.deletion_timestamp {
        Some(_) => format!(
            "the deletion waits for: {}",
            diagnosis.deletion_waits_for.join("; ")
        ),
        None => steps
            .find(|step| step.state == StepState::Missing)
            .map_or_else(String::new, step_text),
    };
    match (diagnosis.state, diagnosis.actor) {
        (WhyState::NothingToDo, _) => "The Machine has joined, and has no known problems".to_owned(),
        (WhyState::Working, Some(actor)) => format!("{} acts next: {what}", actor.name()),
        (WhyState::PersonNeeded, Some(actor)) => {
            format!("{} makes no progress, so a person must act: {what}", actor.name())
        }
        _ => "It is unknown whether the Machine is healthy: the last lines say what could not be read"
            .to_owned(),
    }
}

fn step_text(step: &Step) -> String {
    let detail = step
        .detail
        .as_ref()
        .map_or_else(String::new, |detail| format!(": {detail}"));
    format!("the step \"{}\" is missing{detail}", step.step.as_str())
}

/// The command is never broken, so that users can paste it.
fn next_text(next: &NextCommand, layout: Layout) -> String {
    let command = escape(&next.command);
    if !next.on_host {
        return format!("next:   {command}\n");
    }
    let label = "next:   on the host:";
    let needed = width(label) + 1 + width(&command);
    let fits = layout.limit().is_none_or(|limit| needed <= limit);
    let gap = if fits { " " } else { "\n        " };
    format!("{label}{gap}{command}\n")
}

fn age(since: Option<Timestamp>, now: Timestamp) -> Cell {
    Cell::from(since.map_or_else(String::new, |since| format_age(since, now)))
}

fn steps(diagnosis: &Diagnosis, now: Timestamp) -> Table {
    let mut table = Table::with_columns(["STEP", "STATE", "FOR", "DETAIL"].map(Column::new));
    for step in &diagnosis.steps {
        let style = match step.state {
            StepState::Missing => BAD,
            StepState::Unknown => WARN,
            StepState::Done | StepState::Waits => Style::new(),
        };
        table.add_row([
            Cell::from(step.step.as_str()),
            Cell::styled(step.state.as_str(), style),
            age(step.since, now),
            Cell::from(step.detail.as_deref().unwrap_or_default()).extend_to_line_end(),
        ]);
    }
    table
}

/// The conditions that report a problem or a change, and in wide output all.
fn objects(diagnosis: &Diagnosis, now: Timestamp, layout: Layout) -> Table {
    let mut table = Table::with_columns(["OBJECT", "CONDITION", "STATUS", "FOR", "MESSAGE"].map(Column::new));
    for object in &diagnosis.objects {
        let shown: Vec<&Condition> = if layout.is_wide {
            object.conditions.iter().collect()
        } else {
            object.notable_conditions().collect()
        };
        let mut name = object.object.as_str();
        if let Some(remark) = remark(object, shown.len()) {
            let remark = Cell::from(remark).extend_to_line_end();
            table.add_row([Cell::from(name), remark]);
            name = "";
        }
        for condition in shown {
            table.add_row([
                Cell::from(name),
                Cell::from(condition.type_.as_str()),
                Cell::from(condition.status.as_str()),
                age(condition.last_transition_time, now),
                Cell::from(condition.message_or_reason()).extend_to_line_end(),
            ]);
            name = "";
        }
    }
    table
}

/// What the conditions of an object that are shown do not say. `None` if they say all.
fn remark(object: &ObjectReport, shown: usize) -> Option<String> {
    match (object.exists, &object.failure_message) {
        (None, _) => Some("could not be read".to_owned()),
        (Some(false), _) => Some("does not exist".to_owned()),
        (Some(true), Some(failure)) => Some(failure.clone()),
        (Some(true), None) if object.conditions.is_empty() => Some("reports no conditions".to_owned()),
        (Some(true), None) if shown == 0 => {
            let number = object.conditions.len();
            let noun = if number == 1 { "condition" } else { "conditions" };
            Some(format!("as usual ({number} {noun})"))
        }
        (Some(true), None) => None,
    }
}

fn node_text(node: &NodeReport, now: Timestamp) -> String {
    let ready = match node.ready {
        Some(true) => "ready",
        Some(false) => "not ready",
        None => "its kubelet does not report",
    };
    let lasts = node
        .ready_since
        .map_or_else(String::new, |since| format!(" for {}", format_age(since, now)));
    let problems = node.problems.iter().map(|problem| {
        let status = problem.status.as_str();
        format!("; {} is {status}: {}", problem.type_, problem.message_or_reason())
    });
    let problems: String = problems.collect();
    let taints = match node.taints.as_slice() {
        [] => "; no taints".to_owned(),
        taints => format!("; taints: {}", taints.join(", ")),
    };
    format!(
        "Node/{}: kubelet {}, {ready}{lasts}{problems}{taints}",
        node.name, node.kubelet_version
    )
}

fn member_text(member: &MemberReport) -> String {
    let id = member.id.as_ref().map_or_else(String::new, |id| format!(" {id}"));
    let name = if member.name.is_empty() {
        "not started"
    } else {
        &member.name
    };
    let role = match (member.learner, member.leader) {
        (true, _) => "learner",
        (false, true) => "voter, leader",
        (false, false) => "voter",
    };
    let health = member.fault.as_deref().unwrap_or("healthy");
    let alarm = member
        .alarm
        .as_deref()
        .map_or_else(|| "no alarm".to_owned(), |alarm| format!("alarm {alarm}"));
    let expires = member.certificate_expires;
    let expires = expires.map_or_else(String::new, |expires| {
        format!(", its certificate expires on {}", second(expires))
    });
    format!("etcd member{id} ({name}): {role}, {health}, {alarm}{expires}")
}

fn static_pods(pods: &[PodReport], now: Timestamp) -> Table {
    let mut table = Table::with_columns(["STATIC POD", "READY", "FOR", "RESTARTS", "STATE"].map(Column::new));
    for pod in pods {
        let running = || match &pod.last_exit {
            Some(exit) => format!("{}, last {exit}", pod.phase),
            None => pod.phase.clone(),
        };
        let (ready, style) = if pod.ready {
            ("yes", Style::new())
        } else {
            ("no", BAD)
        };
        table.add_row([
            Cell::from(pod.component),
            Cell::styled(ready, style),
            age(pod.ready_since, now),
            Cell::from(pod.restarts.to_string()),
            Cell::from(pod.message.clone().unwrap_or_else(running)).extend_to_line_end(),
        ]);
    }
    table
}

fn events(diagnosis: &Diagnosis, layout: Layout) -> String {
    let events = &diagnosis.events;
    if events.is_empty() {
        return "no Events: an API server deletes them after an hour by default\n".to_owned();
    }
    let hidden = if layout.is_wide {
        0
    } else {
        events.len().saturating_sub(MAX_EVENTS)
    };
    let text = entries_table(events.get(hidden..).unwrap_or_default()).render(layout);
    match hidden {
        0 => text,
        hidden => text + &format!("{hidden} earlier Events are shown with -o wide\n"),
    }
}
