//! `spec.machineTemplate`, the template for Machines.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Text;

/// `spec.machineTemplate` with the fields of both shapes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineTemplate<'a> {
    /// Labels and annotations of Machines and their related objects.
    #[serde(borrow)]
    pub metadata: Option<ObjectMeta<'a>>,
    /// v1beta1 only; v1beta2 has `spec.infrastructureRef` instead.
    pub infrastructure_ref: Option<InfrastructureRef<'a>>,
    /// v1beta1 only; v1beta2 has `spec.taints` instead.
    pub taints: Option<Vec<Taint<'a>>>,
    /// v1beta2: the spec of Machines.
    pub spec: Option<MachineTemplateSpec<'a>>,
}

/// `spec.machineTemplate.spec` in v1beta2.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineTemplateSpec<'a> {
    /// The template from which infrastructure Machines are cloned.
    #[serde(borrow)]
    pub infrastructure_ref: Option<InfrastructureRef<'a>>,
    /// Taints that Cluster API maintains on the Nodes of the Machines.
    pub taints: Option<Vec<Taint<'a>>>,
}

/// A reference to the template from which infrastructure Machines are cloned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InfrastructureRef<'a> {
    /// v1beta1: `group/version`.
    #[serde(borrow)]
    pub api_version: Option<Text<'a>>,
    /// v1beta2: only the group.
    pub api_group: Option<Text<'a>>,
    /// The kind of the template.
    pub kind: Option<Text<'a>>,
    /// The name of the template.
    pub name: Option<Text<'a>>,
    /// v1beta1: the namespace of the template.
    pub namespace: Option<Text<'a>>,
}

impl InfrastructureRef<'_> {
    /// The API group, in either API version.
    pub fn group(&self) -> Option<&str> {
        let version = self.api_version.as_deref();
        self.api_group.as_deref().or_else(|| version?.split('/').next())
    }

    /// Whether both refer to the same template. The API version is ignored, because the API server converts objects.
    pub fn is_same(&self, other: &Self) -> bool {
        self.group() == other.group() && self.kind == other.kind && self.name == other.name
    }
}

/// The labels and annotations of objects to create.
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
    /// The key, such as `example.com/name`.
    #[serde(borrow)]
    pub key: Option<Text<'a>>,
    /// The effect, such as `NoSchedule`.
    pub effect: Option<Text<'a>>,
}
