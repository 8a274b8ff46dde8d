//! Generates a leader migration configuration that protects an upgrade.

use thiserror::Error;

use super::{CONTROLLERS, Controller};

/// The first minor version whose kube-controller-manager exits with leader migration enabled.
pub const UNSUPPORTED_SINCE: u64 = 36;

/// An upgrade to protect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The minor version of kube-controller-manager before the upgrade. It runs with leader migration.
    pub from: u64,
    /// The minor version of cloud-controller-manager after the upgrade.
    pub to: u64,
    /// Whether Node IPAM migrates.
    pub migrates_node_ipam: bool,
    /// The name of the migration lock.
    pub leader_name: String,
}

/// Why there is nothing to generate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// kube-controller-manager exits with leader migration enabled.
    #[error(
        "kube-controller-manager 1.{0} exits if leader migration is enabled, so it cannot hand over \
         controllers; disable the cloud controllers with --controllers, then start cloud-controller-manager"
    )]
    Unsupported(u64),
    /// The old version has no controller that can migrate.
    #[error(
        "nothing to migrate, because kube-controller-manager 1.{0} runs no cloud controllers; to migrate \
         Node IPAM, use --node-ipam"
    )]
    Nothing(u64),
    /// The versions are in the wrong order.
    #[error("the version after the upgrade, 1.{1}, is lower than the version before it, 1.{0}")]
    Downgrade(u64, u64),
}

/// The YAML of a v1 configuration for both controller managers. Unknown names have no effect, so the configuration lists each
/// name that a controller has at one of the two versions. A cloud provider can register Node IPAM under either of its names, so
/// the configuration lists both. Fails if there is nothing to migrate, or leader migration cannot protect the upgrade.
pub fn configuration(request: &Request) -> Result<String, Refusal> {
    let Request { from, to, .. } = *request;
    if to < from {
        return Err(Refusal::Downgrade(from, to));
    }
    if from >= UNSUPPORTED_SINCE {
        return Err(Refusal::Unsupported(from));
    }
    let is_node_ipam = |controller: &Controller| controller.short == "nodeipam";
    let mut names: Vec<&str> = Vec::new();
    for controller in &CONTROLLERS {
        let migrates = if is_node_ipam(controller) {
            request.migrates_node_ipam
        } else {
            controller.is_in_kube_controller_manager(from)
        };
        let both = is_node_ipam(controller).then_some([controller.canonical, controller.short]);
        let by_version = [controller.name_at(from), controller.name_at(to)];
        for name in both.into_iter().flatten().chain(by_version).filter(|_| migrates) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    if names.is_empty() {
        return Err(Refusal::Nothing(from));
    }
    let mut entries = String::new();
    for name in &names {
        entries.extend(["- name: ", name, "\n  component: \"*\"\n"]);
    }
    Ok(format!(
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: {}\n\
         controllerLeaders:\n{entries}",
        request.leader_name
    ))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Component, ControllerManagerChange, ControllerManagers, Flags, Manager, UpgradeEffect},
        *,
    };

    fn request(from: u64, to: u64, node_ipam: bool) -> Request {
        Request {
            from,
            to,
            migrates_node_ipam: node_ipam,
            leader_name: "cloud-provider-extraction-migration".to_owned(),
        }
    }

    /// The versions, whether Node IPAM migrates, and the verdicts in the order of `CONTROLLERS`.
    #[test]
    fn the_model_finds_generated_configurations_to_protect() {
        use UpgradeEffect::{NothingToMigrate, Protected, RunsTwice};
        let cloud_only = [
            Protected,
            Protected,
            Protected,
            RunsTwice(super::super::Phase::Rollout),
        ];
        for (from, to, node_ipam, expected) in [
            (27, 28, true, [Protected; 4]),
            (27, 27, true, [Protected; 4]),
            (30, 31, true, [Protected; 4]),
            (30, 31, false, cloud_only),
            (
                35,
                36,
                true,
                [NothingToMigrate, NothingToMigrate, NothingToMigrate, Protected],
            ),
        ] {
            let text = configuration(&request(from, to, node_ipam)).unwrap();
            let flags = |more: &str| {
                let command = format!("--allocate-node-cidrs --service-account-private-key-file=k {more}");
                Flags::from_command(command.split(' '))
            };
            let migrating = "--enable-leader-migration --leader-migration-config=f";
            let old = format!("{migrating} --cloud-provider=demo");
            // A cloud provider that is not in-tree any more lets the old version exit.
            let old = if from <= 30 { old.as_str() } else { migrating };
            let pair = ControllerManagerChange {
                before: ControllerManagers {
                    kube: Manager::new(Component::Kube, from, flags(old), Some(&text)),
                    cloud: None,
                },
                after: ControllerManagers {
                    kube: Manager::new(Component::Kube, to, flags("--controllers=*,-nodeipam"), None),
                    cloud: Some(Manager::new(
                        Component::Cloud,
                        to,
                        flags(&format!("{migrating} --cloud-provider=gce")),
                        Some(&text),
                    )),
                },
            };
            let verdicts: Vec<UpgradeEffect> = pair.rows().iter().map(|row| row.verdict).collect();
            assert_eq!(verdicts, expected, "1.{from} to 1.{to}");
            assert_eq!(pair.startup_errors(), [], "1.{from} to 1.{to}");
            assert_eq!(pair.findings(), [], "1.{from} to 1.{to}");
        }
    }

    #[test]
    fn versions_without_anything_to_migrate_are_refused() {
        for (from, to, node_ipam, expected) in [
            (31, 32, false, Refusal::Nothing(31)),
            (36, 37, true, Refusal::Unsupported(36)),
            (35, 34, true, Refusal::Downgrade(35, 34)),
        ] {
            assert_eq!(configuration(&request(from, to, node_ipam)), Err(expected));
        }
    }
}
