//! Prints the output of `rollout history` as text.

use std::fmt::Write as _;

use jiff::Timestamp;
use owo_colors::{OwoColorize as _, Style};

use crate::commands::rollout::history::{History, generation::Generation};
use crate::terminal::{
    escape,
    style::{FAINT, GOOD, WARN},
    table::{Cell, Column, Layout, Table},
};
use kcp_control_plane::{
    plan::rollout_reason::{Gap, Reason},
    rollout_events::RolloutEvents,
};

/// The generations of Machines as a table, oldest first.
pub fn render(history: &History, layout: Layout) -> String {
    let mut text = if history.generations.is_empty() {
        format!("kubeadmcontrolplane/{} has no Machines\n", escape(&history.name))
    } else {
        table(history).render(layout)
    };
    if let Some(events) = &history.events {
        let tables = [deleted_machines(events), self::events(events)];
        for table in tables.into_iter().flatten() {
            text.push('\n');
            text.push_str(&table.render(layout));
        }
    }
    let mut remark = |line: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", line.style(FAINT));
    };
    if let Some(after) = history.rollout_after {
        remark(&if after > history.at {
            format!(
                "at {after}, the controller begins to replace every Machine that was created before that time"
            )
        } else {
            format!("the last rollout was requested at {after}")
        });
    }
    remark(if history.events.is_some() {
        "deleted Machines are known only by their names in Events, which Kubernetes deletes after an hour by default"
    } else {
        "deleted Machines are not shown, because the Events about them could not be read"
    });
    text
}

fn table(history: &History) -> Table {
    let mut table = Table::with_columns([
        Column::new("VERSION"),
        Column::new("TEMPLATE").expendable(2),
        Column::new("MACHINES"),
        Column::new("CREATED").expendable(1),
        Column::new("STATE"),
    ]);
    for generation in &history.generations {
        let (state, style) = state(generation);
        let machines: Vec<String> = generation
            .members
            .iter()
            .map(|member| {
                let mark = if member.deleting_since.is_some() {
                    " (deleting)"
                } else {
                    ""
                };
                format!("{}{mark}", member.name)
            })
            .collect();
        let template = generation.template.as_ref();
        table.add_row([
            Cell::from(generation.version.as_deref().unwrap_or("-")),
            Cell::from(template.map_or("-", |template| template.name.as_str())),
            Cell::from(machines.join(", ")),
            Cell::from(created(generation)),
            Cell::styled(state, style).extend_to_line_end(),
        ]);
    }
    table
}

/// The Machines that no longer exist; `None` if no Event names one.
fn deleted_machines(events: &RolloutEvents) -> Option<Table> {
    let mut table = Table::with_columns([
        Column::new("DELETED MACHINE"),
        Column::new("NODE"),
        Column::new("JOINED"),
        Column::new("LAST SEEN"),
    ]);
    for machine in &events.deleted_machines {
        table.add_row([
            Cell::from(machine.name.as_str()),
            Cell::from(machine.node.as_deref().unwrap_or("-")),
            Cell::from(machine.joined.map_or_else(|| "-".to_owned(), minute)),
            Cell::from(minute(machine.last_seen)),
        ]);
    }
    (!events.deleted_machines.is_empty()).then_some(table)
}

/// The Events, oldest first; `None` if there are none.
fn events(events: &RolloutEvents) -> Option<Table> {
    let mut table = Table::with_columns([
        Column::new("LAST REPORTED"),
        Column::new("OBJECT"),
        Column::new("EVENT"),
    ]);
    for event in &events.events {
        let deleted = if event.deleted { " (deleted)" } else { "" };
        let style = if event.warning { WARN } else { Style::new() };
        table.add_row([
            Cell::from(minute(event.last)),
            Cell::from(format!("{}/{}{deleted}", event.kind, event.name)),
            Cell::styled(format!("{}: {}", event.reason, event.note), style).extend_to_line_end(),
        ]);
    }
    (!events.events.is_empty()).then_some(table)
}

/// A time such as `2026-08-21 11:00Z`.
fn minute(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%MZ").to_string()
}

fn state(generation: &Generation) -> (String, Style) {
    if generation.is_current() {
        let unseen: Vec<&str> = generation.gaps.iter().map(Gap::message).collect();
        return if unseen.is_empty() {
            ("current".to_owned(), GOOD)
        } else {
            (
                format!(
                    "assumed up to date without a check, because {}",
                    unseen.join("; ")
                ),
                WARN,
            )
        };
    }
    let reasons: Vec<String> = generation.reasons.iter().map(Reason::message).collect();
    (format!("outdated: {}", reasons.join("; ")), WARN)
}

/// When the Machines were created, such as `2026-08-21 11:00 to 12:00`, in UTC.
fn created(generation: &Generation) -> String {
    let Some((from, to)) = generation.creation_times() else {
        return "-".to_owned();
    };
    let shown = |time: Timestamp, format: &str| time.strftime(format).to_string();
    let (day, minute) = ("%Y-%m-%d", "%Y-%m-%d %H:%M");
    let until = if shown(from, minute) == shown(to, minute) {
        String::new()
    } else if shown(from, day) == shown(to, day) {
        format!(" to {}", shown(to, "%H:%M"))
    } else {
        format!(" to {}", shown(to, minute))
    };
    format!("{}{until}Z", shown(from, minute))
}

#[cfg(test)]
mod tests {
    use kcp_api::machine::Infrastructure;
    use kcp_control_plane::testing::{
        objects::{minutes_ago, now},
        plan::observed,
    };

    use super::{Layout, render};
    use crate::{
        commands::rollout::history::{
            generation::tests::{events_during_rollout, snapshot_during_rollout},
            history,
        },
        terminal::plain,
    };

    #[test]
    fn a_rollout_in_the_middle() {
        let history = history(&snapshot_during_rollout(), Some(events_during_rollout()), now());
        insta::assert_snapshot!(plain(&render(&history, Layout::default())));
        let narrow = Layout {
            width: Some(80),
            ..Layout::default()
        };
        insta::assert_snapshot!("narrow", plain(&render(&history, narrow)));
    }

    #[test]
    fn a_requested_rollout_and_missing_facts() {
        let mut observed = observed();
        observed.machines[0].infrastructure = Infrastructure::Missing;
        observed.control_plane.spec.rollout_after = Some(minutes_ago(60 * 24));
        let history = history(&observed, None, now());
        insta::assert_snapshot!(plain(&render(&history, Layout::default())));
    }

    #[test]
    fn no_machines_and_a_planned_rollout() {
        let mut observed = observed();
        observed.machines.clear();
        observed.control_plane.spec.rollout_after = Some(minutes_ago(-60));
        let history = history(&observed, None, now());
        insta::assert_snapshot!(plain(&render(&history, Layout::default())));
    }
}
