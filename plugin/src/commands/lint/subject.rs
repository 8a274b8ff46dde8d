//! Decides whether admission rules check or read an object, from the object's kind and fields.

use kcp_api::{
    Kind,
    kind::{
        CLUSTER, CLUSTER_DEPLOYMENT, CLUSTER_DEPLOYMENT_CUSTOMIZATION, CLUSTER_POOL, KUBEADM_CONFIG,
        KUBEADM_CONFIG_TEMPLATE, KUBEADM_CONTROL_PLANE, KUBEADM_CONTROL_PLANE_TEMPLATE, MACHINE,
        MACHINE_HEALTH_CHECK,
    },
};
use kcp_rules::Action;
use serde_json::Value;

use crate::commands::lint::{
    document::{LocatedValue, YamlNode},
    finding::{Fault, LintRule, ObjectName},
    schema,
    unrendered::{self, Foreign},
};

/// What `lint` does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LintRole {
    Subject(Subject),
    Machine,
    HealthCheck,
    /// A patch or a template; `None` if the kind is unknown.
    Unrendered(Option<Subject>),
    /// No object, but a file of another program.
    Foreign(Foreign),
    Ignored,
}

impl LintRole {
    /// Decides what `lint` does with an object. Adds problems with its `kind` and `apiVersion` to `faults`.
    pub(super) fn new(object: &mut LocatedValue, faults: &mut Vec<Fault>) -> Self {
        match Subject::new(object, faults) {
            Some(subject) => match unrendered::fault(object, subject.kind()) {
                Some(fault) => {
                    *faults = vec![fault];
                    Self::Unrendered(Some(subject))
                }
                None => Self::Subject(subject),
            },
            None if is_a(object, &MACHINE) => Self::Machine,
            None if is_a(object, &MACHINE_HEALTH_CHECK) => Self::HealthCheck,
            None => match Self::unrendered(object) {
                Some(fault) => {
                    *faults = vec![fault];
                    Self::Unrendered(None)
                }
                None => Self::Ignored,
            },
        }
    }

    /// The problem of a patch or a template of a kind without rules, but with a schema.
    fn unrendered(object: &LocatedValue) -> Option<Fault> {
        let kind = object.text("kind")?;
        let is_of_cluster_api = object.text("apiVersion")?.starts_with("cluster.x-k8s.io/");
        (is_of_cluster_api && kind == "MachineDeployment")
            .then(|| unrendered::fault(object, kind))
            .flatten()
    }

    pub(super) const fn subject(self) -> Option<Subject> {
        match self {
            Self::Subject(subject) => Some(subject),
            Self::Machine | Self::HealthCheck | Self::Unrendered(_) | Self::Foreign(_) | Self::Ignored => {
                None
            }
        }
    }
}

fn is_a(object: &LocatedValue, kind: &Kind) -> bool {
    let group = object.text("apiVersion").and_then(group);
    object.text("kind") == Some(kind.kind) && group == Some(kind.group)
}

/// The API group in an `apiVersion`; `None` for the core group.
fn group(api_version: &str) -> Option<&str> {
    api_version.split_once('/').map(|(group, _)| group)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    ControlPlane,
    Template,
    Cluster,
    ClusterPool,
    Customization,
    ClusterDeployment,
    KubeadmConfig,
    KubeadmConfigTemplate,
}

impl Subject {
    pub(super) const ALL: [Self; 8] = [
        Self::ControlPlane,
        Self::Template,
        Self::Cluster,
        Self::ClusterPool,
        Self::Customization,
        Self::ClusterDeployment,
        Self::KubeadmConfig,
        Self::KubeadmConfigTemplate,
    ];

    pub(super) const fn resource(self) -> Kind {
        match self {
            Self::ControlPlane => KUBEADM_CONTROL_PLANE,
            Self::Template => KUBEADM_CONTROL_PLANE_TEMPLATE,
            Self::Cluster => CLUSTER,
            Self::ClusterPool => CLUSTER_POOL,
            Self::Customization => CLUSTER_DEPLOYMENT_CUSTOMIZATION,
            Self::ClusterDeployment => CLUSTER_DEPLOYMENT,
            Self::KubeadmConfig => KUBEADM_CONFIG,
            Self::KubeadmConfigTemplate => KUBEADM_CONFIG_TEMPLATE,
        }
    }

