//! Accepted and rejected examples of each rule.
//!
//! An example is a merge patch (RFC 7386) on one valid object, and exactly what all rules say of the outcome: a
//! finding that is not listed is a fault of the rules as much as one that is missing.

mod answer;
mod base;

pub use answer::Answer;
pub use base::{Base, CONTROL_PLANES, TEMPLATES, V1BETA1, V1BETA2};

use crate::{
    action::Action, change::Operation, configuration::Configuration, feature_gates::FeatureGates, view::View,
};

/// When cases are judged.
pub const NOW: &str = "2026-06-01T12:00:00Z";

/// What a case writes.
#[derive(Clone, Copy, Debug)]
pub enum Write {
    /// Creates the base with this patch.
    Create(&'static str),
    /// Updates the base with the first patch to the base with both.
    Update(&'static str, &'static str),
    /// Scales the base with this patch to a number of replicas.
    Scale(&'static str, i64),
    /// Deletes the base with this patch.
    Delete(&'static str),
}

/// One example.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// `accepts_…` or `rejects_…`.
    pub name: &'static str,
    /// What it starts from: one of each API version that has the fields of the patches.
    pub bases: &'static [Base],
    /// What is written.
    pub write: Write,
    /// The cluster that it is written to; everything is unknown unless a case says otherwise.
    pub view: fn() -> View,
    /// The user who writes.
    pub writer: Option<&'static str>,
    /// The field manager of the write.
    pub field_manager: Option<&'static str>,
    /// What Cluster API is allowed to do in the cluster.
    pub feature_gates: FeatureGates,
    /// A rule that denies here and is off otherwise.
    pub enabled: Option<&'static str>,
    /// Who answers at an API server, where it is not the rules that find something here.
    pub answer: Option<Answer>,
    /// Rule ids and field paths, in table order.
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
            enabled: None,
            answer: None,
            findings,
        }
    }

    /// Creates a control plane.
    pub const fn create(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, CONTROL_PLANES, Write::Create(patch), findings)
    }

    /// Updates a control plane.
    pub const fn update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(name, CONTROL_PLANES, Write::Update(old, new), findings)
    }

    /// Scales a control plane.
    pub const fn scale(name: &'static str, old: &'static str, replicas: i64, findings: Findings) -> Self {
        Self::new(name, CONTROL_PLANES, Write::Scale(old, replicas), findings)
    }

    /// Deletes a control plane.
    pub const fn delete(name: &'static str, object: &'static str, findings: Findings) -> Self {
        Self::new(name, CONTROL_PLANES, Write::Delete(object), findings)
    }

    /// Creates a template of control planes.
    pub const fn template(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, TEMPLATES, Write::Create(patch), findings)
    }

    /// Updates a template of control planes.
    pub const fn template_update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(name, TEMPLATES, Write::Update(old, new), findings)
    }

    /// Creates a Cluster. No webhook of ours is asked about one.
    pub const fn cluster(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, &[Base::Cluster], Write::Create(patch), findings).answered(Answer::Admitted)
    }

    /// Creates a pool.
    pub const fn pool(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, &[Base::ClusterPool], Write::Create(patch), findings)
    }

    /// Updates a pool.
    pub const fn pool_update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(name, &[Base::ClusterPool], Write::Update(old, new), findings)
    }

    /// Creates a customization.
    pub const fn customization(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, &[Base::Customization], Write::Create(patch), findings)
    }

    /// Updates a customization.
    pub const fn customization_update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(name, &[Base::Customization], Write::Update(old, new), findings)
    }

    /// Deletes a customization.
    pub const fn customization_delete(name: &'static str, object: &'static str, findings: Findings) -> Self {
        Self::new(name, &[Base::Customization], Write::Delete(object), findings)
    }

    /// Creates a cluster.
    pub const fn deployment(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, &[Base::ClusterDeployment], Write::Create(patch), findings)
    }

    /// Updates a cluster.
    pub const fn deployment_update(
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

    /// In a cluster of which this is known.
    #[must_use]
    pub const fn seeing(mut self, view: fn() -> View) -> Self {
        self.view = view;
        self
    }

    /// Written by this user.
    #[must_use]
    pub const fn by(mut self, writer: &'static str) -> Self {
        self.writer = Some(writer);
        self
    }

    /// Written under this field manager.
    #[must_use]
    pub const fn managed_by(mut self, field_manager: &'static str) -> Self {
        self.field_manager = Some(field_manager);
        self
    }

    /// Where Cluster API is allowed this.
    #[must_use]
    pub const fn gated(mut self, feature_gates: FeatureGates) -> Self {
        self.feature_gates = feature_gates;
        self
    }

    /// Where a rule denies that is off otherwise.
    #[must_use]
    pub const fn enabling(mut self, rule: &'static str) -> Self {
        self.enabled = Some(rule);
        self
    }

    /// The fields of its patches are those of one API version alone.
    #[must_use]
    pub const fn of(mut self, version: &'static str) -> Self {
        // Strings cannot be compared in a constant.
        self.bases = match (self.bases, version.as_bytes()) {
            ([Base::Template(_), ..], [.., b'1']) => &[Base::Template(V1BETA1)],
            ([Base::Template(_), ..], _) => &[Base::Template(V1BETA2)],
            (_, [.., b'1']) => &[Base::ControlPlane(V1BETA1)],
            _ => &[Base::ControlPlane(V1BETA2)],
        };
        self
    }

    /// At an API server somebody else answers.
    #[must_use]
    pub const fn answered(mut self, answer: Answer) -> Self {
        self.answer = Some(answer);
        self
    }

    /// The configuration that it is judged with.
    pub fn configuration(&self) -> Configuration {
        Configuration {
            rules: self
                .enabled
                .map(|rule| (rule.to_owned(), Action::Deny))
                .into_iter()
                .collect(),
            feature_gates: self.feature_gates,
            ..Configuration::default()
        }
    }

    /// The operation as an admission request names it.
    pub const fn operation(&self) -> Operation {
        match self.write {
            Write::Create(_) => Operation::Create,
            Write::Update(..) | Write::Scale(..) => Operation::Update,
            Write::Delete(_) => Operation::Delete,
        }
    }
}
