//! What is wrong, the heaviest first: a line each, with the object and the check's id, and what to do below it.

use std::fmt::Write as _;

use owo_colors::{OwoColorize as _, Style};

use super::Layout;
use crate::{
    status::inspection::{Inspection, Outcome},
    terminal::{
        escape,
        style::{BAD, FAINT, HEADING, WARN},
        width::wrap_hint,
    },
};

/// Cells before a finding's text: two blanks, the longest outcome, a blank.
const INDENT: usize = 10;

pub(super) fn findings(inspection: &Inspection, layout: Layout) -> String {
    let mut text = String::new();
    for (checked, finding) in inspection.findings() {
        title(&mut text, finding.outcome);
        let id = checked.id;
        let line = format!("{}: {} ({id})", finding.objects.join(", "), finding.message);
        entry(&mut text, finding.outcome, &line, layout);
        if let Some(hint) = &finding.hint {
            hint_lines(&mut text, hint, layout);
        }
    }
    for (reason, outcome, ids) in unjudged(inspection, layout) {
        title(&mut text, outcome);
        entry(
            &mut text,
            outcome,
            &format!("{}: {reason}", ids.join(", ")),
            layout,
        );
    }
    text
}

/// Checks without a finding that could not be judged, by the reason; those that were skipped where all is wanted.
fn unjudged(inspection: &Inspection, layout: Layout) -> Vec<(&str, Outcome, Vec<&'static str>)> {
    let mut groups: Vec<(&str, Outcome, Vec<&'static str>)> = Vec::new();
    for checked in &inspection.checks {
        let is_wanted = match checked.outcome {
            Outcome::Unknown => checked.findings.is_empty(),
            Outcome::Skipped => layout.is_wide,
            Outcome::Pass | Outcome::Info | Outcome::Warn | Outcome::Fail => false,
        };
        let Some(reason) = checked.reason.as_deref().filter(|_| is_wanted) else {
            continue;
        };
        let same = |(other, outcome, _): &&mut (&str, Outcome, Vec<&'static str>)| {
            *other == reason && *outcome == checked.outcome
        };
        match groups.iter_mut().find(same) {
            Some((_, _, ids)) => ids.push(checked.id),
            None => groups.push((reason, checked.outcome, vec![checked.id])),
        }
    }
    groups.sort_by_key(|(_, outcome, _)| std::cmp::Reverse(*outcome));
    groups
}

fn title(text: &mut String, heaviest: Outcome) {
    if text.is_empty() {
        let title = match heaviest {
            Outcome::Fail | Outcome::Unknown | Outcome::Warn => "What is wrong:",
            Outcome::Info => "What goes on:",
            Outcome::Skipped | Outcome::Pass => "What was left out:",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", title.style(HEADING));
    }
}

fn entry(text: &mut String, outcome: Outcome, line: &str, layout: Layout) {
    let mut mark = format!("{:<7}", outcome.as_str())
        .style(outcome_style(outcome))
        .to_string();
    for line in layout.lines(line, INDENT) {
        let _ = writeln!(text, "  {mark} {line}");
        mark = " ".repeat(7);
    }
}

fn hint_lines(text: &mut String, hint: &str, layout: Layout) {
    const LABEL: &str = "hint:";
    let hint = escape(hint);
    let room = layout
        .limit()
        .map(|limit| limit.saturating_sub(INDENT + LABEL.len() + 1));
    let lines = match room {
        Some(room) => wrap_hint(&hint, room),
        None => vec![hint.into_owned()],
    };
    let mut label = LABEL.style(FAINT).to_string();
    for line in lines {
        let _ = writeln!(text, "{}{label} {line}", " ".repeat(INDENT));
        label = " ".repeat(LABEL.len());
    }
}

pub(super) const fn outcome_style(outcome: Outcome) -> Style {
    match outcome {
        Outcome::Fail => BAD,
        Outcome::Unknown | Outcome::Warn => WARN,
        Outcome::Pass | Outcome::Skipped | Outcome::Info => FAINT,
    }
}
