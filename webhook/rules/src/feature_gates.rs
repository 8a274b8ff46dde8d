//! What Cluster API is allowed to do in the cluster.

use serde::{Deserialize, Serialize};

/// Feature gates of Cluster API that a rule depends on, with Cluster API's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct FeatureGates {
    /// `KubeadmBootstrapFormatIgnition`, off by default.
    pub ignition: bool,
    /// `MachineTaintPropagation`, off by default.
    pub machine_taints: bool,
}
