//! The context of a change: the writer, the time and the cluster.

use jiff::Timestamp;

use crate::{feature_gates::FeatureGates, view::View};

/// The context of a change. Every part may be unknown: `lint` knows no writer, and a webhook without API access knows
/// no other objects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'c> {
    /// The user that the API server authenticated.
    pub writer: Option<&'c str>,
    /// The field manager of the write.
    pub field_manager: Option<&'c str>,
    /// The current time.
    pub now: Option<Timestamp>,
    /// The other objects that rules read.
    pub view: Option<&'c View>,
    /// The feature gates of Cluster API. [`crate::judge`] sets them from the configuration.
    pub feature_gates: FeatureGates,
}

/// The field manager of Cluster API's topology controller, which writes a whole control plane at once.
pub(crate) const TOPOLOGY_MANAGER: &str = "capi-topology";

impl Context<'_> {
    /// Whether the field manager is that of Cluster API's topology controller. Any client can claim that name.
    pub(crate) fn is_topology_controller(&self) -> bool {
        self.field_manager == Some(TOPOLOGY_MANAGER)
    }

    /// Whether the writer is the service account of Hive's controllers, in any namespace.
    pub(crate) fn is_hive(&self) -> bool {
        let account = self
            .writer
            .and_then(|writer| writer.strip_prefix("system:serviceaccount:"));
        account.is_some_and(|account| account.ends_with(":hive-controllers"))
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
    };
}
