//! Accepted and rejected examples of each rule.
//!
//! An example is a merge patch (RFC 7386) on one valid object, and exactly what all rules say of the outcome: a
//! finding that is not listed is a fault of the rules as much as one that is missing.

use serde_json::{Value, json};
use thiserror::Error;

use crate::{
    api::{
        Cluster, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, DecodeError,
        KubeadmControlPlane, KubeadmControlPlaneTemplate, decode,
    },
    change::{Change, Operation},
    configuration::{Configuration, FeatureGates},
    context::Context,
    finding::Finding,
    judge::{Judged, judge},
    rule::Action,
    view::View,
};

/// When cases are judged.
pub const NOW: &str = "2026-06-01T12:00:00Z";

/// The object that a case starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A `KubeadmControlPlane` of a version.
    ControlPlane(&'static str),
    /// A `KubeadmControlPlaneTemplate` of a version.
    Template(&'static str),
    /// A `Cluster` of Cluster API.
    Cluster,
    /// A `ClusterPool`.
    ClusterPool,
    /// A `ClusterDeploymentCustomization`.
    Customization,
    /// A `ClusterDeployment`.
    ClusterDeployment,
}

/// The version before the current one.
pub const V1BETA1: &str = "v1beta1";
/// The current version.
pub const V1BETA2: &str = "v1beta2";

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
    /// What it starts from.
    pub base: Base,
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
    /// Rule ids and field paths, in table order.
    pub findings: &'static [(&'static str, &'static str)],
}

/// A case that is none.
#[derive(Debug, Error)]
pub enum CaseError {
    /// A patch is not JSON.
    #[error("a patch of the case is not JSON: {0}")]
    Patch(#[from] serde_json::Error),
    /// A patch makes an object that does not have its kind's types.
    #[error("the object of the case does not decode: {0}")]
    Object(#[from] DecodeError),
}

type Findings = &'static [(&'static str, &'static str)];

impl Case {
    const fn new(name: &'static str, base: Base, write: Write, findings: Findings) -> Self {
        Self {
            name,
            base,
            write,
            view: View::default,
            writer: None,
            field_manager: None,
            feature_gates: FeatureGates {
                ignition: false,
                machine_taints: false,
            },
            enabled: None,
            findings,
        }
    }

    /// Creates a control plane.
    pub const fn create(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, Base::ControlPlane(V1BETA2), Write::Create(patch), findings)
    }

    /// Updates a control plane.
    pub const fn update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(
            name,
            Base::ControlPlane(V1BETA2),
            Write::Update(old, new),
            findings,
        )
    }

    /// Scales a control plane.
    pub const fn scale(name: &'static str, old: &'static str, replicas: i64, findings: Findings) -> Self {
        Self::new(
            name,
            Base::ControlPlane(V1BETA2),
            Write::Scale(old, replicas),
            findings,
        )
    }

    /// Deletes a control plane.
    pub const fn delete(name: &'static str, object: &'static str, findings: Findings) -> Self {
        Self::new(name, Base::ControlPlane(V1BETA2), Write::Delete(object), findings)
    }

