//! Feature gates of Cluster API.

use serde::{Deserialize, Serialize};

/// The feature gates of Cluster API on which rules depend, with Cluster API's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct FeatureGates {
    /// `KubeadmBootstrapFormatIgnition`, off by default.
    pub ignition: bool,
    /// `MachineTaintPropagation`, off by default.
    pub machine_taints: bool,
}
