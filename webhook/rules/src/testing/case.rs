//! Accepted and rejected examples of each rule.
//!
//! An example is a merge patch (RFC 7386) on a valid object, and the exact findings of all rules. Tests fail on an
//! additional finding as well as on a missing one.

mod answer;
mod base;

pub use answer::Answer;
pub use base::{Base, CONTROL_PLANES, TEMPLATES, V1BETA1, V1BETA2};

use crate::{
    action::Action, change::Operation, configuration::Configuration, feature_gates::FeatureGates, view::View,
};

/// The current time in all cases.
pub const NOW: &str = "2026-06-01T12:00:00Z";

/// The write of a case.
#[derive(Clone, Copy, Debug)]
pub enum Write {
    /// Applies the patch to the base object, and creates the result.
    Create(&'static str),
    /// Applies the first patch to the base object, and updates the result with the second patch.
    Update(&'static str, &'static str),
    /// Applies the patch to the base object, and scales the result to this number of replicas.
    Scale(&'static str, i64),
    /// Applies the patch to the base object, and deletes the result.
    Delete(&'static str),
}

/// An accepted or rejected example of a write.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name of the case, which begins with `accepts_`, `rejects_` or `warns_`. `explain` prints the other words.
    pub name: &'static str,
    /// The base objects: one for each API version that has the fields of the patches.
    pub bases: &'static [Base],
    pub write: Write,
    /// The other objects of the cluster. By default, all of them are unknown.
    pub view: fn() -> View,
    /// The name of the user that the API server authenticated; `None` if it is unknown.
    pub writer: Option<&'static str>,
    /// The field manager of the write.
    pub field_manager: Option<&'static str>,
    /// The feature gates with which Cluster API runs.
    pub feature_gates: FeatureGates,
    /// The id of a rule that is off by default and denies in this case.
    pub enabled_rule: Option<&'static str>,
    /// The response of an API server; `None` if it follows from the findings.
    pub answer: Option<Answer>,
    /// Whether the topology of a Cluster asks for the change. No API server is asked about such a case.
    pub in_topology: bool,
    /// The expected rule ids and field paths, in the order of the rules in [`crate::topics`].
    pub findings: &'static [(&'static str, &'static str)],
}

type Findings = &'static [(&'static str, &'static str)];

impl Case {
    const fn new(name: &'static str, bases: &'static [Base], write: Write, findings: Findings) -> Self {
        Self {
            name,
            bases,
            write,
            view: View::default,
            writer: None,
            field_manager: None,
            feature_gates: FeatureGates {
                ignition: false,
                machine_taints: false,
            },
            enabled_rule: None,
            answer: None,
            in_topology: false,
            findings,
        }
    }

    /// Returns a case that creates a control plane.
    pub const fn create(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, CONTROL_PLANES, Write::Create(patch), findings)
    }

    /// Returns a case that updates a control plane.
    pub const fn update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(name, CONTROL_PLANES, Write::Update(old, new), findings)
    }

    /// Returns a case that scales a control plane.
    pub const fn scale(name: &'static str, old: &'static str, replicas: i64, findings: Findings) -> Self {
        Self::new(name, CONTROL_PLANES, Write::Scale(old, replicas), findings)
    }

    /// Returns a case that deletes a control plane.
    pub const fn delete(name: &'static str, object: &'static str, findings: Findings) -> Self {
        Self::new(name, CONTROL_PLANES, Write::Delete(object), findings)
    }

