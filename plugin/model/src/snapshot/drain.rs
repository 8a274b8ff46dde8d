//! The objects that decide how Cluster API drains the nodes of control plane Machines.

use std::collections::BTreeMap;

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kcp_api::MachineDrainRule;

use crate::snapshot::Reading;

#[derive(Clone, Debug, PartialEq)]
pub struct DrainObjects {
    /// The pods of the control plane's nodes.
    pub pods: Vec<Pod>,
    /// The budgets of all namespaces.
    pub budgets: Vec<PodDisruptionBudget>,
    /// The labels of the namespaces, by name. Empty unless a `MachineDrainRule` selects namespaces.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The `MachineDrainRules` of the control plane's namespace.
    pub rules: Reading<Vec<MachineDrainRule>>,
}