    pub(super) const fn kind(self) -> &'static str {
        self.resource().kind
    }

    pub(super) const fn is_kubeadm_config(self) -> bool {
        matches!(self, Self::KubeadmConfig | Self::KubeadmConfigTemplate)
    }

    /// An object's name, as `kubectl get -o name` prints it; `None` for a fragment, or if the server generates the name.
    pub(super) fn resource_name(object: &ObjectName) -> Option<String> {
        let (kind, name) = (object.kind.as_deref()?, object.name.as_deref()?);
        let subject = Self::ALL.into_iter().find(|subject| subject.kind() == kind);
        let group = match subject {
            Some(subject) => subject.resource().group,
            None if kind == MACHINE_HEALTH_CHECK.kind => MACHINE_HEALTH_CHECK.group,
            None => return None,
        };
        Some(format!("{}.{group}/{name}", kind.to_lowercase()))
    }

    /// The `apiVersion` that `lint` supports for this kind.
    fn api_version(self) -> String {
        let Kind { group, versions, .. } = self.resource();
        format!("{group}/{}", versions.first().unwrap_or(&"v1"))
    }

    /// The problem of an `apiVersion` in which no API server serves this kind.
    fn unserved(self, given: &str) -> Option<Fault> {
        let current = self.api_version();
        let mut served = schema::served_versions(self.kind());
        if served.is_empty() {
            served.push(&current);
        }
        let mut fault = schema::unserved(self.kind(), given, &served)?;
        // Hive's design documents write its kinds in this version.
        if given == "v1" {
            fault.action = Action::Warn;
        }
        Some(fault)
    }

    /// A field of `spec` that only this kind has, by which a fragment without `kind` is identified.
    const fn identifying_field(self) -> Option<&'static str> {
        match self {
            Self::ControlPlane => Some("kubeadmConfigSpec"),
            Self::Template
            | Self::Cluster
            | Self::ClusterDeployment
            | Self::KubeadmConfig
            | Self::KubeadmConfigTemplate => None,
            Self::ClusterPool => Some("inventory"),
            Self::Customization => Some("installConfigPatches"),
        }
    }

    /// Decides which kind an object has; `None` for a kind without admission rules. Identifies a fragment without `kind` by
    /// its fields and adds what is missing, so that the fragment can be checked.
    fn new(object: &mut LocatedValue, faults: &mut Vec<Fault>) -> Option<Self> {
        let subject = match object.text("kind") {
            Some(kind) => Self::ALL.into_iter().find(|subject| subject.kind() == kind)?,
            None => Self::identify_by_fields(object, faults)?,
        };
        let current = subject.api_version();
        match object.text("apiVersion") {
            None => {
                if object.text("kind").is_some() {
                    let message = format!("Required value: write apiVersion: {current}");
                    faults.push(Fault::from_lint(LintRule::KindMissing, "apiVersion", &message));
                }
                object.set("apiVersion", &current);
            }
            Some(given) => {
                let unserved = subject.unserved(given);
                // Other products may have a kind with the same name.
                if unserved.is_none() && group(given) != Some(subject.resource().group) {
                    return None;
                }
                faults.extend(unserved);
            }
        }
        Some(subject)
    }

    fn identify_by_fields(object: &mut LocatedValue, faults: &mut Vec<Fault>) -> Option<Self> {
        let subject = object.get("spec").and_then(|spec| {
            Self::ALL.into_iter().find(|subject| {
                subject
                    .identifying_field()
                    .is_some_and(|identifying_field| spec.get(identifying_field).is_some())
            })
        });
        let message = match (&object.node, subject) {
            (YamlNode::Object(_), Some(subject)) => format!(
                "Required value: this object has the fields of a {kind}; write apiVersion: {} and kind: {kind}",
                subject.api_version(),
                kind = subject.kind(),
            ),
            (YamlNode::Object(_), None) => "Required value: write apiVersion and kind".to_owned(),
            _ => "Required value: this is not an object; write apiVersion, kind and spec".to_owned(),
        };
        faults.push(Fault::from_lint(LintRule::KindMissing, "kind", &message));
        subject
    }
}

impl LocatedValue {
    /// Adds a field with this text, unless the object has the field.
    fn set(&mut self, name: &str, text: &str) {
        let line = self.line;
        if let YamlNode::Object(fields) = &mut self.node {
            fields.retain(|(field, _)| field != name);
            fields.push((
                name.to_owned(),
                Self {
                    line,
                    node: YamlNode::Scalar(Value::from(text)),
                    written: None,
                },
            ));
        }
    }
}
