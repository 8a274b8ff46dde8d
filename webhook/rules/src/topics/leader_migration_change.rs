//! Changes of the migration lock while controller managers use it (KEP-2436). No message shows text of a flag or a
//! file, because it may be secret.

use std::borrow::Cow;

use kcp_api::KubeadmConfig;
use serde_json::json;

use crate::{
    api::{ControlPlaneSpec, KubeadmControlPlane, decode},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults},
    leader_migration::LeaderMigrationConfiguration,
    rule::{Check, ON_UPDATE, Rule, Scope},
    topics::{
        Topic,
        extra_args::controller_manager,
        leader_migration::{configuration_flag, effective_configuration, enabling_flag},
    },
    view::{Migration, Part},
};

pub(super) const TOPIC: Topic = Topic {
    name: "leader-migration-change",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "leader-migration-changed",
        summary: "the migration lock and its controllers must not change during a migration",
        why: "During a rollout, old and new controller managers use different configurations. If the two \
              configurations have different locks or controllers, a controller can run twice, or not at all.",
        operations: ON_UPDATE,
        scope: Scope::Transition,
        overridable: true,
        source: "KEP-2436, Proposal: the set of controllers in the lock is immutable",
        check: Check::ControlPlane(changed),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
    Rule {
        id: "leader-migration-changed-during-rollout",
        summary: "a new migration must use the same lock as Machines of an earlier migration",
        why: "Machines keep their configuration until they are replaced. While Machines of an earlier \
              migration still run and use a different lock, a controller can run twice, or not at all.",
        operations: ON_UPDATE,
        scope: Scope::Cluster(&[Part::Migrations]),
        overridable: true,
        source: "KEP-2436, Proposal: the set of controllers in the lock is immutable",
        check: Check::ControlPlane(changed_during_rollout),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
];

/// The migration of a configuration: its lock, and the names of its controllers, each once and sorted.
fn migration(configuration: &LeaderMigrationConfiguration) -> Migration {
    let leaders = configuration.controller_leaders.iter();
    let mut names: Vec<String> = leaders.map(|leader| leader.name.clone()).collect();
    names.sort();
    names.dedup();
    Migration {
        leader_name: configuration.leader_name.clone(),
        controllers: Some(names),
    }
}

/// The leader migration that a Machine's `KubeadmConfig` enables. Its `spec` has the fields of
/// `kubeadmConfigSpec`. `None` if the `spec` enables no migration, or if the configuration is unknown. A
/// `KubeadmConfig` has no Kubernetes version, so the controllers of the default configuration are unknown.
pub fn migration_of_kubeadm_config(config: &KubeadmConfig) -> Option<Migration> {
    // Use a version whose controller managers ignore unknown fields, because such a controller manager may
    // run on this Machine.
    const LENIENT: u64 = 31;
    let object = json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane", "metadata": {},
        "spec": {"kubeadmConfigSpec": config.spec.fields},
    })
    .to_string();
    let object: KubeadmControlPlane<'_> = decode(&object).ok()?;
    let spec = object.common_spec();
    let (configuration, _) = effective_configuration(&spec, LENIENT)?;
    let mut migration = migration(&configuration);
    migration.controllers = migration
        .controllers
        .filter(|_| configuration_flag(&spec).is_some());
    Some(migration)
}

/// What differs between two migrations.
#[derive(Clone, Copy)]
enum Difference {
    LeaderName,
    Controllers,
}

fn difference(before: &Migration, after: &Migration) -> Option<Difference> {
    let have_other_controllers = before
        .controllers
        .as_ref()
        .zip(after.controllers.as_ref())
        .is_some_and(|(before, after)| before != after);
    if before.leader_name != after.leader_name {
        Some(Difference::LeaderName)
    } else if have_other_controllers {
        Some(Difference::Controllers)
    } else {
        None
    }
}

/// The migration of the new object, with the index of its configuration file in `files`.
fn new_migration(spec: &ControlPlaneSpec<'_>) -> Option<(Migration, Option<usize>)> {
    let (configuration, file) = effective_configuration(spec, spec.minor()?)?;
    Some((migration(&configuration), file))
}

