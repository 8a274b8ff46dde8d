//! Prints the findings of the checks, most severe first. Findings about one Machine form a group: first the cause with its
//! hint, then one line for each other finding. Machines with the same findings share a group.

use std::fmt::Write as _;

use owo_colors::{OwoColorize as _, Style};

use crate::commands::status::screen::{
    Layout,
    subject::{subject, subjects},
};
use crate::terminal::{
    escape,
    style::{BAD, FAINT, HEADING, WARN},
    width::wrap_hint,
};
use kcp_control_plane::{
    checks::{
        Checked,
        finding::{CheckOutcome, Finding},
    },
    inspection::Inspection,
};

/// The number of terminal cells before the text of a finding: two spaces, the outcome, a space.
const TEXT_INDENT: usize = 10;

/// The maximum number of checks without a result that are named, unless the output is wide. The others are only counted.
const MAX_NAMED_CHECKS: usize = 3;

const HINT: &str = "hint:";

/// The label before the other findings about the same Machine.
const OTHER_FINDINGS: &str = "also:";

/// A finding, with the ids of all checks that report the same problem.
struct ReportedFinding<'i> {
    finding: &'i Finding,
    ids: Vec<&'static str>,
}

impl ReportedFinding<'_> {
    fn is_same(&self, other: &Self) -> bool {
        self.ids == other.ids && self.is_equal_to(other.finding)
    }

    fn is_equal_to(&self, finding: &Finding) -> bool {
        (self.finding.outcome, &self.finding.message) == (finding.outcome, &finding.message)
    }

    fn line(&self) -> String {
        format!("{} ({})", self.finding.message, self.ids.join(", "))
    }
}

/// Machines or other objects that have the same findings.
struct FindingGroup<'i> {
    subjects: Vec<&'i str>,
    findings: Vec<ReportedFinding<'i>>,
}

fn groups<'i>(findings: Vec<(&'i Checked, &'i Finding)>) -> Vec<FindingGroup<'i>> {
    let mut by_subject: Vec<FindingGroup<'i>> = Vec::new();
    for (checked, finding) in findings {
        let subjects = subjects(&finding.objects);
        let id = checked.id;
        let same = by_subject.iter_mut().find(|group| group.subjects == subjects);
        let Some(group) = same.filter(|_| subject(&finding.objects).is_some()) else {
            let findings = vec![ReportedFinding {
                finding,
                ids: vec![id],
            }];
            by_subject.push(FindingGroup { subjects, findings });
            continue;
        };
        match group
            .findings
            .iter_mut()
            .find(|findings| findings.is_equal_to(finding))
        {
            Some(findings) if findings.ids.contains(&id) => {}
            Some(findings) => findings.ids.push(id),
            None => group.findings.push(ReportedFinding {
                finding,
                ids: vec![id],
            }),
        }
    }
    let mut groups: Vec<FindingGroup<'i>> = Vec::new();
    for group in by_subject {
        let is_same = |other: &&mut FindingGroup<'i>| {
            other.findings.len() == group.findings.len()
                && other
                    .findings
                    .iter()
                    .zip(&group.findings)
                    .all(|(a, b)| a.is_same(b))
        };
        match groups.iter_mut().find(is_same) {
            Some(same) if same.subjects == group.subjects => {}
            Some(same) => same.subjects.extend(group.subjects),
            None => groups.push(group),
        }
    }
    groups
}

/// The number of entries with this outcome in the list of findings, unless the output is wide.
pub(super) fn count_entries(inspection: &Inspection, outcome: CheckOutcome) -> usize {
    let groups = groups(inspection.findings());
    let firsts = groups.iter().filter_map(|group| group.findings.first());
    let without_result = checks_without_result(inspection, false);
    firsts.filter(|first| first.finding.outcome == outcome).count()
        + without_result
            .iter()
            .filter(|(_, other, _)| *other == outcome)
            .count()
}

pub(in crate::commands) fn findings(inspection: &Inspection, layout: Layout) -> String {
    let mut text = String::new();
    let is_problem = |outcome| matches!(outcome, CheckOutcome::Fail | CheckOutcome::Warn);
    let has_problem = inspection
        .findings()
        .iter()
        .any(|(_, finding)| is_problem(finding.outcome));
    for FindingGroup { subjects, findings } in groups(inspection.findings()) {
        let Some((first, others)) = findings.split_first() else {
            continue;
        };
        let outcome = first.finding.outcome;
        title(&mut text, outcome, has_problem);
        // A kind alone, such as `Node` for a list that could not be read, only repeats the message, so it is left out.
        let named: Vec<&str> = subjects
            .into_iter()
            .filter(|subject| subject.contains('/'))
            .collect();
        let line = if named.is_empty() {
            first.line()
        } else {
            format!("{}: {}", named.join(", "), first.line())
        };
        entry(&mut text, outcome, &line, layout);
        if outcome > CheckOutcome::Info || layout.is_wide {
            hint(&mut text, first.finding, layout);
        }
        let mut label = OTHER_FINDINGS;
        for other in others {
            push_other_finding(&mut text, label, outcome, other, layout);
            // Keep findings with different hints apart.
            if !layout.is_wide {
                label = "";
            }
        }
    }
    for (reason, outcome, ids) in checks_without_result(inspection, layout.is_wide) {
        title(&mut text, outcome, has_problem);
        let which = if ids.len() > MAX_NAMED_CHECKS && !layout.is_wide {
            format!("{} checks", ids.len())
        } else {
            ids.join(", ")
        };
        entry(&mut text, outcome, &format!("{which}: {reason}"), layout);
    }
    text
}

