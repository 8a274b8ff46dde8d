//! Configuration files with which controller managers start or exit.

pub(super) const VALID: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: migration
controllerLeaders:
- {name: node-route-controller, component: \"*\"}
- {name: service-lb-controller, component: \"*\"}
- {name: cloud-node-lifecycle-controller, component: \"*\"}
- {name: node-ipam-controller, component: \"*\"}
";
pub(super) const TWO_DOCUMENTS: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: migration
controllerLeaders: []
---
unknown: document
";
pub(super) const NO_CONTROLLERS: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: migration
";
/// A sample of the KEP: only the beta versions have this field.
pub(super) const LOCK_IN_V1: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: migration
resourceLock: leases
";
/// Another sample of the KEP: an unquoted star is the start of an alias.
pub(super) const UNQUOTED_STAR: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: migration
controllerLeaders:
- {name: route, component: *}
";
pub(super) const NO_NAME: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
";
pub(super) const EMPTY_NAME: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: \"\"
";
pub(super) const BOOLEAN_NAME: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: yes
";
pub(super) const WRONG_CASE: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leadername: migration
";
pub(super) const DUPLICATE: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: first
leaderName: second
";
pub(super) const NO_LOCK_IN_BETA: &str = "apiVersion: controllermanager.config.k8s.io/v1beta1
kind: LeaderMigrationConfiguration
leaderName: migration
";
pub(super) const ENDPOINTS: &str = "apiVersion: controllermanager.config.k8s.io/v1alpha1
kind: LeaderMigrationConfiguration
leaderName: migration
resourceLock: endpoints
";
pub(super) const LEASES_IN_BETA: &str = "apiVersion: controllermanager.config.k8s.io/v1beta1
kind: LeaderMigrationConfiguration
leaderName: migration
resourceLock: leases
";
pub(super) const INCOMPLETE: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: migration
controllerLeaders:
- {name: route}
- {component: \"*\"}
";
pub(super) const OTHER_KIND: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
";
/// A name that no Lease can have.
pub(super) const INVALID_LEASE: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: Bad_Name
controllerLeaders:
- {name: node-route-controller, component: \"*\"}
- {name: service-lb-controller, component: \"*\"}
- {name: cloud-node-lifecycle-controller, component: \"*\"}
- {name: node-ipam-controller, component: \"*\"}
";
pub(super) const MAIN_LOCK_OF_KUBE: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: kube-controller-manager
";
