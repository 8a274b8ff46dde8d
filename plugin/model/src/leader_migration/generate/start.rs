//! `--step start`: enables leader migration on kube-controller-manager, before the upgrade.

use kcp_rules::leader_migration::generate::{Request, configuration};

use super::{
    Change, blocked,
    gates::why_not_settled,
    migration::{Migration, Phase},
    record::Record,
    refused,
};
use crate::leader_migration::{problem::MigrationProblem, steps};

#[derive(Clone, Copy, Debug)]
pub struct StartOptions<'s> {
    /// The minor version of cloud-controller-manager after the upgrade.
    pub to: u64,
    pub migrates_node_ipam: bool,
    /// The name of the Lease that is the migration lock.
    pub leader_name: &'s str,
}

/// The change that installs the leader migration configuration; `None` if the configuration is already installed.
pub(super) fn change(
    migration: &Migration<'_>,
    options: StartOptions<'_>,
) -> Result<Option<Change>, Vec<MigrationProblem>> {
    let name = &migration.name;
    let request = Request {
        from: migration.managers.kube.minor,
        to: options.to,
        migrates_node_ipam: options.migrates_node_ipam,
        leader_name: options.leader_name.to_owned(),
    };
    let configuration = configuration(&request).map_err(|refusal| {
        let check = format!("kubectl kcp leader-migration check {name} --to VERSION");
        refused(
            refusal.to_string(),
            format!("to see what the upgrade does, run: {check}"),
        )
    })?;
    let control_plane = migration.facts.control_plane;
    let step = steps::start(&configuration);
    let after = step.taken(control_plane);
    if after == *control_plane {
        return Ok(None);
    }
    match migration.phase {
        Phase::Enabled => {}
        Phase::Upgrading | Phase::Settling => return Err(migration.unfinished()),
        Phase::Off => blocked(
            why_not_settled(migration.facts.observed),
            &format!(
                "wait until the rollout has replaced every kube-controller-manager that uses leader migration, and \
                 remove --enable-leader-migration from cloud-controller-manager; to see the progress: kubectl kcp \
                 leader-migration status {name}"
            ),
        )?,
    }
    // The step `upgrade` judges cloud-controller-manager. Until then, it may run without leader migration.
    migration.check(&after, [None, None])?;
    let record = Record {
        undo: step.inverse(control_plane),
        earlier: None,
    };
    Ok(Some(Change {
        step,
        record: Some(record),
    }))
}