    /// Creates a template of control planes.
    pub const fn template(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, Base::Template(V1BETA2), Write::Create(patch), findings)
    }

    /// Updates a template of control planes.
    pub const fn template_update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(name, Base::Template(V1BETA2), Write::Update(old, new), findings)
    }

    /// Creates a Cluster.
    pub const fn cluster(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, Base::Cluster, Write::Create(patch), findings)
    }

    /// Creates a pool.
    pub const fn pool(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, Base::ClusterPool, Write::Create(patch), findings)
    }

    /// Updates a pool.
    pub const fn pool_update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(name, Base::ClusterPool, Write::Update(old, new), findings)
    }

    /// Creates a customization.
    pub const fn customization(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, Base::Customization, Write::Create(patch), findings)
    }

    /// Updates a customization.
    pub const fn customization_update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(name, Base::Customization, Write::Update(old, new), findings)
    }

    /// Deletes a customization.
    pub const fn customization_delete(name: &'static str, object: &'static str, findings: Findings) -> Self {
        Self::new(name, Base::Customization, Write::Delete(object), findings)
    }

    /// Creates a cluster.
    pub const fn deployment(name: &'static str, patch: &'static str, findings: Findings) -> Self {
        Self::new(name, Base::ClusterDeployment, Write::Create(patch), findings)
    }

    /// Updates a cluster.
    pub const fn deployment_update(
        name: &'static str,
        old: &'static str,
        new: &'static str,
        findings: Findings,
    ) -> Self {
        Self::new(name, Base::ClusterDeployment, Write::Update(old, new), findings)
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

    /// The same write to a control plane, or a template of control planes, of another version.
    #[must_use]
    pub const fn of(mut self, version: &'static str) -> Self {
        self.base = match self.base {
            Base::Template(_) => Base::Template(version),
            _ => Base::ControlPlane(version),
        };
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

    /// The object before the write; none for a creation.
    ///
    /// # Errors
    /// When a patch is not JSON.
    pub fn old(&self) -> serde_json::Result<Option<Value>> {
        match self.write {
            Write::Create(_) => Ok(None),
            Write::Update(old, _) | Write::Scale(old, _) | Write::Delete(old) => {
                self.patched(&[old]).map(Some)
            }
        }
    }

    /// The object after the write.
    ///
    /// # Errors
    /// When a patch is not JSON.
    pub fn new_object(&self) -> serde_json::Result<Value> {
        match self.write {
            Write::Create(patch) | Write::Delete(patch) => self.patched(&[patch]),
            Write::Update(old, new) => self.patched(&[old, new]),
            Write::Scale(old, replicas) => {
                self.patched(&[old, &json!({ "spec": { "replicas": replicas } }).to_string()])
            }
        }
    }

    /// What all rules say of it.
    ///
    /// # Errors
    /// When a patch is not JSON, or makes an object that does not have its kind's types.
    pub fn judge(&self) -> Result<Vec<Finding>, CaseError> {
        let new = self.new_object()?.to_string();
        let old = self.old()?.map(|old| old.to_string());
        macro_rules! judged_as {
            ($kind:ident) => {{
                let new: $kind<'_> = decode(&new)?;
                let old: Option<$kind<'_>> = old.as_deref().map(decode).transpose()?;
                self.findings(&new, old.as_ref())
            }};
        }
        Ok(match self.base {
            Base::ControlPlane(_) => judged_as!(KubeadmControlPlane),
            Base::Template(_) => judged_as!(KubeadmControlPlaneTemplate),
            Base::Cluster => judged_as!(Cluster),
            Base::ClusterPool => judged_as!(ClusterPool),
            Base::Customization => judged_as!(ClusterDeploymentCustomization),
            Base::ClusterDeployment => judged_as!(ClusterDeployment),
        })
    }

    fn findings<T: Judged>(&self, new: &T, old: Option<&T>) -> Vec<Finding> {
        let change = match (self.write, old) {
            (Write::Update(..), Some(old)) => Change::update(old, new),
            (Write::Scale(..), Some(old)) => Change::scale(old, new),
            (Write::Delete(_), Some(old)) => Change::delete(old),
            (Write::Create(_), _) | (_, None) => Change::create(new),
        };
        let view = (self.view)();
        let context = Context {
            writer: self.writer,
            field_manager: self.field_manager,
            now: NOW.parse().ok(),
            view: Some(&view),
            ..Context::UNKNOWN
        };
        judge(&change.within(context), &self.configuration()).findings
    }

    fn patched(&self, patches: &[&str]) -> serde_json::Result<Value> {
        let mut object = self.base.object();
        for patch in patches {
            merge(&mut object, &serde_json::from_str(patch)?);
        }
        Ok(object)
    }
}

impl Base {
    /// A valid object with every default filled in.
    pub fn object(self) -> Value {
        match self {
            Self::ControlPlane(V1BETA1) => json!({
                "apiVersion": "controlplane.cluster.x-k8s.io/v1beta1",
                "kind": "KubeadmControlPlane",
                "metadata": {"name": "example", "namespace": "default"},
                "spec": {
                    "replicas": 3,
                    "version": "v1.34.2",
                    "machineTemplate": {"infrastructureRef": {
                        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
                        "kind": "StandInMachineTemplate",
                        "name": "example"
                    }},
                    "kubeadmConfigSpec": {
                        "clusterConfiguration": {},
                        "initConfiguration": {"nodeRegistration": {"imagePullPolicy": "IfNotPresent"}},
                        "joinConfiguration": {"nodeRegistration": {"imagePullPolicy": "IfNotPresent"}}
                    },
                    "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}
                }
            }),
            Self::ControlPlane(_) => json!({
                "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
                "kind": "KubeadmControlPlane",
                "metadata": {"name": "example", "namespace": "default"},
                "spec": {
                    "replicas": 3,
                    "version": "v1.34.2",
                    "machineTemplate": {"spec": {"infrastructureRef": {
                        "apiGroup": "infrastructure.cluster.x-k8s.io",
                        "kind": "StandInMachineTemplate",
                        "name": "example"
                    }}},
                    "kubeadmConfigSpec": {
                        "clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"]}},
                        "initConfiguration": {"nodeRegistration": {"imagePullPolicy": "IfNotPresent"}},
                        "joinConfiguration": {"nodeRegistration": {"imagePullPolicy": "IfNotPresent"}}
                    },
                    "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}
                }
            }),
            Self::Template(version) => json!({
                "apiVersion": format!("controlplane.cluster.x-k8s.io/{version}"),
                "kind": "KubeadmControlPlaneTemplate",
                "metadata": {"name": "example", "namespace": "default"},
                "spec": {"template": {"spec": {
                    "kubeadmConfigSpec": {"clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"]}}}
                }}}
            }),
            Self::Cluster => json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2",
                "kind": "Cluster",
                "metadata": {"name": "example", "namespace": "default"},
                "spec": {"controlPlaneRef": {
                    "apiGroup": "controlplane.cluster.x-k8s.io",
                    "kind": "KubeadmControlPlane",
                    "name": "example"
                }}
            }),
            Self::ClusterPool => json!({
                "apiVersion": "hive.openshift.io/v1",
                "kind": "ClusterPool",
                "metadata": {"name": "example", "namespace": "default"},
                "spec": {
                    "platform": {"vsphere": {
                        "certificatesSecretRef": {"name": "certificates"},
                        "credentialsSecretRef": {"name": "credentials"}
                    }},
                    "baseDomain": "example.com",
                    "imageSetRef": {"name": "release"},
                    "size": 0,
                    "inventory": [{"name": "foo"}]
                }
            }),
            Self::Customization => json!({
                "apiVersion": "hive.openshift.io/v1",
                "kind": "ClusterDeploymentCustomization",
                "metadata": {"name": "example", "namespace": "default"},
                "spec": {}
            }),
            Self::ClusterDeployment => json!({
                "apiVersion": "hive.openshift.io/v1",
                "kind": "ClusterDeployment",
                "metadata": {"name": "example-1", "namespace": "example-1"},
                "spec": {
                    "baseDomain": "example.com",
                    "clusterName": "foo",
                    "platform": {"vsphere": {
                        "certificatesSecretRef": {"name": "certificates"},
                        "credentialsSecretRef": {"name": "credentials"}
                    }},
                    "clusterPoolRef": {
                        "namespace": "default",
                        "poolName": "example",
                        "clusterDeploymentCustomization": {"name": "foo"}
                    }
                }
            }),
        }
    }
}

/// RFC 7386, section 2.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    if let Value::Object(target) = target {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}