fn field(new: &ControlPlaneSpec<'_>, file: Option<usize>) -> Cow<'static, str> {
    match file {
        Some(index) => new.kubeadm_path(format_args!("files[{index}].content")),
        None => new.kubeadm_path(controller_manager(new).path),
    }
}

fn changed(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(old) = change.old else { return };
    let (old, new) = (old.common_spec(), change.new.common_spec());
    let (Some((before, _)), Some((after, file))) = (new_migration(&old), new_migration(&new)) else {
        return;
    };
    let what = match difference(&before, &after) {
        Some(Difference::LeaderName) => {
            "leaderName would change, so old and new Machines would use different locks"
        }
        Some(Difference::Controllers) => "the set of controllers under the migration lock would change",
        None => return,
    };
    faults.push(Fault {
        field: field(&new, file),
        reason: CauseReason::Forbidden,
        value: None,
        detail: format!("{what}; during the rollout a controller could run twice, or not at all").into(),
        remedy: "remove enable-leader-migration and wait for the rollout, then enable it with the new configuration".into(),
    });
}

/// Finds a migration that starts while Machines of an earlier migration still run.
fn changed_during_rollout(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(old) = change.old else { return };
    let (old, new) = (old.common_spec(), change.new.common_spec());
    // If the old object also enables a migration, the other rule compares the two.
    if enabling_flag(&old).is_some() {
        return;
    }
    let Some((after, file)) = new_migration(&new) else {
        return;
    };
    let Some(running) = change.context.view.and_then(|view| view.migrations.as_ref()) else {
        return faults.unread();
    };
    let what = match running.iter().find_map(|before| difference(before, &after)) {
        Some(Difference::LeaderName) => "with another leaderName",
        Some(Difference::Controllers) => "with another set of controllers under the migration lock",
        None => return,
    };
    faults.push(Fault {
        field: field(&new, file),
        reason: CauseReason::Forbidden,
        value: None,
        detail: format!(
            "Machines of an earlier migration still run {what}, so during the rollout a controller could run twice, or not at \
             all"
        )
        .into(),
        remedy: "wait until the rollout has replaced these Machines, or use their leaderName and controllers".into(),
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_migration_of_a_machine_is_in_its_kubeadm_config() {
        const PATH: &str = "/etc/kubernetes/pki/leader.yaml";
        const ENABLE: (&str, &str) = ("enable-leader-migration", "true");
        const FILE: (&str, &str) = ("leader-migration-config", PATH);
        let spec = |flags: &[(&str, &str)], content: &str| {
            let flags: Vec<_> = flags
                .iter()
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect();
            json!({"clusterConfiguration": {"controllerManager": {"extraArgs": flags}},
                "joinConfiguration": {"discovery": {"bootstrapToken": {"token": "t"}}},
                "files": [{"path": PATH, "content": content}]})
        };
        let valid = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: m\n\
            resourceLock: leases\ncontrollerLeaders: [{name: b, component: \"*\"}, {name: a, component: \"*\"}]";
        let migration = |leader_name: &str, controllers: Option<&[&str]>| {
            let controllers = controllers.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            Some(Migration {
                leader_name: leader_name.to_owned(),
                controllers,
            })
        };
        for (case, spec, expected) in [
            (
                "a file, also with a field that later versions refuse",
                spec(&[ENABLE, FILE], valid),
                migration("m", Some(&["a", "b"])),
            ),
            (
                "the default",
                spec(&[ENABLE], ""),
                migration("cloud-provider-extraction-migration", None),
            ),
            ("not enabled", spec(&[FILE], valid), None),
            ("an invalid file", spec(&[ENABLE, FILE], "{"), None),
            ("a worker", json!({"joinConfiguration": {}}), None),
            ("another type", json!({"clusterConfiguration": 1}), None),
        ] {
            let config = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            assert_eq!(migration_of_kubeadm_config(&config), expected, "{case}");
        }
    }
}
