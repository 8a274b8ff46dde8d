//! A controller manager: its version, flags and configuration, and what follows from them.

use super::{
    Component, ConfigurationProblem, Controller, Filter, Flags, LeaderMigrationConfiguration,
    cloud_provider::{LAST_IN_TREE, is_in_tree},
    startup_error::{self, StartupError},
};

/// A Lease for leader election.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lock {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
}

/// What a controller manager does with a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// The controller manager does not have the controller, or its flags disable the controller.
    Absent,
    /// The configuration assigns the controller to another component, so the controller manager does not
    /// start it.
    Unowned,
    /// The controller manager runs the controller while it holds the main lock and the migration lock.
    Migrated,
    /// The controller manager runs the controller while it holds the main lock.
    NonMigrated,
    /// The controller manager runs the controller if its cloud provider has it. Neither the flags nor
    /// [`NODE_IPAM_PROVIDERS`] show whether it does.
    Unknown,
}

/// Values of `--cloud-provider` whose cloud-controller-manager has Node IPAM. Kubernetes' library for
/// cloud-controller-managers does not contain Node IPAM; each provider decides whether to add it
/// (`kubernetes/cloud-provider-gcp`, `cmd/cloud-controller-manager/main.go`).
const NODE_IPAM_PROVIDERS: [&str; 1] = ["gce"];

/// A controller manager of one version, with its flags. Replicas with the same flags are one manager, because the main
/// lock lets only one of them run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    /// Which of the two controller managers this is.
    pub component: Component,
    /// The minor version of Kubernetes. For a cloud-controller-manager, the minor version of its Kubernetes
    /// libraries.
    pub minor: u64,
    /// The flags, including those that kubeadm sets by default.
    pub flags: Flags,
    /// The effective configuration. `None` if leader migration is off, or if the controller manager exits
    /// because of the configuration.
    pub configuration: Option<LeaderMigrationConfiguration>,
    /// Problems of the configuration despite which the controller manager starts.
    pub problems: Vec<ConfigurationProblem>,
    /// Why the controller manager exits at startup. Empty if it runs.
    pub startup_errors: Vec<StartupError>,
}

impl Manager {
    /// Returns a controller manager. `file` is the text of the file at [`Flags::configuration_path`]; `None`
    /// means that the file does not exist.
    pub fn new(component: Component, minor: u64, flags: Flags, file: Option<&str>) -> Self {
        let mut startup_errors = startup_error::errors_of_flags(component, minor, &flags);
        let (configuration, problems) = match (flags.configuration_path(), file) {
            (Some(_), None) => {
                startup_errors.push(StartupError::NoFile);
                (None, Vec::new())
            }
            (Some(_), Some(text)) => match LeaderMigrationConfiguration::parse_leniently(text, Some(minor)) {
                Ok((configuration, problems)) => (Some(configuration), problems),
                Err(problems) => {
                    startup_errors.push(StartupError::Configuration(problems));
                    (None, Vec::new())
                }
            },
            (None, _) => (Some(LeaderMigrationConfiguration::default_at(minor)), Vec::new()),
        };
        let is_enabled = flags.is_leader_migration_enabled();
        Self {
            component,
            minor,
            configuration: configuration.filter(|_| is_enabled),
            problems,
            startup_errors,
            flags,
        }
    }

    /// Whether the controller manager starts without an error.
    pub fn starts(&self) -> bool {
        self.startup_errors.is_empty()
    }

    /// Whether the controller manager runs controllers only while it holds a Lease.
    pub fn elects_leader(&self) -> bool {
        self.flags.boolean("leader-elect", true) != Ok(false)
    }

    /// The main lock.
    pub fn main_lock(&self) -> Lock {
        let name = self.flags.text("leader-elect-resource-name");
        self.lock(name.unwrap_or(self.component.name()))
    }

    /// The migration lock, if leader migration is on. It is in the namespace of the main lock.
    pub fn migration_lock(&self) -> Option<Lock> {
        Some(self.lock(&self.configuration.as_ref()?.leader_name))
    }

    /// Whether any Lease can have the name of the migration lock. If not, no controller manager ever holds it.
    pub fn can_hold_migration_lock(&self) -> bool {
        !self.problems.contains(&ConfigurationProblem::LeaderName)
    }

    fn lock(&self, name: &str) -> Lock {
        let namespace = self.flags.text("leader-elect-resource-namespace");
        Lock {
            namespace: namespace.unwrap_or("kube-system").to_owned(),
            name: name.to_owned(),
        }
    }

