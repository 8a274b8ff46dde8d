//! `spec.machineTemplate`, the template for Machines.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Text;

/// The template for Machines, `spec.machineTemplate`, with the fields of both shapes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineTemplate<'a> {
    /// Labels and annotations of Machines and their related objects.
    #[serde(borrow)]
    pub metadata: Option<ObjectMeta<'a>>,
    /// Only v1beta1 has this field; v1beta2 has `spec.infrastructureRef` instead.
    pub infrastructure_ref: Option<InfrastructureRef<'a>>,
    /// Only v1beta1 has this field; v1beta2 has `spec.taints` instead.
    pub taints: Option<Vec<Taint<'a>>>,
    /// The spec of Machines. Only v1beta2 has this field.
    pub spec: Option<MachineTemplateSpec<'a>>,
}

/// `spec.machineTemplate.spec` in v1beta2.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineTemplateSpec<'a> {
    #[serde(borrow)]
    pub infrastructure_ref: Option<InfrastructureRef<'a>>,
    /// Taints that Cluster API maintains on the Nodes of the Machines.
    pub taints: Option<Vec<Taint<'a>>>,
}

/// A reference to the template from which Cluster API clones infrastructure Machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InfrastructureRef<'a> {
    /// The API group and version of the template. Only v1beta1 has this field.
    #[serde(borrow)]
    pub api_version: Option<Text<'a>>,
    /// The API group of the template. Only v1beta2 has this field.
    pub api_group: Option<Text<'a>>,
    pub kind: Option<Text<'a>>,
    pub name: Option<Text<'a>>,
    /// The namespace of the template. Only v1beta1 has this field.
    pub namespace: Option<Text<'a>>,
}

impl InfrastructureRef<'_> {
    /// The API group of the template, in either API version.
    pub fn group(&self) -> Option<&str> {
        let version = self.api_version.as_deref();
        self.api_group.as_deref().or_else(|| version?.split('/').next())
    }

    /// Whether both references name the same template. Their API versions may differ, because the API server converts
    /// objects.
    pub fn is_same(&self, other: &Self) -> bool {
        self.group() == other.group() && self.kind == other.kind && self.name == other.name
    }
}

/// The labels and annotations of objects that Cluster API creates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMeta<'a> {
    /// The labels. A null value means empty.
    #[serde(borrow)]
    pub labels: Option<BTreeMap<Text<'a>, Option<Text<'a>>>>,
    /// The annotations. A null value means empty.
    pub annotations: Option<BTreeMap<Text<'a>, Option<Text<'a>>>>,
}

/// A taint of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Taint<'a> {
    /// The key of the taint, such as `example.com/name`.
    #[serde(borrow)]
    pub key: Option<Text<'a>>,
    /// The effect of the taint, such as `NoSchedule`.
    pub effect: Option<Text<'a>>,
}