    /// Returns a case that creates a control plane template.
    pub const fn template(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, TEMPLATES, Write::Create(patch), findings)
    }

    /// Returns a case that updates a control plane template.
    pub const fn template_update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(name, TEMPLATES, Write::Update(old, new), findings)
    }

    /// Returns a case that creates a Cluster. kcp-webhook applies only the rules for topologies to Clusters, so it admits the
    /// write.
    pub const fn cluster(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, &[Base::Cluster], Write::Create(patch), findings).answered_by(Answer::Admitted)
    }

    /// Returns a case that creates a pool.
    pub const fn pool(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, &[Base::ClusterPool], Write::Create(patch), findings)
    }

    /// Returns a case that updates a pool.
    pub const fn pool_update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(name, &[Base::ClusterPool], Write::Update(old, new), findings)
    }

    /// Returns a case that creates a customization.
    pub const fn customization(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, &[Base::Customization], Write::Create(patch), findings)
    }

    /// Returns a case that updates a customization.
    pub const fn customization_update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(name, &[Base::Customization], Write::Update(old, new), findings)
    }

    /// Returns a case that deletes a customization.
    pub const fn customization_delete(name: &'static str, object: &'static str, findings: Findings) -> Self {
        Self::new(name, &[Base::Customization], Write::Delete(object), findings)
    }

    /// Returns a case that creates a `ClusterDeployment`.
    pub const fn cluster_deployment(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, &[Base::ClusterDeployment], Write::Create(patch), findings)
    }

    /// Returns a case that updates a `ClusterDeployment`.
    pub const fn cluster_deployment_update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(
            name,
            &[Base::ClusterDeployment],
            Write::Update(old, new),
            findings,
        )
    }

    /// Sets the other objects of the cluster.
    #[must_use]
    pub const fn with_view(mut self, view: fn() -> View) -> Self {
        self.view = view;
        self
    }

    /// Sets the authenticated user.
    #[must_use]
    pub const fn with_writer(mut self, writer: &'static str) -> Self {
        self.writer = Some(writer);
        self
    }

    /// Sets the field manager.
    #[must_use]
    pub const fn with_field_manager(mut self, field_manager: &'static str) -> Self {
        self.field_manager = Some(field_manager);
        self
    }

    /// Sets the feature gates of Cluster API.
    #[must_use]
    pub const fn with_feature_gates(mut self, feature_gates: FeatureGates) -> Self {
        self.feature_gates = feature_gates;
        self
    }

    /// Enables a rule that is off by default, so that it denies.
    #[must_use]
    pub const fn with_rule_enabled(mut self, rule: &'static str) -> Self {
        self.enabled_rule = Some(rule);
        self
    }

    /// Restricts the case to one API version, because only that version has the fields of its patches.
    #[must_use]
    pub const fn only_in_version(mut self, version: &'static str) -> Self {
        // A const fn cannot compare strings.
        self.bases = match (self.bases, version.as_bytes()) {
            ([Base::Template(_), ..], [.., b'1']) => &[Base::Template(V1BETA1)],
            ([Base::Template(_), ..], _) => &[Base::Template(V1BETA2)],
            (_, [.., b'1']) => &[Base::ControlPlane(V1BETA1)],
            _ => &[Base::ControlPlane(V1BETA2)],
        };
        self
    }

    /// Has the topology of a Cluster ask for the change, so that findings name fields of the Cluster.
    #[must_use]
    pub const fn in_topology(mut self) -> Self {
        self.in_topology = true;
        self
    }

    /// Sets the response of an API server.
    #[must_use]
    pub const fn answered_by(mut self, answer: Answer) -> Self {
        self.answer = Some(answer);
        self
    }

    /// The configuration of kcp-webhook in this case.
    pub fn configuration(&self) -> Configuration {
        Configuration {
            rules: self
                .enabled_rule
                .map(|rule| (rule.to_owned(), Action::Deny))
                .into_iter()
                .collect(),
            feature_gates: self.feature_gates,
            ..Configuration::default()
        }
    }

    /// The operation of the admission request.
    pub const fn operation(&self) -> Operation {
        match self.write {
            Write::Create(_) => Operation::Create,
            Write::Update(..) | Write::Scale(..) => Operation::Update,
            Write::Delete(_) => Operation::Delete,
        }
    }
}
