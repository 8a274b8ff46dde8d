//! `leader-migration start`: enables leader migration on kube-controller-manager, before the upgrade.

use kcp_rules::{
    api::{DecodeError, decode},
    leader_migration::{
        Component,
        generate::{self, Request},
        steps,
    },
    syntax::parse_version,
};
use serde_json::{Value, json};

use super::{
    Facts, control_plane,
    gates::{why_not_settled, why_not_started},
    phase::{Managers, Migration, Phase},
    record::Record,
    refused, refused_with, stop_then_start, watch_the_rollout, write,
};
use crate::{
    change::decision::{ChangeEvent, Decision},
    review::ReviewContext,
    snapshot::change::ChangeSnapshot,
};

#[derive(Clone, Copy, Debug)]
pub struct StartOptions<'s> {
    /// The minor version of cloud-controller-manager after the upgrade.
    pub to: u64,
    pub migrates_node_ipam: bool,
    /// The name of the Lease that is the migration lock.
    pub leader_name: &'s str,
    pub facts: Facts<'s>,
}

/// Decides whether to install the leader migration configuration. After the installation, the decision is
/// `Unchanged` only if every kube-controller-manager uses the configuration. A kube-controller-manager that
/// does not use it would run the controllers a second time during the upgrade.
pub fn decide(
    snapshot: &ChangeSnapshot,
    options: StartOptions<'_>,
    context: ReviewContext<'_>,
) -> Result<Decision, DecodeError> {
    let object: Value = decode(&snapshot.json)?;
    let version = snapshot.control_plane().spec.version();
    let Ok(from) = parse_version(version) else {
        return Ok(refused(vec![format!(
            "spec.version is not a Kubernetes version: {version:?}"
        )]));
    };
    let StartOptions {
        to,
        migrates_node_ipam: node_ipam,
        leader_name,
        ..
    } = options;
    let request = Request {
        from: from.minor,
        to,
        migrates_node_ipam: node_ipam,
        leader_name: leader_name.to_owned(),
    };
    let configuration = match generate::configuration(&request) {
        Ok(configuration) => configuration,
        Err(nothing @ generate::Refusal::Nothing(_)) => return Ok(Decision::Unchanged(nothing.to_string())),
        Err(unsupported @ generate::Refusal::Unsupported(_)) => {
            return Ok(match Managers::from_control_plane(&object)? {
                Ok(managers) => stop_then_start(snapshot, &managers.kube, unsupported.to_string()),
                Err(_) => refused(vec![unsupported.to_string()]),
            });
        }
        Err(refusal) => return Ok(refused(vec![refusal.to_string()])),
    };
    let step = steps::start(&configuration);
    let patch = step.patch(&object);
    if patch == json!({}) {
        return Ok(started(snapshot, options));
    }
    let migration = match Migration::from_snapshot(snapshot)? {
        Ok(migration) => migration,
        Err(unknown) => return Ok(refused(vec![unknown.to_string()])),
    };
    if let Some(earlier) = unsettled(snapshot, migration.phase, options) {
        return Ok(earlier);
    }
    let missing = options.facts.missing_permissions;
    if !missing.is_empty() {
        let name = kcp_api::Object::name(snapshot.control_plane());
        return Ok(refused_with(
            missing.to_vec(),
            vec![format!(
                "grant the permissions with: kubectl kcp leader-migration rbac {name} --leader-name {leader_name} --apply"
            )],
        ));
    }
    let record = Record {
        undo: step.inverse(&object),
        earlier: None,
    };
    let event = ChangeEvent {
        reason: "LeaderMigrationEnabled",
        action: "EnableLeaderMigration",
        note_verb: "leader migration enabled",
        detail: format!("with Lease {leader_name}"),
    };
    write(
        snapshot,
        Record::add_to_patch(Some(&record), patch),
        event,
        false,
        context,
    )
}

/// The refusal while an earlier migration has not ended.
fn unsettled(snapshot: &ChangeSnapshot, phase: Phase, options: StartOptions<'_>) -> Option<Decision> {
    let name = control_plane(snapshot);
    match phase {
        Phase::Enabled => None,
        Phase::Upgrading | Phase::Settling => {
            let version = snapshot.control_plane().spec.version();
            Some(refused_with(
                vec![format!(
                    "the leader migration for the upgrade to {version} is not finished"
                )],
                vec![format!(
                    "finish it with: kubectl kcp leader-migration finish {name}"
                )],
            ))
        }
        Phase::Off => {
            let reasons = why_not_settled(options.facts.observed);
            (!reasons.is_empty()).then(|| {
                refused_with(
                    reasons,
                    vec![format!(
                        "wait until the rollout has replaced every kube-controller-manager that uses leader \
                         migration, and remove --enable-leader-migration from cloud-controller-manager; to \
                         see the progress: kubectl kcp leader-migration status {name}"
                    )],
                )
            })
        }
    }
}

/// The decision after the configuration is installed.
fn started(snapshot: &ChangeSnapshot, options: StartOptions<'_>) -> Decision {
    let leader_name = options.leader_name;
    let reasons = why_not_started(snapshot, options.facts.observed, leader_name, &[Component::Kube]);
    if reasons.is_empty() {
        return Decision::Unchanged(format!(
            "every kube-controller-manager uses leader migration with Lease {leader_name}"
        ));
    }
    refused_with(reasons, vec![watch_the_rollout(snapshot)])
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
