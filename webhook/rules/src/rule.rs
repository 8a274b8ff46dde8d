//! The definition of a rule.

use serde::{Deserialize, Serialize};

use crate::{
    action::Action,
    api::{
        Cluster, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, ControlPlaneSpec,
        KubeadmControlPlane, KubeadmControlPlaneTemplate,
    },
    cel::Cel,
    change::{Change, Operation},
    fault::Faults,
    view::Part,
};

/// The objects that a rule reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The rule reads only the new object.
    Object,
    /// The rule reads the old and the new object.
    Transition,
    /// The rule also reads these other objects of the cluster.
    Cluster(&'static [Part]),
}

/// What happens to a write if a rule cannot read the objects that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnUnread {
    /// The rule denies the write, if its action is to deny.
    Deny,
    /// The rule is skipped, with a warning.
    Warn,
}

/// Whether the rule also checks the topology of a Cluster, from which Cluster API's topology controller writes the control
/// plane. [`crate::topology`] says how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTopology {
    /// A topology cannot break the rule, only the patches of its class can, or [`crate::topology`] does not merge the fields that
    /// the rule reads. The rule then judges only the control plane.
    Unjudged,
    /// The values of a topology can break the rule. In [`crate::topology`], `changed` merges them, and `place` knows their fields.
    Judged,
    /// A new version alone can break the rule. At the topology of a Cluster that already exists, the rule only warns, because
    /// patches of the class may change the configuration together with the version. If the topology controller writes the control
    /// plane, the rule only warns about what the new version alone breaks, because users cannot lower the version of a topology
    /// again.
    Strands,
    /// The rule checks nothing but topologies.
    Only,
}

impl InTopology {
    /// Whether the rule checks a change that a topology asks for (`of_topology`), or a change of the object itself.
    pub(crate) const fn checks(self, of_topology: bool) -> bool {
        match self {
            Self::Unjudged => !of_topology,
            Self::Judged | Self::Strands => true,
            Self::Only => of_topology,
        }
    }
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
    /// Checks Cluster API's `Cluster`s. Only `lint` applies these rules; the webhook reviews nothing but the topology of
    /// Clusters.
    Cluster(fn(&Change<'_, Cluster<'_>>, &mut Faults)),
    /// Checks `ClusterPool`s.
    ClusterPool(fn(&Change<'_, ClusterPool<'_>>, &mut Faults)),
    /// Checks `ClusterDeploymentCustomization`s.
    Customization(fn(&Change<'_, ClusterDeploymentCustomization<'_>>, &mut Faults)),
    /// Checks `ClusterDeployment`s.
    ClusterDeployment(fn(&Change<'_, ClusterDeployment<'_>>, &mut Faults)),
}

impl Check {
    /// The kinds of object that the rule checks.
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
    /// What the rule requires, in at most 80 characters.
    pub summary: &'static str,
    /// What goes wrong without the rule: one or two sentences, each with a period.
    pub why: &'static str,
    /// The operations that the rule checks.
    pub operations: &'static [Operation],
    /// The action for a finding, unless the configuration sets another one.
    pub action: Action,
    /// The objects that the rule reads.
    pub scope: Scope,
    /// Whether the annotation [`kcp_api::names::annotation::OVERRIDE_RULES`] can turn a denial by this rule into a warning.
    pub overridable: bool,
    /// Whether the rule also checks the topology of a Cluster.
    pub topology: InTopology,
    /// The document that requires the rule, and its section.
    pub source: &'static str,
    pub check: Check,
    /// The CEL version of the rule, which the API server evaluates without the webhook.
    pub cel: Cel,
}

impl Rule {
    /// The usual columns of a row: the rule reads only the object, denies creations and updates without exception, and does not judge
    /// topologies.
    /// Every row must give the other columns, because they are empty here; a test finds a row that does not.
    pub(crate) const USUAL: Self = Self {
        operations: ON_WRITE,
        action: Action::Deny,
        overridable: false,
        topology: InTopology::Unjudged,
        id: "",
        summary: "",
        why: "",
        scope: Scope::Object,
        source: "",
        check: Check::ControlPlane(|_, _| {}),
        cel: Cel::Faults(""),
    };

    /// The kinds of object that the rule checks.
    pub fn kinds(&self) -> Vec<&'static str> {
        let own = (self.topology != InTopology::Only).then(|| self.check.kinds());
        let cluster = (self.topology != InTopology::Unjudged).then_some("Cluster");
        own.into_iter().flatten().copied().chain(cluster).collect()
    }

    /// The other objects that the rule reads.
    pub const fn reads(&self) -> &'static [Part] {
        match self.scope {
            Scope::Cluster(parts) => parts,
            Scope::Object | Scope::Transition => &[],
        }
    }

    /// What happens by default if the rule cannot read the objects that it needs; `None` if it reads none. A rule denies only
    /// where users can override it. A customization can always be deleted, so that an outage does not stop Hive.
    pub fn on_unread(&self) -> Option<OnUnread> {
        let is_deletion_of_another =
            self.operations == ON_DELETE && !matches!(self.check, Check::ControlPlane(_));
        (!self.reads().is_empty()).then_some(if self.overridable && !is_deletion_of_another {
            OnUnread::Deny
        } else {
            OnUnread::Warn
        })
    }
}

/// The operations of rules about the new object.
pub const ON_WRITE: &[Operation] = &[Operation::Create, Operation::Update];

/// The operations of rules about fields that cannot change later, or that a controller sets later.
pub const ON_CREATE: &[Operation] = &[Operation::Create];

/// The operations of rules about a transition, which need an old object.
pub const ON_UPDATE: &[Operation] = &[Operation::Update];

/// The operations of rules about the effects of a deletion on other objects.
pub const ON_DELETE: &[Operation] = &[Operation::Delete];
