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

impl Context<'_> {
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
