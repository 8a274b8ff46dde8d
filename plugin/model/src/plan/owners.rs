//! Finds the Machines whose owners stop the controller.
//!
//! The conditions are those of `initControlPlaneScope` and `adoptMachines` in Cluster API v1.14. They do not apply before the
//! Cluster's infrastructure is ready, or while the control plane is being deleted. The controller adopts every control plane
//! Machine of the Cluster that has no controller, and does nothing else until it can.

use kcp_api::{Machine, Object as _, kind::KUBEADM_CONFIG, machine::Bootstrap};
use kcp_rules::syntax::parse_version;

use crate::{problem::Problem, snapshot::Snapshot};

pub fn blockers(observed: &Snapshot) -> Vec<Problem> {
    let control_plane = &observed.control_plane;
    if control_plane.is_deleting() || !observed.is_infrastructure_ready() || !observed.has_endpoint() {
        return Vec::new();
    }
    let others = observed
        .machines_of_other_owners
        .iter()
        .map(Problem::mixed_ownership);
    let unadoptable = observed
        .unowned_machines()
        .filter_map(|machine| cannot_adopt(observed, machine));
    others.chain(unadoptable).collect()
}

/// Returns the blocker if the controller cannot adopt the Machine.
pub fn cannot_adopt(observed: &Snapshot, machine: &Machine) -> Option<Problem> {
    // If no Machine has a `KubeadmConfig`, the `KubeadmConfigs` were not read, as for a list of control planes.
    let is_config = |machine: &Machine| matches!(machine.bootstrap, Bootstrap::Config(_));
    let lacks_config =
        matches!(machine.bootstrap, Bootstrap::Missing) && observed.machines.iter().any(is_config);
    Some(Problem::CannotAdopt {
        machine: machine.name().to_owned(),
        why: adoption_obstacle(machine, lacks_config, observed.control_plane.spec.version())?,
    })
}

fn adoption_obstacle(machine: &Machine, lacks_config: bool, version: &str) -> Option<String> {
    let config = machine.spec.bootstrap_config_ref.as_ref();
    let Some(config) = config.filter(|config| !config.name.is_empty()) else {
        return Some("spec.bootstrap.configRef is not set".to_owned());
    };
    if config.kind != KUBEADM_CONFIG.kind {
        return Some(format!(
            "spec.bootstrap.configRef refers to {} {}, not to a KubeadmConfig",
            config.kind, config.name
        ));
    }
    // Cluster API adopts a Machine without a version.
    if let Some(own) = machine.spec.version.as_deref().filter(|own| !own.is_empty())
        && !is_adoptable_version(own, version)
    {
        return Some(format!(
            "its version {own} is more than one minor version away from {version}, the version of the control plane"
        ));
    }
    lacks_config.then(|| format!("KubeadmConfig {} does not exist", config.name))
}

/// Whether the controller adopts a Machine with this version. A version that cannot be parsed counts as adoptable,
/// because Cluster API's webhooks reject it.
fn is_adoptable_version(machine: &str, control_plane: &str) -> bool {
    let (Ok(machine), Ok(control_plane)) = (parse_version(machine), parse_version(control_plane)) else {
        return true;
    };
    machine.major == control_plane.major && machine.minor.abs_diff(control_plane.minor) <= 1
}

#[cfg(test)]
mod tests {
    use kcp_api::{Machine, Reference, machine::Bootstrap, metadata::Time};

    use super::{blockers, cannot_adopt};
    use crate::{
        problem::Problem,
        snapshot::Snapshot,
        testing::{
            objects::minutes_ago,
            plan::{machine, observed},
        },
    };

    /// A Machine without an owner that the controller can adopt.
    fn unowned() -> Machine {
        let mut machine = machine("m3", "c", 3);
        machine.metadata.owner_references = None;
        machine.spec.bootstrap_config_ref = Some(config("KubeadmConfig", "m3"));
        machine
    }

    fn config(kind: &str, name: &str) -> Reference {
        Reference {
            group: "bootstrap.cluster.x-k8s.io".to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_machine_is_adopted_with_a_kubeadm_config_and_a_version_at_most_one_minor_away() {
        type Case = (&'static str, fn(&mut Machine), Option<&'static str>);
        let cases: &[Case] = &[
            ("as_it_is", |_| {}, None),
            (
                "no_reference",
                |machine| machine.spec.bootstrap_config_ref = None,
                Some("spec.bootstrap.configRef is not set"),
            ),
            (
                "another_kind",
                |machine| machine.spec.bootstrap_config_ref = Some(config("EKSConfig", "m3")),
                Some("spec.bootstrap.configRef refers to EKSConfig m3, not to a KubeadmConfig"),
            ),
            (
                "no_config",
                |machine| machine.bootstrap = Bootstrap::Missing,
                Some("KubeadmConfig m3 does not exist"),
            ),
            ("no_version", |machine| machine.spec.version = None, None),
            (
                "one_minor_older",
                |machine| machine.spec.version = Some("v1.33.9".to_owned()),
                None,
            ),
            (
                "one_minor_newer",
                |machine| machine.spec.version = Some("v1.35.0".to_owned()),
                None,
            ),
            (
                "two_minors_older",
                |machine| machine.spec.version = Some("v1.32.0".to_owned()),
                Some(
                    "its version v1.32.0 is more than one minor version away from v1.34.1, the version of the control \
                     plane",
                ),
            ),
        ];
        for (name, change, expected) in cases {
            let mut machine = unowned();
            change(&mut machine);
            let blocker = expected.map(|why| Problem::CannotAdopt {
                machine: "m3".to_owned(),
                why: why.to_owned(),
            });
            assert_eq!(cannot_adopt(&observed(), &machine), blocker, "{name}");
        }
    }

    #[test]
    fn only_owners_that_cannot_change_stop_the_controller() {
        type Case = (&'static str, fn(&mut Snapshot), bool);
        let cannot_adopt = || Problem::CannotAdopt {
            machine: "m3".to_owned(),
            why: "KubeadmConfig m3 does not exist".to_owned(),
        };
        let cases: &[Case] = &[
            ("cannot_be_adopted", |_| {}, true),
            (
                "is_adopted",
                |o| o.machines[2].bootstrap = unowned().bootstrap,
                false,
            ),
            (
                "the_control_plane_goes",
                |o| o.control_plane.metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                false,
            ),
            (
                "no_infrastructure_yet",
                |o| o.cluster_mut().status.infrastructure_provisioned = false,
                false,
            ),
            (
                "no_endpoint_yet",
                |o| o.cluster_mut().spec.control_plane_endpoint = None,
                false,
            ),
        ];
        for (name, change, is_stopped) in cases {
            let mut observed = observed();
            observed.machines[2] = Machine {
                bootstrap: Bootstrap::Missing,
                ..unowned()
            };
            change(&mut observed);
            let expected: Vec<Problem> = is_stopped.then(cannot_adopt).into_iter().collect();
            assert_eq!(blockers(&observed), expected, "{name}");
        }
    }
}
