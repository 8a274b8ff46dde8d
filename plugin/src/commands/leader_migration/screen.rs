//! Prints the result of `leader-migration check` as text.

use kcp_rules::leader_migration::{
    Component, ControllerManagers, Phase, UpgradeEffect, handover::Gap, pair::Runner,
};
use owo_colors::Style;

use super::checked_upgrade::{CheckedUpgrade, lease_name};
use crate::terminal::{
    style::{BAD, FAINT, GOOD, WARN},
    table::{Cell, Layout, Table},
};

pub(super) fn render(check: &CheckedUpgrade, layout: Layout) -> String {
    let pair = &check.change;
    let mut parts = vec![format!(
        "Now:   {}\nThen:  {}\n",
        versions(&pair.before),
        versions(&pair.after)
    )];
    let mut table = Table::new(&["CONTROLLER", "OWNER NOW", "LOCK", "OWNER THEN", "LOCK", "VERDICT"]);
    for row in pair.rows() {
        let (text, style) = verdict(row.verdict);
        table.add_row([
            Cell::from(row.controller.canonical),
            Cell::from(components(&row.runners_before)),
            Cell::from(locks(&row.runners_before)),
            Cell::from(components(&row.runners_after)),
            Cell::from(locks(&row.runners_after)),
            Cell::styled(text, style),
        ]);
    }
    parts.push(table.render(layout));
    parts.push(gaps(check, layout));
    let mut problems = String::new();
    for problem in check.problems() {
        problems += &layout.wrap_paragraph(&problem.message);
        problems += &layout.wrap_paragraph(&format!("fix: {}", problem.fix));
    }
    if !problems.is_empty() {
        parts.push(format!("Problems:\n{problems}"));
    }
    parts.join("\n")
}

fn versions(managers: &ControllerManagers) -> String {
    let kube = format!("{} 1.{}", Component::Kube, managers.kube.minor);
    match &managers.cloud {
        Some(cloud) => format!("{kube}, {} 1.{}", Component::Cloud, cloud.minor),
        None => format!("{kube}, no {}", Component::Cloud),
    }
}

fn components(owners: &[Runner]) -> String {
    let names: Vec<_> = owners.iter().map(|owner| owner.component.name()).collect();
    joined(&names)
}

fn locks(owners: &[Runner]) -> String {
    let mut names: Vec<String> = owners.iter().map(|owner| lease_name(&owner.lock)).collect();
    names.dedup();
    joined(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

fn joined(names: &[&str]) -> String {
    if names.is_empty() {
        "-".to_owned()
    } else {
        names.join(",")
    }
}

fn verdict(verdict: UpgradeEffect) -> (String, Style) {
    let when = |phase| match phase {
        Phase::Before => "now",
        Phase::Rollout => "during the rollout",
        Phase::After => "after the upgrade",
    };
    match verdict {
        UpgradeEffect::Protected => ("protected".to_owned(), GOOD),
        UpgradeEffect::Unprotected => ("unprotected (main lock)".to_owned(), WARN),
        UpgradeEffect::Orphaned(phase) => (format!("orphaned {}", when(phase)), BAD),
        UpgradeEffect::RunsTwice(phase) => (format!("runs twice {}", when(phase)), BAD),
        UpgradeEffect::CannotStart(_, phase) => (format!("cannot start {}", when(phase)), BAD),
        UpgradeEffect::NothingToMigrate => ("nothing to migrate".to_owned(), FAINT),
        UpgradeEffect::SwitchedOff => ("switched off".to_owned(), WARN),
        UpgradeEffect::Unknown => ("unknown".to_owned(), WARN),
    }
}

fn gaps(check: &CheckedUpgrade, layout: Layout) -> String {
    let seconds = |gap: Gap| format!("{:.0} to {:.0} s", gap.min.as_secs_f64(), gap.max.as_secs_f64());
    let gaps = check.change.gaps();
    let mut text = String::from("How long controllers are down after the holder of their lock stops:\n");
    if let Some(gap) = gaps.to_cloud {
        text += &layout.wrap_paragraph(&format!(
            "migrated controllers, from kube-controller-manager to cloud-controller-manager: {}",
            seconds(gap)
        ));
    }
    if let Some(gap) = gaps.migration {
        text += &layout.wrap_paragraph(&format!(
            "migrated controllers, from one kube-controller-manager to another: {}",
            seconds(gap)
        ));
    }
    text += &layout.wrap_paragraph(&format!(
        "other controllers of kube-controller-manager: {}",
        seconds(gaps.main)
    ));
    if check.recommends_stop_then_start() {
        text += &layout.wrap_paragraph(&format!(
            "The control plane has only one Machine, so the controllers are down for some time during the handover, \
             even with leader migration. A handover without leader migration is simpler: disable the controllers in \
             kube-controller-manager, then start cloud-controller-manager. The controllers are then down for {} plus \
             the time between these two steps.",
            seconds(gaps.main)
        ));
    }
    text
}
