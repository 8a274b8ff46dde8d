//! The text of `webhook status`.

use jiff::Timestamp;
use kcp_control_plane::{
    duration::format_duration,
    staleness::{age, format_age},
    webhook::{Canary, Pods, Registration, Trust, order::OtherWebhook},
};

use super::{
    WebhookReport,
    document::{state_word, turn_word},
};
use crate::terminal::{
    style::{BAD, GOOD},
    table::{Cell, Column, Layout, Table},
};

pub(super) fn render(report: &WebhookReport, layout: Layout) -> String {
    let state = &report.state;
    let mut table = Table::new(&[
        "WEBHOOK",
        "STATE",
        "ENTRIES",
        "FAIL CLOSED",
        "CA EXPIRES",
        "CERTIFICATES",
    ]);
    for registration in &state.registrations {
        table.add_row(row(registration, report.now));
    }
    let mut text = table.render(layout);
    let pods = match &state.pods {
        Pods::Read { ready, total } => format!("Pods: {ready} of {total} ready{}", place(report)),
        Pods::Unread(why) => format!("Pods: not read: {why}"),
        Pods::Unknown => {
            "Pods: unknown, because no configuration names the Service of the webhook".to_owned()
        }
    };
    let lines = |text: &str| layout.wrap_lines(text, 0).join("\n") + "\n";
    text += &lines(&pods);
    match &state.canary {
        Canary::Absent => {}
        Canary::Read { answered, .. } => {
            let answered = answered.map(|answered| format!("{} ago", format_age(answered, report.now)));
            let answered = answered.as_deref().unwrap_or("never");
            text += &lines(&format!("Last test through the API server: answered {answered}"));
        }
        Canary::Unread(why) => text += &lines(&format!("Last test through the API server: not read: {why}")),
    }
    for problem in state.problems(report.now) {
        text += &lines(&format!("problem: {problem}"));
    }
    if state.others.is_empty() {
        return text;
    }
    text += "\nOther webhooks that review the same objects:\n";
    let mut others = Table::with_columns([
        Column::new("WEBHOOK"),
        Column::new("CALLED"),
        Column::new("CONFIGURATION"),
        Column::new("NAME").wide(),
        Column::new("RESOURCES").expendable(1),
        Column::new("IF IT FAILS"),
        Column::new("TIMEOUT"),
    ]);
    for other in &state.others {
        others.add_row(other_row(other));
    }
    text + &others.render(layout)
}

fn place(report: &WebhookReport) -> String {
    match &report.state.namespace {
        Some(namespace) => format!(" in namespace {namespace}"),
        None => String::new(),
    }
}

fn row(registration: &Registration, now: Timestamp) -> Vec<Cell> {
    let state = state_word(registration);
    let style = if state == "enabled" { GOOD } else { BAD };
    let Some(registered) = &registration.registered else {
        return [registration.kind.title(), state, "-", "-", "-", "-"]
            .map(Cell::from)
            .into();
    };
    let (expires, certificates) = match &registered.trust {
        Trust::Until {
            expires,
            certificates,
        } => {
            let date = expires.strftime("%Y-%m-%d");
            let text = if *expires <= now {
                Cell::styled(format!("{date} (expired)"), BAD)
            } else {
                Cell::from(format!("{date} (in {})", format_duration(age(now, *expires))))
            };
            (text, certificates.to_string())
        }
        Trust::NoBundle => (Cell::styled("no caBundle", BAD), "-".to_owned()),
        Trust::Unreadable => (Cell::styled("unreadable", BAD), "-".to_owned()),
        Trust::Differs => (Cell::styled("differs", BAD), "-".to_owned()),
    };
    vec![
        Cell::from(registration.kind.title()),
        Cell::styled(state, style),
        Cell::from(registered.entries.to_string()),
        Cell::from(registered.fail_closed.to_string()),
        expires,
        Cell::from(certificates),
    ]
}

fn other_row(other: &OtherWebhook) -> Vec<Cell> {
    let fails = if other.fails_closed {
        "write is refused"
    } else {
        "write is admitted"
    };
    let mut resources = other.resources.join(", ");
    if other.is_selective {
        resources += " (some)";
    }
    vec![
        Cell::from(other.kind.title()),
        Cell::from(turn_word(other.turn).replace('-', " ")),
        Cell::from(&other.configuration),
        Cell::from(&other.name),
        Cell::from(resources),
        Cell::from(fails),
        Cell::from(
            other
                .timeout_seconds
                .map_or_else(|| "-".to_owned(), |seconds| format!("{seconds}s")),
        ),
    ]
}
