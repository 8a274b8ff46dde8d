//! Prints the result of `leader-migration status` as text.

use std::collections::BTreeSet;

use kcp_control_plane::{
    leader_migration::{Decision, Health, LockState, MigrationState, ObservedLock, ObservedManager},
    staleness::format_age,
};
use kcp_rules::leader_migration::Manager;
use owo_colors::{OwoColorize as _, Style};

use super::Status;
use crate::{
    commands::leader_migration::checked_upgrade::lease_name,
    terminal::{
        escape,
        style::{BAD, FAINT, GOOD, WARN},
        table::{Cell, Column, Layout, Table},
    },
};

pub(super) fn render(status: &Status, layout: Layout) -> String {
    let (verdict, style) = (status.verdict(), style(status.verdict()));
    let mut parts = vec![format!(
        "Leader migration of {}/{}: {}\n",
        escape(&status.namespace),
        escape(&status.name),
        title(verdict).style(style)
    )];
    parts.push(controllers(status, layout));
    if !status.observed.managers().is_empty() {
        parts.push(managers(status, layout));
    }
    if !status.observed.locks.is_empty() {
        parts.push(locks(status, layout));
    }
    let unverified = not_verified(status, layout);
    if !unverified.is_empty() {
        parts.push(format!("Not verified:\n{unverified}"));
    }
    let fixes = fixes(status, layout);
    if !fixes.is_empty() {
        parts.push(format!("What to do:\n{fixes}"));
    }
    parts.join("\n")
}

pub(super) const fn title(verdict: MigrationState) -> &'static str {
    match verdict {
        MigrationState::NothingToMigrate => "nothing to migrate",
        MigrationState::Protected => "protected",
        MigrationState::Unknown => "unknown",
        MigrationState::Unprotected => "unprotected",
        MigrationState::Stale => "stale",
        MigrationState::Orphaned => "orphaned",
        MigrationState::RunsTwice => "runs twice",
    }
}

const fn style(verdict: MigrationState) -> Style {
    match verdict {
        MigrationState::NothingToMigrate => FAINT,
        MigrationState::Protected => GOOD,
        MigrationState::Unknown | MigrationState::Unprotected => WARN,
        MigrationState::Stale | MigrationState::Orphaned | MigrationState::RunsTwice => BAD,
    }
}

fn controllers(status: &Status, layout: Layout) -> String {
    let mut table = Table::new(&["CONTROLLER", "VERDICT", "REASON"]);
    for decision in &status.decisions {
        table.add_row([
            Cell::from(decision.controller.canonical),
            Cell::styled(title(decision.verdict()), style(decision.verdict())),
            Cell::from(decision.reason.to_string()).extend_to_line_end(),
        ]);
    }
    table.render(layout)
}

fn managers(status: &Status, layout: Layout) -> String {
    let mut table = Table::with_columns([
        Column::new("CONTROLLER MANAGER"),
        Column::new("NODE").expendable(2),
        Column::new("VERSION").expendable(1),
        Column::new("RUNS"),
        Column::new("MIGRATION LOCK"),
        Column::new("SETTINGS FROM"),
    ]);
    for manager in status.observed.managers() {
        table.add_row([
            Cell::from(&manager.pod),
            Cell::from(&manager.node),
            Cell::from(
                manager
                    .minor
                    .map_or_else(|| "-".to_owned(), |minor| format!("1.{minor}")),
            ),
            Cell::from(runs(manager)),
            Cell::from(migration_lock(manager)),
            Cell::from(source(manager)),
        ]);
    }
    table.render(layout)
}

/// The number of controllers that the controller manager has started, or why it is unknown.
fn runs(manager: &ObservedManager) -> String {
    match &manager.health {
        Health::Serves(started) if started.is_empty() => "no controllers".to_owned(),
        Health::Serves(started) => match started.len() {
            1 => "1 controller".to_owned(),
            count => format!("{count} controllers"),
        },
        Health::Down(why) => format!("nothing: {why}"),
        Health::Unread(why) => format!("could not read: {why}"),
    }
}

fn migration_lock(manager: &ObservedManager) -> String {
    match manager.known_manager().map(Manager::migration_lock) {
        None => "unknown".to_owned(),
        Some(None) => "-".to_owned(),
        Some(Some(lock)) => lease_name(&lock),
    }
}

