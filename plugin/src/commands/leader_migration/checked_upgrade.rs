//! What `leader-migration check` found out about an upgrade.

use kcp_control_plane::leader_migration::problem::{MigrationProblem, problems};
use kcp_rules::leader_migration::{Component, ControllerManagerChange, Lock, pair::Runner};
use kcp_rules::topics::controller_managers::Unknown;

/// An upgrade of a control plane.
pub(crate) struct CheckedUpgrade {
    /// The control plane. Empty if its manifest has no name.
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// The desired number of Machines; `None` if the manifest does not set it.
    pub(crate) replicas: Option<i64>,
    pub(crate) change: ControllerManagerChange,
    /// Why it is unknown whether a static Pod in `files` is a cloud-controller-manager.
    pub(crate) unknown_clouds: Vec<Unknown>,
}

impl CheckedUpgrade {
    pub(crate) fn has_problem(&self) -> bool {
        self.problems().iter().any(|problem| problem.is_harmful)
    }

    /// Every problem with its fix, the most severe first.
    pub(crate) fn problems(&self) -> Vec<MigrationProblem> {
        problems(&self.change, &self.unknown_clouds)
    }

    /// Whether it is simpler to stop the old controller managers before the new ones start.
    pub(crate) fn recommends_stop_then_start(&self) -> bool {
        let moves = self.change.rows().iter().any(|row| {
            let owner = |owners: &[Runner]| owners.first().map(|owner| owner.component);
            owner(&row.runners_before) == Some(Component::Kube)
                && owner(&row.runners_after) == Some(Component::Cloud)
        });
        moves && self.replicas == Some(1)
    }
}

/// The name of a Lease, with its namespace unless that is `kube-system`.
pub(super) fn lease_name(lock: &Lock) -> String {
    match lock.namespace.as_str() {
        "kube-system" => lock.name.clone(),
        namespace => format!("{namespace}/{}", lock.name),
    }
}
