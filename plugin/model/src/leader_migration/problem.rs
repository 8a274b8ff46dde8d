//! The problems of an upgrade, and how to fix each.

use kcp_rules::{
    leader_migration::{
        Component, ControllerManagerChange, ControllerManagers, Manager, Phase, Row, UpgradeEffect,
        generate::UNSUPPORTED_SINCE,
    },
    topics::controller_managers::Unknown,
};

/// A problem, and what to change to solve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationProblem {
    pub message: String,
    pub fix: String,
    pub is_harmful: bool,
}

/// Every problem with its fix, the most severe first.
pub fn problems(pair: &ControllerManagerChange, unknown_clouds: &[Unknown]) -> Vec<MigrationProblem> {
    let startup_errors = pair
        .startup_errors()
        .into_iter()
        .map(|(phase, component, error)| {
            let managers = if phase == Phase::Before {
                &pair.before
            } else {
                &pair.after
            };
            let minor = manager(managers, component).map(|manager| manager.minor);
            let minor = minor.map_or_else(String::new, |minor| format!(" 1.{minor}"));
            MigrationProblem {
                message: format!("{component}{minor} exits at startup: {error}"),
                fix: error.fix(),
                is_harmful: true,
            }
        });
    let rows = pair.rows();
    let rows = rows.iter().filter_map(|row| of_row(pair, row));
    let findings = pair.findings().into_iter().map(|finding| MigrationProblem {
        message: finding.to_string(),
        fix: finding.fix(),
        is_harmful: finding.is_problem(),
    });
    let unknown = unknown_clouds.iter().map(|unknown| MigrationProblem {
        message: unknown.to_string(),
        fix: "pass the manifest of cloud-controller-manager with --ccm, and its manifest from before the \
            upgrade with --old-ccm"
            .to_owned(),
        is_harmful: false,
    });
    startup_errors
        .chain(rows)
        .chain(findings)
        .chain(unknown)
        .collect()
}

fn of_row(pair: &ControllerManagerChange, row: &Row) -> Option<MigrationProblem> {
    let name = row.controller.canonical;
    let (message, fix) = match row.verdict {
        UpgradeEffect::RunsTwice(phase) => (
            format!(
                "{name} runs in two controller managers at the same time {}",
                when(phase)
            ),
            fix_of_two_owners(pair, name),
        ),
        UpgradeEffect::Orphaned(phase) => (
            format!("no controller manager runs {name} {}", when(phase)),
            fix_of_no_owner(pair, name),
        ),
        UpgradeEffect::CannotStart(component, phase) => (
            format!(
                "no controller manager runs {name} {}: {component} exits at startup",
                when(phase)
            ),
            format!("correct the startup error of {component}, shown above"),
        ),
        UpgradeEffect::SwitchedOff => (
            format!("no controller manager runs {name} after the upgrade, because the flags disable it"),
            fix_of_no_owner(pair, name),
        ),
        UpgradeEffect::Unknown => (
            format!(
                "it is unknown whether cloud-controller-manager runs {name}: neither its flags nor its cloud \
                 provider show this"
            ),
            format!(
                "add {name} to the --controllers of cloud-controller-manager if its cloud provider has {name}; otherwise \
                 remove --allocate-node-cidrs"
            ),
        ),
        UpgradeEffect::Protected | UpgradeEffect::Unprotected | UpgradeEffect::NothingToMigrate => {
            return None;
        }
    };
    Some(MigrationProblem {
        message,
        fix,
        is_harmful: row.verdict.is_problem(),
    })
}

fn fix_of_two_owners(pair: &ControllerManagerChange, name: &str) -> String {
    if pair.before.kube.minor >= UNSUPPORTED_SINCE {
        return format!(
            "kube-controller-manager 1.36 and later do not support leader migration: disable {name} in the \
             --controllers of kube-controller-manager, wait for the rollout, then enable it in \
             cloud-controller-manager"
        );
    }
    let to = pair.after.kube.minor;
    let fix = format!(
        "before the upgrade, enable leader migration on kube-controller-manager and cloud-controller-manager, with a \
         configuration that lists {name}; to generate the change: kubectl kcp leader-migration generate NAME --step start \
         --to v1.{to}.0"
    );
    let is_node_ipam = name == "node-ipam-controller";
    fix + if is_node_ipam { " --node-ipam" } else { "" }
}

fn fix_of_no_owner(pair: &ControllerManagerChange, name: &str) -> String {
    match &pair.after.cloud {
        Some(_) => format!(
            "enable {name} in the --controllers of cloud-controller-manager, and assign {name} to \"*\" in \
             its leader migration configuration"
        ),
        None => format!(
            "if a cloud-controller-manager is to run {name}, start the cloud-controller-manager, or pass its manifest (to `check` \
             with --ccm, to `generate` with --ccm-manifest); otherwise enable {name} in kube-controller-manager"
        ),
    }
}

fn manager(managers: &ControllerManagers, component: Component) -> Option<&Manager> {
    match component {
        Component::Kube => Some(&managers.kube),
        Component::Cloud => managers.cloud.as_ref(),
    }
}

fn when(phase: Phase) -> &'static str {
    match phase {
        Phase::Before => "before the upgrade",
        Phase::Rollout => "while Machines of both versions run",
        Phase::After => "after the upgrade",
    }
}
