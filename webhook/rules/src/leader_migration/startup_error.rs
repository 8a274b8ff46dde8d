//! Why a controller manager exits at startup.

use std::fmt;

use semver::Version;

use super::{Component, ConfigurationProblem, Flags, cloud_provider, flags::BOOLEAN};
use crate::components::{self, Answer, controller_name};

/// The first minor version that does not know the feature gate `ControllerManagerLeaderMigration`.
pub const GATE_UNKNOWN_SINCE: u64 = 27;

/// The first minor version whose kube-controller-manager does not know `--concurrent-service-syncs`.
pub const SERVICE_SYNCS_UNKNOWN_SINCE: u64 = 37;

/// Why a controller manager exits at startup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartupError {
    /// Leader migration is on. kube-controller-manager 1.36 and later versions then exit after taking both
    /// locks.
    MigrationUnsupported,
    /// Leader migration is on without a service account key. kube-controller-manager 1.35 and later versions
    /// then crash with a segmentation violation.
    NoServiceAccountKey,
    /// The value of a boolean flag is not a boolean.
    NotABoolean(&'static str),
    /// The feature gate `ControllerManagerLeaderMigration` is set, which versions 1.27 and later do not know.
    FeatureGate,
    /// The feature gate `DisableCloudProviders` is false. Kubernetes 1.31 locks it, and later versions do not
    /// know it.
    LockedGate,
    /// A flag that the version no longer has.
    UnknownFlag(&'static str),
    /// `--controllers` names a controller that the version does not know. Messages show the name only if another version has
    /// a controller of this name, because any other text may be secret.
    UnknownController(String),
    /// `--leader-elect-resource-lock` is not `leases`.
    ResourceLock,
    /// The provider in `--cloud-provider` is not available. Contains the cause.
    CloudProvider(String),
    /// The configuration file does not exist.
    NoFile,
    /// The configuration is invalid.
    Configuration(Vec<ConfigurationProblem>),
}

impl fmt::Display for StartupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MigrationUnsupported => f.write_str(
                "leader migration is enabled, which makes versions 1.36 and later fail with: informer name \
                 \"kube-controller-manager\" is already registered",
            ),
            Self::NoServiceAccountKey => f.write_str(
                "versions 1.35 and later crash with a segmentation violation if leader migration is enabled \
                 and --service-account-private-key-file is not set",
            ),
            Self::NotABoolean(flag) => write!(f, "the value of --{flag} is not a boolean"),
            Self::FeatureGate => f.write_str(
                "versions 1.27 and later do not know the feature gate ControllerManagerLeaderMigration",
            ),
            Self::LockedGate => f.write_str(
                "the feature gate DisableCloudProviders is set to false, and versions 1.31 and later do \
                    not start with that setting",
            ),
            Self::UnknownFlag(flag) => write!(f, "this version does not know --{flag}"),
            Self::UnknownController(name) => {
                let name = controller_name(name).unwrap_or("a name");
                write!(
                    f,
                    "{name} in --controllers is not in the list of known controllers"
                )
            }
            Self::ResourceLock => f.write_str("--leader-elect-resource-lock is not leases"),
            Self::CloudProvider(cause) => f.write_str(cause),
            Self::NoFile => f.write_str("the file that --leader-migration-config names does not exist"),
            Self::Configuration(problems) => {
                f.write_str("the leader migration configuration is invalid: ")?;
                for (index, problem) in problems.iter().enumerate() {
                    write!(f, "{}{problem}", if index > 0 { ", " } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

impl StartupError {
    /// What to change.
    pub fn fix(&self) -> String {
        match self {
            Self::MigrationUnsupported => {
                "remove --enable-leader-migration and --leader-migration-config from kube-controller-manager in the \
                 same update that changes spec.version"
                    .to_owned()
            }
            Self::NoServiceAccountKey => "set --service-account-private-key-file".to_owned(),
            Self::NotABoolean(flag) => format!("set --{flag} to true or false"),
            Self::FeatureGate => "remove ControllerManagerLeaderMigration from --feature-gates".to_owned(),
            Self::LockedGate => "remove DisableCloudProviders from --feature-gates".to_owned(),
            Self::UnknownFlag(flag) => format!("remove --{flag}"),
            Self::UnknownController(name) => match controller_name(name) {
                Some(name) => format!("remove {name} from --controllers"),
                None => "in --controllers, correct or remove the names that are not names of controllers".to_owned(),
            },
            Self::ResourceLock => "remove --leader-elect-resource-lock".to_owned(),
            Self::CloudProvider(_) => {
                "set --cloud-provider=external, or remove the flag".to_owned()
            }
            Self::NoFile => "add the file, and mount it into the Pod".to_owned(),
            Self::Configuration(_) => "correct the configuration file".to_owned(),
        }
    }
}

/// Finds the flags that make a controller manager exit at startup. Does not check the configuration file.
pub fn errors_of_flags(component: Component, minor: u64, flags: &Flags) -> Vec<StartupError> {
    let mut startup_errors: Vec<StartupError> = BOOLEAN
        .into_iter()
        .filter(|flag| flags.boolean(flag, false).is_err())
        .map(StartupError::NotABoolean)
        .collect();
    let has_gate = flags
        .feature_gates()
        .any(|gate| gate == "ControllerManagerLeaderMigration");
    if has_gate && minor >= GATE_UNKNOWN_SINCE {
        startup_errors.push(StartupError::FeatureGate);
    }
    let elects_leader = flags.boolean("leader-elect", true) == Ok(true);
    let lock = flags.get("leader-elect-resource-lock").unwrap_or("leases");
    if elects_leader && lock != "leases" {
        startup_errors.push(StartupError::ResourceLock);
    }
    if component == Component::Kube {
        kube(minor, flags, &mut startup_errors);
    }
    startup_errors
}

fn kube(minor: u64, flags: &Flags, startup_errors: &mut Vec<StartupError>) {
    let is_migrating = flags.is_leader_migration_enabled();
    if is_migrating && minor >= 36 {
        startup_errors.push(StartupError::MigrationUnsupported);
    } else if is_migrating && minor == 35 && flags.text("service-account-private-key-file").is_none() {
        startup_errors.push(StartupError::NoServiceAccountKey);
    }
    if minor >= SERVICE_SYNCS_UNKNOWN_SINCE && flags.get("concurrent-service-syncs").is_some() {
        startup_errors.push(StartupError::UnknownFlag("concurrent-service-syncs"));
    }
    let unknown = flags.list("controllers").filter_map(|item| {
        let name = item.strip_prefix('-').unwrap_or(item);
        let answer = components::controller(name, &Version::new(1, minor, 0));
        let is_unknown = item != "*" && matches!(answer, Answer::Unknown(_));
        is_unknown.then(|| StartupError::UnknownController(name.to_owned()))
    });
    startup_errors.extend(unknown);
    let gates: Vec<&str> = flags.list("feature-gates").collect();
    let is_off = |gate: &&str| gate.trim() == "DisableCloudProviders=false";
    if minor > cloud_provider::LAST_IN_TREE && gates.iter().any(is_off) {
        startup_errors.push(StartupError::LockedGate);
    }
    let provider = flags.get("cloud-provider").unwrap_or_default();
    if let Some(cause) = cloud_provider::startup_error(provider, &gates.join(","), Some(minor)) {
        startup_errors.push(StartupError::CloudProvider(cause));
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Manager, *};

    /// Each row was run on a real binary or is from its source: facts 1, 2, 3, 7 and 9, and table 1.4 of the notes on
    /// KEP-2436.
    #[test]
    fn controller_managers_exit_at_start() {
        use Component::{Cloud, Kube};
        const MIGRATION: &str = "--enable-leader-migration --service-account-private-key-file=k";
        let unknown = |name: &str| StartupError::UnknownController(name.to_owned());
        let no_clouds = || {
            StartupError::CloudProvider(
                "Kubernetes 1.31 and later have no in-tree cloud providers".to_owned(),
            )
        };
        for (component, minor, command, expected) in [
            (Kube, 35, MIGRATION, vec![]),
            (Kube, 36, MIGRATION, vec![StartupError::MigrationUnsupported]),
            (Kube, 37, MIGRATION, vec![StartupError::MigrationUnsupported]),
            (Kube, 36, "--enable-leader-migration --leader-elect=false", vec![]),
            (Cloud, 37, MIGRATION, vec![]),
            (Kube, 34, "--enable-leader-migration", vec![]),
            (
                Kube,
                35,
                "--enable-leader-migration",
                vec![StartupError::NoServiceAccountKey],
            ),
            (Kube, 36, "--controllers=*,-route,-service-lb-controller", vec![]),
            (
                Kube,
                37,
                "--controllers=*,-route,-service-lb-controller,-nodeipam",
                vec![unknown("route"), unknown("service-lb-controller")],
            ),
            (Kube, 35, "--controllers=*,-routes", vec![unknown("routes")]),
            // Only one dash is removed, an empty name is not ignored, and an empty list has no names.
            (Kube, 35, "--controllers=*,--route", vec![unknown("-route")]),
            (Kube, 35, "--controllers=*,,-route", vec![unknown("")]),
            (Kube, 35, "--controllers=", vec![]),
            (Cloud, 37, "--controllers=*,-route", vec![]),
            (
                Kube,
                27,
                "--feature-gates=A=true,ControllerManagerLeaderMigration=true",
                vec![StartupError::FeatureGate],
            ),
            (
                Kube,
                26,
                "--feature-gates=ControllerManagerLeaderMigration=true",
                vec![],
            ),
            (
                Cloud,
                30,
                "--feature-gates=ControllerManagerLeaderMigration=false",
                vec![StartupError::FeatureGate],
            ),
            (
                Kube,
                31,
                "--feature-gates=A=true,DisableCloudProviders=false",
                vec![StartupError::LockedGate],
            ),
            (Kube, 30, "--feature-gates=DisableCloudProviders=false", vec![]),
            (
                Kube,
                35,
                "--leader-elect-resource-lock=endpoints",
                vec![StartupError::ResourceLock],
            ),
            (
                Kube,
                35,
                "--leader-elect-resource-lock=endpoints --leader-elect=false",
                vec![],
            ),
            (Kube, 32, "--cloud-provider=gce", vec![no_clouds()]),
            (Kube, 32, "--cloud-provider=external", vec![]),
            (Kube, 36, "--concurrent-service-syncs=2", vec![]),
            (
                Kube,
                37,
                "--concurrent-service-syncs=2",
                vec![StartupError::UnknownFlag("concurrent-service-syncs")],
            ),
            (
                Kube,
                35,
                "--leader-elect=yes",
                vec![StartupError::NotABoolean("leader-elect")],
            ),
            (
                Cloud,
                36,
                "--enable-leader-migration --leader-migration-config=/missing",
                vec![StartupError::NoFile],
            ),
            // Without enable, nothing reads the file.
            (Cloud, 36, "--leader-migration-config=/missing", vec![]),
        ] {
            let flags = Flags::from_command(command.split(' '));
            assert_eq!(
                Manager::new(component, minor, flags, None).startup_errors,
                expected,
                "{component} 1.{minor} {command}"
            );
        }
    }

    #[test]
    fn a_controller_manager_exits_with_an_invalid_configuration_and_without_leader_election_too() {
        for (election, minor, text, expected) in [
            ("true", 35, "{}", true),
            ("false", 35, "{}", true),
            (
                "true",
                31,
                "{apiVersion: controllermanager.config.k8s.io/v1, kind: LeaderMigrationConfiguration, leaderName: a, b: c}",
                false,
            ),
            (
                "true",
                32,
                "{apiVersion: controllermanager.config.k8s.io/v1, kind: LeaderMigrationConfiguration, leaderName: a, b: c}",
                true,
            ),
            (
                "true",
                35,
                "{apiVersion: controllermanager.config.k8s.io/v1, kind: LeaderMigrationConfiguration, leaderName: Bad_Name}",
                false,
            ),
        ] {
            let flags = Flags::from_pairs([
                ("enable-leader-migration", "true"),
                ("leader-migration-config", "/f"),
                ("leader-elect", election),
                ("service-account-private-key-file", "/k"),
            ]);
            let startup_errors = Manager::new(Component::Kube, minor, flags, Some(text)).startup_errors;
            assert_eq!(
                matches!(startup_errors.as_slice(), [StartupError::Configuration(_)]),
                expected,
                "{text} at 1.{minor}: {startup_errors:?}"
            );
            assert_eq!(
                startup_errors.is_empty(),
                !expected,
                "{text} at 1.{minor}: {startup_errors:?}"
            );
        }
    }
}
