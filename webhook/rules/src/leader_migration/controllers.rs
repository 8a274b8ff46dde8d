//! The controllers that kube-controller-manager and cloud-controller-manager can both run.
//!
//! A minor version of 30 stands for Kubernetes 1.30.

use super::cloud_provider::LAST_IN_TREE;

/// A controller that can migrate.
#[derive(Debug, PartialEq, Eq)]
pub struct Controller {
    /// The name of the controller from 1.28 on (`k8s.io/cloud-provider/names`, `cmd/kube-controller-manager/names`).
    pub canonical: &'static str,
    /// The name of the controller up to 1.27. Later versions accept it in `--controllers` only.
    pub short: &'static str,
    /// The last minor version whose kube-controller-manager runs the controller; `None` if all versions do.
    pub last_in_kube_controller_manager: Option<u64>,
}

/// The last minor version with the in-tree cloud loops: 1.31 has no in-tree cloud provider
/// (`cmd/kube-controller-manager/app/cloudproviders.go`).
const LAST_CLOUD_LOOPS: Option<u64> = Some(LAST_IN_TREE);

/// Every controller that can migrate.
pub const CONTROLLERS: [Controller; 4] = [
    Controller {
        canonical: "node-route-controller",
        short: "route",
        last_in_kube_controller_manager: LAST_CLOUD_LOOPS,
    },
    Controller {
        canonical: "service-lb-controller",
        short: "service",
        last_in_kube_controller_manager: LAST_CLOUD_LOOPS,
    },
    Controller {
        canonical: "cloud-node-lifecycle-controller",
        short: "cloud-node-lifecycle",
        last_in_kube_controller_manager: LAST_CLOUD_LOOPS,
    },
    Controller {
        canonical: "node-ipam-controller",
        short: "nodeipam",
        last_in_kube_controller_manager: None,
    },
];

impl Controller {
    /// The controller with this current or earlier name; `None` if no controller that can migrate has the
    /// name.
    pub fn find(name: &str) -> Option<&'static Self> {
        CONTROLLERS
            .iter()
            .find(|controller| [controller.canonical, controller.short].contains(&name))
    }

    /// The name by which leader migration selects the controller at a minor version. Leader migration resolves no
    /// aliases (`k8s.io/controller-manager`, `pkg/leadermigration/migrator.go`).
    pub fn name_at(&self, minor: u64) -> &'static str {
        if minor >= 28 { self.canonical } else { self.short }
    }

    /// Whether kube-controller-manager of a minor version can run the controller.
    pub fn is_in_kube_controller_manager(&self, minor: u64) -> bool {
        self.last_in_kube_controller_manager
            .is_none_or(|last| minor <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_change_with_1_28() {
        let route = Controller::find("node-route-controller").unwrap();
        assert_eq!(Controller::find("route"), Some(route));
        assert_eq!(
            (route.name_at(27), route.name_at(28)),
            ("route", "node-route-controller")
        );
        assert_eq!(Controller::find("route-controller"), None);
    }

    #[test]
    fn cloud_loops_end_with_1_30() {
        for (name, minor, runs) in [
            ("service-lb-controller", 30, true),
            ("service-lb-controller", 31, false),
            ("node-ipam-controller", 37, true),
        ] {
            let controller = Controller::find(name).unwrap();
            assert_eq!(
                controller.is_in_kube_controller_manager(minor),
                runs,
                "{name} at 1.{minor}"
            );
        }
    }
}
