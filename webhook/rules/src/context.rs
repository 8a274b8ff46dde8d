//! The context of a change: the writer, the time and the cluster.

use jiff::Timestamp;

use crate::{
    action::Action, api::control_plane::Shape, feature_gates::FeatureGates, trusted_users::TrustedUsers,
    view::View,
};

/// The field manager of Cluster API's topology controller, which writes a whole control plane at once.
pub const TOPOLOGY_MANAGER: &str = "capi-topology";

/// What the judgement of a topology knows besides the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfTopology {
    /// Whether the kubeadm configuration of the change is the one that the control plane gets. It may be another one in three
    /// cases: the write changes the class, patches of the class may change the template, or nothing can be read.
    pub knows_configuration: bool,
    /// Whether the Cluster is created paused, as when `clusterctl move` copies it.
    pub is_copy: bool,
    /// The shape in which the topology controller writes the control plane, which is the one in which the `ClusterClass` refers to
    /// the template. `None` if it is unknown.
    pub written_shape: Option<Shape>,
    /// Whether the Cluster has the annotation that overrides rules. The annotation has no effect on a Cluster, because the
    /// topology controller does not copy it to the control plane.
    pub has_override: bool,
}

/// The context of a change. Every part may be unknown: `lint` does not know the writer, and a webhook without API
/// access does not know other objects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'c> {
    /// The name of the user that the API server authenticated; `None` if it is unknown.
    pub writer: Option<&'c str>,
    /// The field manager of the write. Any client can claim any name, so no denial may depend on it.
    pub field_manager: Option<&'c str>,
    /// The current time; `None` if it is unknown.
    pub now: Option<Timestamp>,
    /// The other objects that rules read; `None` if none can be read.
    pub view: Option<&'c View>,
    /// The feature gates of Cluster API. [`crate::judge`] sets them from the configuration.
    pub feature_gates: FeatureGates,
    /// Whether the feature gates are unknown, as in `lint` without a configuration.
    pub are_gates_unknown: bool,
    /// The users whose writes rules exempt. [`crate::judge`] sets them from the configuration.
    pub trusted_users: Option<&'c TrustedUsers>,
    /// Whether overrides need a permission. [`crate::judge`] sets it from the configuration.
    pub authorizes_overrides: bool,
    /// Whether a cluster already stores the object, so that nobody writes it now.
    pub is_stored: bool,
    /// What is known about the topology that asks for the change of a control plane; `None` if the control plane itself is
    /// written.
    pub topology: Option<OfTopology>,
}

impl Context<'_> {
    /// Whether the writer is one of Cluster API's core controllers.
    pub(crate) fn is_written_by_cluster_api(&self) -> bool {
        self.trusted_users
            .is_some_and(|users| self.is_one_of(&users.cluster_api))
    }

    /// Whether the writer is one of Hive's controllers.
    pub(crate) fn is_written_by_hive(&self) -> bool {
        self.trusted_users
            .is_some_and(|users| self.is_one_of(&users.hive))
    }

    /// Whether the validating webhook evaluates the change, and can read other objects. `lint` and the mutating webhook only
    /// predict the decision of the validating webhook.
    pub(crate) fn is_decision(&self) -> bool {
        self.writer.is_some() && self.view.is_some()
    }

    /// Whether the writer claims to be Cluster API's topology controller, but is not one of the trusted users.
    pub(crate) fn is_untrusted_topology_controller(&self) -> bool {
        self.field_manager == Some(TOPOLOGY_MANAGER) && !self.is_written_by_cluster_api()
    }

    /// Whether Cluster API's feature gate for Ignition is on, or unknown.
    pub(crate) fn may_have_ignition(&self) -> bool {
        self.feature_gates.ignition || self.are_gates_unknown
    }

    /// The severest action on a problem that depends on the configuration of kubeadm.
    pub(crate) fn of_configuration(&self) -> Action {
        match self.topology {
            Some(topology) if !topology.knows_configuration => Action::Warn,
            _ => Action::Deny,
        }
    }

    fn is_one_of(&self, users: &[String]) -> bool {
        self.writer
            .is_some_and(|writer| users.iter().any(|user| user == writer))
    }

    /// A context in which nothing is known.
    pub const UNKNOWN: Context<'static> = Context {
        writer: None,
        field_manager: None,
        now: None,
        view: None,
        feature_gates: FeatureGates {
            ignition: false,
            machine_taints: false,
        },
        are_gates_unknown: false,
        trusted_users: None,
        authorizes_overrides: false,
        is_stored: false,
        topology: None,
    };
}
