//! Prints why nothing happens: one sentence, then since when, what to do, and what else the checks found.

use std::fmt::Write as _;

use kcp_api::Object as _;
use kcp_control_plane::{
    checks::actor::Actor,
    duration::format_duration,
    snapshot::Snapshot,
    staleness::format_age,
    why::{Cause, WhyState},
};
use owo_colors::OwoColorize as _;

use super::WhyReport;
use crate::{
    commands::status::screen::{state_style, subjects},
    terminal::{escape, table::Layout, width::wrap_hint},
};

/// The width of a label with its colon and spaces, in terminal cells.
const LABEL_WIDTH: usize = 8;

/// The maximum number of other findings that are shown, unless the output is wide.
const MAX_OTHERS: usize = 4;

/// What is shown if no object records when a problem began.
const UNKNOWN_SINCE: &str = "unknown, because no object records it";

pub fn render(report: &WhyReport<'_>, layout: Layout) -> String {
    let explanation = report.explanation;
    let style = state_style(explanation.state);
    let sentence = sentence(report);
    let lines = match layout.limit() {
        Some(limit) => wrap_hint(&escape(&sentence), limit),
        None => vec![escape(&sentence).into_owned()],
    };
    let mut text = String::new();
    for line in lines {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", line.style(style));
    }
    let mut entry = |label: &str, value: &str| {
        let value = escape(value);
        let lines = match layout.limit() {
            Some(limit) => wrap_hint(&value, limit.saturating_sub(LABEL_WIDTH)),
            None => vec![value.into_owned()],
        };
        let mut label = label.to_owned();
        for line in lines {
            let _ = writeln!(text, "{label:<LABEL_WIDTH$}{line}");
            label.clear();
        }
    };
    if let Some(cause) = &explanation.cause {
        match since(cause, report) {
            Some(since) => entry("since:", &since),
            None if explanation.state == WhyState::PersonNeeded => entry("since:", UNKNOWN_SINCE),
            None => {}
        }
        if let Some(next) = &explanation.next_action {
            entry("next:", next);
        }
        if let Some(hint) = cause
            .hint
            .as_ref()
            .filter(|_| explanation.state != WhyState::Working)
        {
            let is_needed = explanation.state != WhyState::NothingToDo;
            entry(if is_needed { "do:" } else { "later:" }, hint);
        }
    }
    let shown = if layout.is_wide { usize::MAX } else { MAX_OTHERS };
    for (index, other) in explanation.other_causes.iter().take(shown).enumerate() {
        entry(if index == 0 { "also:" } else { "" }, &cause_line(other));
    }
    let hidden = explanation.other_causes.len().saturating_sub(shown);
    if hidden > 0 {
        let name = report.observed.control_plane.name();
        let namespace = report.observed.control_plane.namespace();
        entry(
            "",
            &format!("and {hidden} more: kubectl kcp status {name} -n {namespace}"),
        );
    }
    if let Some(off) = report.webhook_off {
        entry("rules:", &rules_off(off));
    }
    if let Some(note) = report.observed.version_note() {
        entry("note:", &note);
    }
    text
}

/// What it means that kcp-webhook is disabled.
pub fn rules_off(off: &str) -> String {
    format!("kcp-webhook checks no changes, because {off}")
}

/// The answer in one sentence: who acts next, and why.
pub fn sentence(report: &WhyReport<'_>) -> String {
    let explanation = report.explanation;
    let Some(cause) = &explanation.cause else {
        let summary = summary(report.observed);
        return match explanation.planned_rollout_time {
            _ if explanation.state == WhyState::Working => format!(
                "{} acts next: no check finds a problem, but it has not counted every Machine again yet: {summary}",
                Actor::ControlPlaneController.name()
            ),
            Some(time) => format!("Nothing is wrong, and a rollout is planned for {time}: {summary}"),
            None => format!("Nothing is wrong and nothing is planned: {summary}"),
        };
    };
    let mut cause = cause_line(cause);
    if let Some(actor) = explanation.actor {
        // The sentence begins with the actor, so the cause does not name the actor again.
        cause = cause.replacen(&format!(": {} ", actor.name()), ": it ", 1);
    }
    match (explanation.state, explanation.actor) {
        (WhyState::NothingToDo, _) | (_, None) if explanation.state != WhyState::Unknown => {
            match explanation.planned_rollout_time {
                Some(time) => {
                    format!("No action is needed until the rollout that is planned for {time}: {cause}")
                }
                None => format!("Nothing is planned and no action is needed: {cause}"),
            }
        }
        (WhyState::Working | WhyState::PersonNeeded, Some(_)) => {
            format!("{}: {cause}", explanation.who_acts())
        }
        _ => {
            format!("The answer is unknown, because something that it depends on is unknown: {cause}")
        }
    }
}

fn cause_line(cause: &Cause) -> String {
    let objects = subjects(&cause.objects).join(", ");
    format!("{objects}: {} ({})", cause.message, cause.check)
}

fn since(cause: &Cause, report: &WhyReport<'_>) -> Option<String> {
    let since = cause.since?;
    let age = format_age(since, report.now);
    let usual = cause.usual_time.map_or_else(String::new, |usual| {
        format!("; the usual maximum is {}", format_duration(usual))
    });
    Some(format!("{since} ({age} ago){usual}"))
}

fn summary(observed: &Snapshot) -> String {
    let control_plane = &observed.control_plane;
    let status = &control_plane.status;
    format!(
        "{} of {} Machines are ready and {} up to date, with version {}",
        status.ready_replicas,
        control_plane.desired_replicas(),
        status.up_to_date_replicas,
        control_plane.spec.version()
    )
}
