//! The JSON of `leader-migration check`: `kubectl-kcp.dev/v1alpha1`.

use kcp_control_plane::leader_migration::problem::MigrationProblem;
use kcp_rules::leader_migration::{Phase, Row, UpgradeEffect, handover::Gap, pair::Runner};
use serde::Serialize;

use crate::{
    commands::leader_migration::checked_upgrade::CheckedUpgrade,
    document::{Document, ObjectName},
};

/// Which controller manager runs each controller before and after an upgrade.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeaderMigrationCheck {
    metadata: ObjectName,
    /// True if the upgrade would harm the cluster, or if a setting has no effect.
    has_problem: bool,
    controllers: Vec<ControllerDocument>,
    problems: Vec<ProblemDocument>,
    gaps: GapsDocument,
}

impl Document for LeaderMigrationCheck {
    const KIND: &'static str = "LeaderMigrationCheck";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct ControllerDocument {
    name: &'static str,
    /// The controller managers that run the controller before the upgrade.
    now: Vec<OwnerDocument>,
    /// The controller managers that run the controller after the upgrade.
    then: Vec<OwnerDocument>,
    /// One of: protected, unprotected, orphaned, runs-twice, cannot-start, nothing-to-migrate, switched-off (the flags
    /// disable the controller, and nothing migrates), unknown (the cloud-controller-manager may run the controller).
    verdict: &'static str,
    /// When the controller does not run, or runs twice. One of: now (before the upgrade), rollout, then (after the
    /// upgrade).
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct OwnerDocument {
    component: &'static str,
    /// The Lease that the controller manager must hold to run the controller.
    lease: ObjectName,
    /// Whether the Lease is the migration lock, rather than the main lock.
    migration_lock: bool,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct ProblemDocument {
    message: String,
    fix: String,
    /// Whether the problem harms the cluster.
    harmful: bool,
}

/// How long controllers are down during each kind of handover. Null if the upgrade has no handover of this kind.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct GapsDocument {
    main_lock: GapDocument,
    migration_lock: Option<GapDocument>,
    to_cloud_controller_manager: Option<GapDocument>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct GapDocument {
    min_seconds: f64,
    max_seconds: f64,
}

impl LeaderMigrationCheck {
    pub(crate) fn new(check: &CheckedUpgrade) -> Self {
        let gaps = check.change.gaps();
        Self {
            metadata: ObjectName {
                name: check.name.clone(),
                namespace: check.namespace.clone(),
            },
            has_problem: check.has_problem(),
            controllers: check.change.rows().iter().map(ControllerDocument::new).collect(),
            problems: check.problems().into_iter().map(ProblemDocument::new).collect(),
            gaps: GapsDocument {
                main_lock: GapDocument::new(gaps.main),
                migration_lock: gaps.migration.map(GapDocument::new),
                to_cloud_controller_manager: gaps.to_cloud.map(GapDocument::new),
            },
        }
    }
}

impl ControllerDocument {
    fn new(row: &Row) -> Self {
        let (verdict, phase) = match row.verdict {
            UpgradeEffect::Protected => ("protected", None),
            UpgradeEffect::Unprotected => ("unprotected", None),
            UpgradeEffect::Orphaned(phase) => ("orphaned", Some(phase)),
            UpgradeEffect::RunsTwice(phase) => ("runs-twice", Some(phase)),
            UpgradeEffect::CannotStart(_, phase) => ("cannot-start", Some(phase)),
            UpgradeEffect::NothingToMigrate => ("nothing-to-migrate", None),
            UpgradeEffect::SwitchedOff => ("switched-off", None),
            UpgradeEffect::Unknown => ("unknown", None),
        };
        Self {
            name: row.controller.canonical,
            now: row.runners_before.iter().map(OwnerDocument::new).collect(),
            then: row.runners_after.iter().map(OwnerDocument::new).collect(),
            verdict,
            phase: phase.map(|phase| match phase {
                Phase::Before => "now",
                Phase::Rollout => "rollout",
                Phase::After => "then",
            }),
        }
    }
}

impl OwnerDocument {
    fn new(owner: &Runner) -> Self {
        Self {
            component: owner.component.name(),
            lease: ObjectName {
                name: owner.lock.name.clone(),
                namespace: owner.lock.namespace.clone(),
            },
            migration_lock: owner.is_migration_lock,
        }
    }
}

impl ProblemDocument {
    fn new(problem: MigrationProblem) -> Self {
        Self {
            message: problem.message,
            fix: problem.fix,
            harmful: problem.is_harmful,
        }
    }
}

impl GapDocument {
    fn new(gap: Gap) -> Self {
        Self {
            min_seconds: gap.min.as_secs_f64(),
            max_seconds: gap.max.as_secs_f64(),
        }
    }
}
