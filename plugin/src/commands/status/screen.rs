//! The text of `status`.
//!
//! - [`summary`], [`findings`], [`preflight`], [`members`], [`machines`], [`workers`], [`certificates`]: the parts of one control
//!   plane's screen, in this order
//! - [`list`]: a list of control planes
//! - [`changes`]: changes since the last poll
//! - [`subject`]: the subject of a finding or a blocker

mod certificates;
pub mod changes;
mod findings;
mod list;
mod machines;
mod members;
mod preflight;
mod subject;
mod summary;
mod workers;

use std::fmt::Write as _;

pub(in crate::commands) use findings::findings;
use jiff::Timestamp;
pub use list::{ListRow, list};
pub(in crate::commands) use subject::subjects;
pub(in crate::commands) use summary::{is_by_conditions, state_style};

pub use crate::terminal::table::Layout;

use owo_colors::Style;

use crate::terminal::style::{BAD, WARN};
use kcp_control_plane::{
    duration::format_duration,
    inspection::{Health, Inspection},
    plan::messages::join_names,
    snapshot::Snapshot,
};

/// The parts of a screen about control planes, which blank lines separate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Screen {
    parts: Vec<(Part, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Summary,
    Members,
    Machines,
    Workers,
    Certificates,
    Preflight,
    Findings,
    List,
}

impl Part {
    const fn title(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Members => "etcd members",
            Self::Machines => "Machines",
            Self::Workers => "workers",
            Self::Certificates => "certificates",
            Self::Preflight => "preflight",
            Self::Findings => "findings",
            Self::List => "control planes",
        }
    }
}

/// The parts of a screen that are left out if the terminal has too few lines, in this order.
const OMITTED_ON_LOW_TERMINALS: &[Part] = &[
    Part::Certificates,
    Part::Workers,
    Part::Preflight,
    Part::Machines,
    Part::Members,
];

pub fn control_plane_screen(
    observed: &Snapshot,
    inspection: &Inspection,
    now: Timestamp,
    layout: Layout,
) -> Screen {
    let parts = [
        (Part::Summary, summary::summary(observed, inspection, now, layout)),
        (Part::Findings, findings(inspection, layout)),
        (
            Part::Preflight,
            preflight::preflight(observed, inspection, layout),
        ),
        (Part::Members, members::members(observed, layout)),
        (
            Part::Machines,
            machines::machines(observed, inspection, now, layout),
        ),
        (Part::Workers, workers::workers(observed, layout)),
        (
            Part::Certificates,
            certificates::certificates(observed, now, layout),
        ),
    ];
    Screen {
        parts: parts.into_iter().filter(|(_, text)| !text.is_empty()).collect(),
    }
}

impl Screen {
    pub fn text(&self) -> String {
        let parts: Vec<&str> = self.parts.iter().map(|(_, text)| text.as_str()).collect();
        parts.join("\n")
    }

    /// The parts that fit into this number of lines, with the names of those that are left out.
    pub fn fit(&self, lines: usize) -> String {
        let mut screen = self.clone();
        let mut left_out = Vec::new();
        for part in OMITTED_ON_LOW_TERMINALS {
            // Reserve a blank line, and the line that names the parts that are left out.
            let room = if left_out.is_empty() {
                lines
            } else {
                lines.saturating_sub(2)
            };
            if screen.text().lines().count() <= room {
                break;
            }
            let parts = screen.parts.len();
            screen.parts.retain(|(other, _)| other != part);
            if screen.parts.len() < parts {
                left_out.push(part.title());
            }
        }
        let text = screen.text();
        if left_out.is_empty() && text.lines().count() <= lines {
            return text;
        }
        if lines < 3 {
            return text.lines().take(lines).flat_map(|line| [line, "\n"]).collect();
        }
        let room = lines - 2;
        let cut = text.lines().count().saturating_sub(room);
        let lines_cut = (cut > 0).then(|| format!("{cut} lines at the end"));
        let names: Vec<&str> = left_out.into_iter().chain(lines_cut.as_deref()).collect();
        let mut text: String = text.lines().take(room).flat_map(|line| [line, "\n"]).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "\nomitted, because the terminal is too small: {}",
            join_names(&names, "and")
        );
        text
    }
}

/// The style of "no" in a table of changes. It is only a warning while the control plane is healthy, because a change
/// is then blocked only for a short time.
const fn style_of_no(inspection: &Inspection) -> Style {
    match inspection.health {
        Health::Healthy => WARN,
        Health::Degraded | Health::Blocked | Health::Unknown => BAD,
    }
}

/// The time since `since`; empty if `since` is in the future, because clocks can differ.
fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(
        || "-".to_owned(),
        |since| format_duration(now.duration_since(since).try_into().unwrap_or_default()),
    )
}

#[cfg(test)]
pub(crate) mod example;
#[cfg(test)]
mod tests;