    /// What the controller manager does with a controller while it runs.
    pub fn assignment(&self, controller: &Controller) -> Assignment {
        match self.has(controller) {
            Some(false) => return Assignment::Absent,
            None => return Assignment::Unknown,
            Some(true) => {}
        }
        let Some(configuration) = &self.configuration else {
            return Assignment::NonMigrated;
        };
        match configuration.filter(self.component.name(), controller.name_at(self.minor)) {
            Filter::Migrated => Assignment::Migrated,
            Filter::Unowned => Assignment::Unowned,
            Filter::NonMigrated => Assignment::NonMigrated,
        }
    }

    /// Returns the same controller manager, under the assumption that its cloud provider has the controller
    /// (`is_there`) or does not have it.
    pub(super) fn with_assumed_controller(&self, controller: &Controller, is_there: bool) -> Self {
        let mut assumed = self.clone();
        let name = controller.name_at(self.minor);
        let item = if is_there {
            name.to_owned()
        } else {
            format!("-{name}")
        };
        assumed.flags = assumed.flags.with_controller(&item);
        assumed
    }

    /// Whether the controller manager has the controller and its flags enable the controller. `None` if this
    /// depends on the cloud provider.
    fn has(&self, controller: &Controller) -> Option<bool> {
        let is_set = |flag, default| self.flags.boolean(flag, default) == Ok(true);
        let has_cloud = match self.component {
            Component::Kube => {
                self.minor <= LAST_IN_TREE && is_in_tree(self.flags.get("cloud-provider").unwrap_or_default())
            }
            Component::Cloud => true,
        };
        let can_run = match controller.short {
            "nodeipam" => is_set("allocate-node-cidrs", false),
            // Only kube-controller-manager needs --allocate-node-cidrs for routes (`startNodeRouteController`).
            "route" => {
                let allocates = self.component == Component::Cloud || is_set("allocate-node-cidrs", false);
                has_cloud && allocates && is_set("configure-cloud-routes", true)
            }
            _ => has_cloud,
        };
        if !can_run || !self.enables(controller) {
            return Some(false);
        }
        let provider = self.flags.get("cloud-provider").unwrap_or_default();
        let is_certain = self.component == Component::Kube
            || controller.short != "nodeipam"
            || NODE_IPAM_PROVIDERS.contains(&provider)
            || self
                .flags
                .list("controllers")
                .any(|item| self.is_named(controller, item));
        is_certain.then_some(true)
    }

    /// Whether a name in `--controllers` selects the controller. From 1.28 on, aliases do so too.
    fn is_named(&self, controller: &Controller, name: &str) -> bool {
        name == controller.name_at(self.minor) || (self.minor >= 28 && name == controller.short)
    }

    /// Whether `--controllers` enables a controller: the first item that names it decides
    /// (`k8s.io/controller-manager`, `app/helper.go`).
    fn enables(&self, controller: &Controller) -> bool {
        let is_named = |name: &str| self.is_named(controller, name);
        if self.flags.get("controllers").is_none() {
            return true;
        }
        let mut has_star = false;
        for item in self.flags.list("controllers") {
            match item.strip_prefix('-') {
                _ if item == "*" => has_star = true,
                Some(name) if is_named(name) => return false,
                None if is_named(item) => return true,
                _ => {}
            }
        }
        has_star
    }
}

#[cfg(test)]
mod tests {
    use super::{super::CONTROLLERS, Assignment::*, *};

