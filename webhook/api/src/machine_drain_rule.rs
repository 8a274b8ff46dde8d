//! Decodes `MachineDrainRule`, which is the same in v1beta1 and v1beta2 of Cluster API.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;

use crate::{decode::null_as_default, metadata};

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct MachineDrainRule {
    #[serde(deserialize_with = "metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: MachineDrainRuleSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MachineDrainRuleSpec {
    pub drain: MachineDrain,
    /// The Machines to which the rule applies. Empty for all.
    #[serde(deserialize_with = "null_as_default")]
    pub machines: Vec<MachineSelector>,
    /// The pods to which the rule applies. Empty for all.
    #[serde(deserialize_with = "null_as_default")]
    pub pods: Vec<PodSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MachineDrain {
    /// `Drain`, `Skip` or `WaitCompleted`.
    pub behavior: String,
}

/// An absent or empty selector matches every object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineSelector {
    pub selector: Option<LabelSelector>,
    pub cluster_selector: Option<LabelSelector>,
}

/// An absent or empty selector matches every object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSelector {
    pub selector: Option<LabelSelector>,
    pub namespace_selector: Option<LabelSelector>,
}
