//! What a rule is.

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

/// What a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The new object alone.
    Object,
    /// The step from the old object to the new one.
    Transition,
    /// Other objects of the cluster too.
    Cluster,
}

/// The function of a rule, by the kind that it judges.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// Judges `KubeadmControlPlane`s and their scale subresource.
    ControlPlane(fn(&Change<'_, KubeadmControlPlane<'_>>, &mut Faults)),
    /// Judges what `KubeadmControlPlane`s and their templates have in common.
    ControlPlaneSpec(fn(&Change<'_, ControlPlaneSpec<'_>>, &mut Faults)),
    /// Judges `KubeadmControlPlaneTemplate`s.
    Template(fn(&Change<'_, KubeadmControlPlaneTemplate<'_>>, &mut Faults)),
    /// Judges Cluster API's `Cluster`s; `lint` alone does.
    Cluster(fn(&Change<'_, Cluster<'_>>, &mut Faults)),
    /// Judges `ClusterPool`s.
    ClusterPool(fn(&Change<'_, ClusterPool<'_>>, &mut Faults)),
    /// Judges `ClusterDeploymentCustomization`s.
    Customization(fn(&Change<'_, ClusterDeploymentCustomization<'_>>, &mut Faults)),
    /// Judges `ClusterDeployment`s.
    ClusterDeployment(fn(&Change<'_, ClusterDeployment<'_>>, &mut Faults)),
}

impl Check {
    /// The kinds judged.
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
    /// `<field>-<fault>`, kebab-case. Stable: messages, metrics and configuration name it.
    pub id: &'static str,
    /// At most 80 characters.
    pub summary: &'static str,
    /// The operations it applies to.
    pub operations: &'static [Operation],
    /// What follows from a finding.
    pub action: Action,
    /// What it looks at.
    pub scope: Scope,
    /// Whether the annotation [`crate::overrides::ANNOTATION`] can turn its denial into a warning.
    pub overridable: bool,
    /// The document that asks for it, and where.
    pub source: &'static str,
    /// The function.
    pub check: Check,
    /// The same in CEL, for an API server to judge without us.
    pub cel: Cel,
}

/// Rules about an object apply whenever one is written.
pub const ON_WRITE: &[Operation] = &[Operation::Create, Operation::Update];

/// Rules about what nobody can change later, or what others write later.
pub const ON_CREATE: &[Operation] = &[Operation::Create];

/// Rules about a transition need an old object.
pub const ON_UPDATE: &[Operation] = &[Operation::Update];

/// Rules about what goes with an object.
pub const ON_DELETE: &[Operation] = &[Operation::Delete];