    const CONFIGURATION: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: m
controllerLeaders:
- {name: nodeipam, component: \"*\"}
- {name: node-ipam-controller, component: cloud-controller-manager}
";

    fn assignments(component: Component, minor: u64, command: &str) -> [Assignment; 4] {
        let flags = Flags::from_command(command.split(' '));
        let manager = Manager::new(component, minor, flags, Some(CONFIGURATION));
        CONTROLLERS
            .each_ref()
            .map(|controller| manager.assignment(controller))
    }

    /// In the order of `CONTROLLERS`: route, service, cloud-node-lifecycle, Node IPAM.
    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn flags_and_version_decide_which_controllers_run() {
        use Component::{Cloud, Kube};
        for (component, minor, command, expected) in [
            (Kube, 37, "", [Absent; 4]),
            (
                Kube,
                30,
                "--allocate-node-cidrs --cloud-provider=gce",
                [NonMigrated; 4],
            ),
            (
                Kube,
                30,
                "--allocate-node-cidrs --cloud-provider=external",
                [Absent, Absent, Absent, NonMigrated],
            ),
            (
                Kube,
                31,
                "--allocate-node-cidrs --cloud-provider=gce",
                [Absent, Absent, Absent, NonMigrated],
            ),
            (
                Kube,
                30,
                "--cloud-provider=gce",
                [Absent, NonMigrated, NonMigrated, Absent],
            ),
            (
                Kube,
                30,
                "--cloud-provider=gce --allocate-node-cidrs --configure-cloud-routes=false --controllers=*,-service,service",
                [Absent, Absent, NonMigrated, NonMigrated],
            ),
            (
                Kube,
                30,
                "--cloud-provider=gce --allocate-node-cidrs --controllers=node-ipam-controller,route",
                [NonMigrated, Absent, Absent, NonMigrated],
            ),
            (
                Kube,
                27,
                "--cloud-provider=gce --allocate-node-cidrs --controllers=nodeipam --enable-leader-migration",
                [Absent, Absent, Absent, NonMigrated],
            ),
            // By default, 1.27 migrates the cloud loops.
            (
                Kube,
                27,
                "--cloud-provider=gce --allocate-node-cidrs --enable-leader-migration",
                [Migrated, Migrated, Migrated, NonMigrated],
            ),
            // By default, 1.28 and later migrate one of them (fact 8).
            (
                Kube,
                30,
                "--cloud-provider=gce --allocate-node-cidrs --enable-leader-migration",
                [NonMigrated, NonMigrated, Migrated, NonMigrated],
            ),
            (
                Cloud,
                36,
                "--allocate-node-cidrs --enable-leader-migration --cloud-provider=gce",
                [NonMigrated, NonMigrated, Migrated, NonMigrated],
            ),
            // Node IPAM is not in Kubernetes' library: the provider or the flags must say that it is there.
            (
                Cloud,
                36,
                "--allocate-node-cidrs",
                [NonMigrated, NonMigrated, NonMigrated, Unknown],
            ),
            (
                Cloud,
                36,
                "--allocate-node-cidrs --controllers=* --cloud-provider=aws",
                [NonMigrated, NonMigrated, NonMigrated, Unknown],
            ),
            (
                Cloud,
                36,
                "--allocate-node-cidrs --controllers=*,nodeipam",
                [NonMigrated; 4],
            ),
            (
                Cloud,
                36,
                "--allocate-node-cidrs --controllers=*,-nodeipam",
                [NonMigrated, NonMigrated, NonMigrated, Absent],
            ),
            (
                Cloud,
                36,
                "--allocate-node-cidrs --controllers=service,route",
                [NonMigrated, NonMigrated, Absent, Absent],
            ),
            (
                Cloud,
                36,
                "--controllers=*,nodeipam",
                [NonMigrated, NonMigrated, NonMigrated, Absent],
            ),
            (
                Kube,
                35,
                "--allocate-node-cidrs --enable-leader-migration --leader-migration-config=f",
                [Absent, Absent, Absent, Unowned],
            ),
            (
                Kube,
                27,
                "--allocate-node-cidrs --enable-leader-migration --leader-migration-config=f",
                [Absent, Absent, Absent, Migrated],
            ),
            (
                Cloud,
                36,
                "--allocate-node-cidrs --enable-leader-migration --leader-migration-config=f --cloud-provider=gce",
                [NonMigrated, NonMigrated, NonMigrated, Migrated],
            ),
            (
                Cloud,
                36,
                "--allocate-node-cidrs --enable-leader-migration --leader-elect=false --cloud-provider=gce",
                [NonMigrated; 4],
            ),
            (
                Cloud,
                36,
                "--controllers=*,-node-route-controller,-cloud-node-lifecycle",
                [Absent, NonMigrated, Absent, Absent],
            ),
        ] {
            assert_eq!(
                assignments(component, minor, command),
                expected,
                "{component} 1.{minor} {command}"
            );
        }
    }

    #[test]
    fn flags_name_the_locks() {
        let manager = |command: &str| {
            Manager::new(
                Component::Cloud,
                36,
                Flags::from_command(command.split(' ')),
                Some(CONFIGURATION),
            )
        };
        let lock = |namespace: &str, name: &str| Lock {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let plain = manager("");
        assert_eq!(plain.main_lock(), lock("kube-system", "cloud-controller-manager"));
        assert_eq!(plain.migration_lock(), None);
        let named = manager(
            "--leader-elect-resource-name=x --leader-elect-resource-namespace=y --enable-leader-migration \
             --leader-migration-config=f",
        );
        assert_eq!(named.main_lock(), lock("y", "x"));
        assert_eq!(named.migration_lock(), Some(lock("y", "m")));
    }
}
