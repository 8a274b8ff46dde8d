//! What surrounds a change: who writes, when, and the cluster it is written to.

use jiff::Timestamp;

use crate::{feature_gates::FeatureGates, view::View};

/// What surrounds a change. All of it may be unknown: `lint` knows no writer, a server without API access no cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'c> {
    /// The user that the API server authenticated.
    pub writer: Option<&'c str>,
    /// The field manager of the write.
    pub field_manager: Option<&'c str>,
    /// When the change is judged.
    pub now: Option<Timestamp>,
    /// The other objects that rules look at.
    pub view: Option<&'c View>,
    /// What Cluster API is allowed to do in the cluster: [`crate::judge`] takes it from its configuration.
    pub feature_gates: FeatureGates,
}

/// The field manager of Cluster API's topology controller, which writes a whole control plane at once.
pub(crate) const TOPOLOGY_MANAGER: &str = "capi-topology";

impl Context<'_> {
    /// Whether Cluster API's topology controller writes, as far as field managers tell.
    pub(crate) fn is_topology_controller(&self) -> bool {
        self.field_manager == Some(TOPOLOGY_MANAGER)
    }

    /// Whether Hive's controllers write: their service account, in whichever namespace Hive was put.
    pub(crate) fn is_hive(&self) -> bool {
        let account = self
            .writer
            .and_then(|writer| writer.strip_prefix("system:serviceaccount:"));
        account.is_some_and(|account| account.ends_with(":hive-controllers"))
    }

    /// Nothing is known.
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
