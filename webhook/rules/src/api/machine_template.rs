//! `spec.machineTemplate`: what each Machine is made from.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Text;

/// `spec.machineTemplate`. Fields of both shapes stand side by side.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineTemplate<'a> {
    /// Put on Machines and what is made with them.
    #[serde(borrow)]
    pub metadata: Option<ObjectMeta<'a>>,
    /// v1beta1.
    pub infrastructure_ref: Option<InfrastructureRef<'a>>,
    /// v1beta1.
    pub taints: Option<Vec<Taint<'a>>>,
    /// v1beta2.
    pub spec: Option<MachineTemplateSpec<'a>>,
}

/// `spec.machineTemplate.spec` of v1beta2.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineTemplateSpec<'a> {
    /// The template that infrastructure Machines are cloned from.
    #[serde(borrow)]
    pub infrastructure_ref: Option<InfrastructureRef<'a>>,
    /// Kept on the Machines' Nodes.
    pub taints: Option<Vec<Taint<'a>>>,
}

/// The template that infrastructure Machines are cloned from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InfrastructureRef<'a> {
    /// v1beta1: `group/version`.
    #[serde(borrow)]
    pub api_version: Option<Text<'a>>,
    /// v1beta2: the group alone.
    pub api_group: Option<Text<'a>>,
    /// Its kind.
    pub kind: Option<Text<'a>>,
    /// Its name.
    pub name: Option<Text<'a>>,
}

impl InfrastructureRef<'_> {
    /// The API group: as good as a version of it, which is converted on reading.
    pub fn group(&self) -> Option<&str> {
        let version = self.api_version.as_deref();
        self.api_group.as_deref().or_else(|| version?.split('/').next())
    }

    /// Whether both name the same template: Machines made of one are none the worse for the other.
    pub fn is_same(&self, other: &Self) -> bool {
        self.group() == other.group() && self.kind == other.kind && self.name == other.name
    }
}

/// Labels and annotations of objects to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMeta<'a> {
    /// Labels; null counts as empty.
    #[serde(borrow)]
    pub labels: Option<BTreeMap<Text<'a>, Option<Text<'a>>>>,
    /// Annotations; null counts as empty.
    pub annotations: Option<BTreeMap<Text<'a>, Option<Text<'a>>>>,
}

/// A taint of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Taint<'a> {
    /// Its key.
    #[serde(borrow)]
    pub key: Option<Text<'a>>,
    /// Its effect.
    pub effect: Option<Text<'a>>,
}