/// The checks without a result, grouped by reason. Wide output includes checks that were skipped.
fn checks_without_result(
    inspection: &Inspection,
    is_wide: bool,
) -> Vec<(&str, CheckOutcome, Vec<&'static str>)> {
    let mut groups: Vec<(&str, CheckOutcome, Vec<&'static str>)> = Vec::new();
    for checked in &inspection.checks {
        let is_wanted = match checked.outcome {
            CheckOutcome::Unknown => checked.findings.is_empty(),
            CheckOutcome::Skipped => is_wide,
            CheckOutcome::Pass | CheckOutcome::Info | CheckOutcome::Warn | CheckOutcome::Fail => false,
        };
        let Some(reason) = checked.reason.as_deref().filter(|_| is_wanted) else {
            continue;
        };
        let same = |(other, outcome, _): &&mut (&str, CheckOutcome, Vec<&'static str>)| {
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

/// Writes the heading before the first entry. `has_problem` says whether any entry has an outcome other than unknown.
fn title(text: &mut String, heaviest: CheckOutcome, has_problem: bool) {
    if text.is_empty() {
        let title = match heaviest {
            CheckOutcome::Fail | CheckOutcome::Warn => "Problems:",
            CheckOutcome::Unknown if has_problem => "Problems:",
            CheckOutcome::Unknown => "Unknown:",
            CheckOutcome::Info => "In progress:",
            CheckOutcome::Skipped | CheckOutcome::Pass => "Skipped:",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", title.style(HEADING));
    }
}

fn entry(text: &mut String, outcome: CheckOutcome, line: &str, layout: Layout) {
    let mut mark = format!("{:<7}", outcome.as_str())
        .style(outcome_style(outcome))
        .to_string();
    for line in layout.wrap_lines(line, TEXT_INDENT) {
        let _ = writeln!(text, "  {mark} {line}");
        mark = " ".repeat(7);
    }
}

fn hint(text: &mut String, finding: &Finding, layout: Layout) {
    let Some(hint) = &finding.hint else {
        return;
    };
    let hint = escape(hint);
    let room = layout
        .limit()
        .map(|limit| limit.saturating_sub(TEXT_INDENT + HINT.len() + 1));
    let lines = match room {
        Some(room) => wrap_hint(&hint, room),
        None => vec![hint.into_owned()],
    };
    push_labelled(text, HINT, lines);
}

/// Appends another finding of a group. Leaves out its hint, unless the output is wide.
fn push_other_finding(
    text: &mut String,
    label: &str,
    first: CheckOutcome,
    findings: &ReportedFinding<'_>,
    layout: Layout,
) {
    let outcome = findings.finding.outcome;
    let weight = if outcome == first {
        String::new()
    } else {
        format!("{}: ", outcome.as_str())
    };
    let line = format!("{weight}{}", findings.line());
    push_labelled(
        text,
        label,
        layout.wrap_lines(&line, TEXT_INDENT + OTHER_FINDINGS.len() + 1),
    );
    if layout.is_wide {
        hint(text, findings.finding, layout);
    }
}

/// Appends lines after a label. All lines are indented by the width of [`HINT`], which is also the width of
/// [`OTHER_FINDINGS`].
fn push_labelled(text: &mut String, label: &str, lines: Vec<String>) {
    let blank = " ".repeat(HINT.len());
    let mut label = if label.is_empty() {
        blank.clone()
    } else {
        label.style(FAINT).to_string()
    };
    for line in lines {
        let _ = writeln!(text, "{}{label} {line}", " ".repeat(TEXT_INDENT));
        label.clone_from(&blank);
    }
}

pub(super) const fn outcome_style(outcome: CheckOutcome) -> Style {
    match outcome {
        CheckOutcome::Fail => BAD,
        CheckOutcome::Unknown | CheckOutcome::Warn => WARN,
        CheckOutcome::Pass | CheckOutcome::Skipped | CheckOutcome::Info => FAINT,
    }
}