fn source(manager: &ObservedManager) -> String {
    let source = manager.settings.source;
    match (&manager.settings.described, source.is_verified()) {
        (Err(_), _) => "could not read".to_owned(),
        (Ok(_), true) => source.name().to_owned(),
        (Ok(_), false) => format!("{} (not verified)", source.name()),
    }
}

fn locks(status: &Status, layout: Layout) -> String {
    let mut table = Table::with_columns([
        Column::new("LEASE"),
        Column::new("STATE"),
        Column::new("HELD BY"),
        Column::new("HOLDER"),
        Column::new("RENEWED"),
        Column::new("TRANSITIONS").expendable(1),
    ]);
    for lock in &status.observed.locks {
        let now = status.observed.now;
        let state_of_lock = lock.state(now);
        let found = lock.lease.as_ref().ok().and_then(Option::as_ref);
        let renewed = found.and_then(|lease| lease.renewed);
        let none = || "-".to_owned();
        table.add_row([
            Cell::from(lease_name(&lock.lock)),
            Cell::styled(state(&state_of_lock), style_of(&state_of_lock)),
            Cell::from(held_by(status, lock)),
            Cell::from(lock.holder().unwrap_or("-")),
            Cell::from(renewed.map_or_else(none, |renewed| format!("{} ago", format_age(renewed, now)))),
            Cell::from(found.map_or_else(none, |lease| lease.transitions.to_string())),
        ]);
    }
    table.render(layout)
}

pub(super) const fn state(state: &LockState<'_>) -> &'static str {
    match state {
        LockState::Unread(_) => "could not read",
        LockState::Absent => "does not exist",
        LockState::Free => "free",
        LockState::Held { .. } => "held",
        LockState::Expired { .. } => "expired",
    }
}

const fn style_of(state: &LockState<'_>) -> Style {
    match state {
        LockState::Held { .. } => GOOD,
        LockState::Unread(_) | LockState::Expired { .. } => WARN,
        LockState::Absent | LockState::Free => FAINT,
    }
}

/// The component that holds a lock, according to the identity of the holder. Unclear if the field manager of the last
/// write names another component.
fn held_by(status: &Status, lock: &ObservedLock) -> String {
    if lock.holder().is_none() {
        return "-".to_owned();
    }
    let attribution = status.observed.attribution(lock);
    match (attribution.by_holder, attribution.by_writer) {
        (Some(holder), Some(writer)) if holder != writer => {
            format!("unclear: the holder is {holder}, but {writer} wrote the Lease")
        }
        (Some(holder), _) => holder.name().to_owned(),
        (None, _) => "unknown".to_owned(),
    }
}

fn not_verified(status: &Status, layout: Layout) -> String {
    let managers = status.observed.managers().iter();
    let lines = managers.filter_map(|manager| {
        let why = manager.settings.unverified_reason.as_ref()?;
        Some(match &manager.settings.described {
            Ok(_) => format!(
                "{}: the settings are from {} ({why})",
                manager.pod,
                manager.settings.source.name()
            ),
            Err(why) => format!("could not read the settings of {}: {why}", manager.pod),
        })
    });
    lines.fold(String::new(), |text, line| text + &layout.wrap_paragraph(&line))
}

fn fixes(status: &Status, layout: Layout) -> String {
    let hint = status
        .observed
        .managers
        .as_ref()
        .err()
        .and_then(|failure| failure.hint.clone());
    let left_over = status.observed.leftover_locks().into_iter().map(|lock| {
        format!(
            "Lease {}: no controller manager uses this Lease; delete it in the workload cluster with: kubectl delete lease \
             {} -n {}",
            lease_name(&lock.lock),
            lock.lock.name,
            lock.lock.namespace
        )
    });
    let fixes = status.decisions.iter().filter_map(fix).chain(hint);
    let fixes: BTreeSet<String> = fixes.chain(left_over).collect();
    fixes
        .into_iter()
        .fold(String::new(), |text, fix| text + &layout.wrap_paragraph(&fix))
}

fn fix(decision: &Decision) -> Option<String> {
    let fix = decision.reason.fix()?;
    Some(format!("{}: {fix}", decision.controller.canonical))
}
