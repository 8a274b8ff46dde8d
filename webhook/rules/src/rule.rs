//! The definition of a rule.

use serde::Serialize;

use crate::{
    action::Action,
    api::{
        Cluster, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, ControlPlaneSpec,
        KubeadmControlPlane, KubeadmControlPlaneTemplate,
    },
    cel::Cel,
    change::{Change, Operation},
    fault::Faults,
};

/// What a rule reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Only the new object.
    Object,
    /// The old object and the new one.
    Transition,
    /// Also other objects of the cluster.
    Cluster,
}

/// The function of a rule, by the kind that it checks.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// Checks `KubeadmControlPlane`s and their scale subresource.
    ControlPlane(fn(&Change<'_, KubeadmControlPlane<'_>>, &mut Faults)),
    /// Checks the fields that `KubeadmControlPlane`s and their templates have in common.
    ControlPlaneSpec(fn(&Change<'_, ControlPlaneSpec<'_>>, &mut Faults)),
    /// Checks `KubeadmControlPlaneTemplate`s.
    Template(fn(&Change<'_, KubeadmControlPlaneTemplate<'_>>, &mut Faults)),
    /// Checks Cluster API's `Cluster`s. Only `lint` does; the webhook does not review them.
    Cluster(fn(&Change<'_, Cluster<'_>>, &mut Faults)),
    /// Checks `ClusterPool`s.
    ClusterPool(fn(&Change<'_, ClusterPool<'_>>, &mut Faults)),
    /// Checks `ClusterDeploymentCustomization`s.
    Customization(fn(&Change<'_, ClusterDeploymentCustomization<'_>>, &mut Faults)),
    /// Checks `ClusterDeployment`s.
    ClusterDeployment(fn(&Change<'_, ClusterDeployment<'_>>, &mut Faults)),
}

impl Check {
    /// The kinds that it checks.
    pub const fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::ControlPlane(_) => &["KubeadmControlPlane"],
            Self::ControlPlaneSpec(_) => &["KubeadmControlPlane", "KubeadmControlPlaneTemplate"],
            Self::Template(_) => &["KubeadmControlPlaneTemplate"],
            Self::Cluster(_) => &["Cluster"],
            Self::ClusterPool(_) => &["ClusterPool"],
            Self::Customization(_) => &["ClusterDeploymentCustomization"],
            Self::ClusterDeployment(_) => &["ClusterDeployment"],
        }
    }
}

/// One admission rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// `<field>-<fault>` in kebab-case. Stable, because messages, metrics and configuration files contain it.
    pub id: &'static str,
    /// What the rule demands, in at most 80 characters.
    pub summary: &'static str,
    /// What goes wrong without the rule: one or two sentences, each with a period.
    pub why: &'static str,
    /// The operations to which it applies.
    pub operations: &'static [Operation],
    /// The default action on a finding.
    pub action: Action,
    /// Which objects it reads.
    pub scope: Scope,
    /// Whether the annotation [`crate::overrides::ANNOTATION`] can turn its denial into a warning.
    pub overridable: bool,
    /// The document that requires it, and the section.
    pub source: &'static str,
    /// The Rust function.
    pub check: Check,
    /// The CEL version, which the API server evaluates without the webhook.
    pub cel: Cel,
}

/// For rules about an object as such.
pub const ON_WRITE: &[Operation] = &[Operation::Create, Operation::Update];

/// For rules about fields that cannot change later, or that a controller sets later.
pub const ON_CREATE: &[Operation] = &[Operation::Create];

/// For rules about a transition, which need an old object.
pub const ON_UPDATE: &[Operation] = &[Operation::Update];

/// For rules about what a deletion takes away from other objects.
pub const ON_DELETE: &[Operation] = &[Operation::Delete];
