//! Describes the problems that `lint` finds, the objects that have them, and the files that it cannot read.

use std::{borrow::Cow, fmt};

use kcp_control_plane::bundle::is_secret;
use kcp_rules::{
    Action, DowngradeReason,
    defaulting::Correction,
    fault::{HIDDEN, quote},
};
use serde::Serialize;
use serde_json::Value;

/// A problem of an object in a manifest or in a cluster, as `lint` reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct LintFinding {
    /// The file as the user named it, or `-` for stdin. Absent for an object in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
    /// The line of the field in the file, counted from 1. Absent for an object in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<u64>,
    /// The object with the problem.
    pub(super) object: ObjectName,
    /// The path of the field with the problem, in the API version of the object.
    pub(super) field: String,
    /// The id of the admission rule, or of a check that only `lint` has.
    pub(super) rule: &'static str,
    /// What the webhook would do because of the problem.
    pub(super) action: Action,
    /// What is wrong, and what to do about it.
    pub(super) message: String,
    /// Why the webhook only warns, although the rule denies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) downgrade_reason: Option<&'static str>,
    /// Whether the update was not checked because of this problem.
    #[serde(skip)]
    pub(super) blocks_update_check: bool,
}

impl LintFinding {
    /// The message, and why the problem is only a warning.
    pub(super) fn text(&self) -> Cow<'_, str> {
        match self.downgrade_reason {
            None => Cow::Borrowed(&self.message),
            Some(why) => Cow::Owned(format!("{}: only a warning, because {why}", self.message)),
        }
    }
}

/// The kind, the namespace and the name of an object in a manifest or in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectName {
    /// The kind in the manifest. If the manifest has no kind, the kind that its fields identify.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    /// The namespace of the object; absent if the manifest has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    /// The name of the object; absent if the server generates it, or in a fragment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_deref().unwrap_or("object"))?;
        match &self.name {
            Some(name) => write!(f, "/{name}"),
            None => Ok(()),
        }
    }
}

/// A file that could not be read, or not completely, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct UnreadFile {
    pub(super) file: String,
    /// The line of the error in the file, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<u64>,
    pub(super) message: String,
}

impl UnreadFile {
    pub(super) fn sentence(&self) -> String {
        match self.line {
            Some(line) => format!("{}:{line}: {}", self.file, self.message),
            None if self.message.contains(&self.file) => self.message.clone(),
            None => format!("{}: {}", self.file, self.message),
        }
    }
}

/// Problems that `lint` itself finds, and not an admission rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LintRule {
    /// The object has no `kind`.
    KindMissing,
    /// No API server serves the kind in this `apiVersion`, or only API servers of older releases do.
    VersionUnserved,
    /// A field of the object has the wrong type.
    Undecodable,
    /// The old object cannot be decoded, so the update was not checked.
    OldUndecodable,
    /// The old and the new object have different API versions, so fields with different paths would look changed.
    OldVersionOther,
    /// An override annotation on the object has no effect.
    OverrideIgnored,
    /// A `MachineHealthCheck` does not remediate the first Machine that fails.
    HealthCheckIdle,
    /// A field of an object to which no rules apply occurs twice.
    KeyDuplicate,
    /// The object is a patch or a template, and was not checked.
    Unrendered,
    /// An API server rejects the value of a field.
    FieldInvalid,
    /// The field is one of another version of the kind.
    FieldMoved,
    /// The kind has no such field.
    FieldUnknown,
    /// The server drops the inventory of a `ClusterPool`.
    InventoryDropped,
}

/// The page of the book that lists these problems.
pub(in crate::commands) const PAGE: &str = "commands/lint.html#problems-that-only-lint-finds";

impl LintRule {
    pub(in crate::commands) const ALL: [Self; 13] = [
        Self::KindMissing,
        Self::VersionUnserved,
        Self::Undecodable,
        Self::OldUndecodable,
        Self::OldVersionOther,
        Self::OverrideIgnored,
        Self::HealthCheckIdle,
        Self::KeyDuplicate,
        Self::Unrendered,
        Self::FieldInvalid,
        Self::FieldMoved,
        Self::FieldUnknown,
        Self::InventoryDropped,
    ];

    /// The id of the problem, in the form of rule ids: `<field>-<fault>`.
    pub(in crate::commands) const fn id(self) -> &'static str {
        match self {
            Self::KindMissing => "kind-missing",
            Self::VersionUnserved => "api-version-unserved",
            Self::Undecodable => "object-undecodable",
            Self::OldUndecodable => "old-object-undecodable",
            Self::OldVersionOther => "old-api-version-other",
            Self::OverrideIgnored => "override-ignored",
            Self::HealthCheckIdle => "health-check-idle",
            Self::KeyDuplicate => "key-duplicate",
            Self::Unrendered => "manifest-unrendered",
            Self::FieldInvalid => "field-invalid",
            Self::FieldMoved => "field-moved",
            Self::FieldUnknown => "field-unknown",
            Self::InventoryDropped => "inventory-dropped",
        }
    }

    /// What `lint` requires, in at most 80 characters.
    pub(in crate::commands) const fn summary(self) -> &'static str {
        match self {
            Self::KindMissing => "an object must have `apiVersion` and `kind`",
            Self::VersionUnserved => {
                "a current API server must serve the kind in the `apiVersion` of the object"
            }
            Self::Undecodable => "each field of an object must have the right type",
            Self::OldUndecodable => "each field of the old object must have the right type",
            Self::OldVersionOther => "the old and the new object must have the same `apiVersion`",
            Self::OverrideIgnored => "an annotation that overrides a rule must have an effect",
            Self::HealthCheckIdle => "a MachineHealthCheck must remediate the first Machine that fails",
            Self::KeyDuplicate => "a field must occur only once in an object",
            Self::Unrendered => "lint must get whole objects: no patches and no templates",
            Self::FieldInvalid => "a field must have a value that the schema of the kind allows",
            Self::FieldMoved => "a field must exist in the `apiVersion`, and Cluster API must use it",
            Self::FieldUnknown => "a field must be one that the kind has",
            Self::InventoryDropped => "the server must keep the inventory of a ClusterPool",
        }
    }

    /// What happens because of the problem: one sentence with a period.
    pub(in crate::commands) const fn why(self) -> &'static str {
        match self {
            Self::KindMissing => {
                "An API server rejects an object without these fields, and lint can only guess the kind from the other fields."
            }
            Self::VersionUnserved => "An API server rejects an object whose `apiVersion` it does not serve.",
            Self::Undecodable => "An API server rejects the object, and lint cannot apply the rules to it.",
            Self::OldUndecodable => "lint cannot compare the two objects, so it does not check the update.",
            Self::OldVersionOther => {
                "The path of a field depends on the version, so lint cannot compare the two objects and does not \
                 check the update."
            }
            Self::OverrideIgnored => "The webhook ignores the override and applies the rule.",
            Self::FieldInvalid => "An API server rejects the object.",
            Self::FieldMoved => {
                "An API server drops a field that the version does not have, and rejects a field that has another type in this \
                 version; Cluster API loses some fields of v1beta1 when it converts the object to v1beta2."
            }
            Self::FieldUnknown => "An API server drops the field, so the field has no effect.",
            Self::InventoryDropped => {
                "Hive creates clusters without customizations, with the same names and addresses."
            }
            Self::HealthCheckIdle => {
                "A failed control plane Machine is not replaced, and the next failure may cost etcd its quorum."
            }
            Self::KeyDuplicate => {
                "kubectl takes the last of the values, and other programs may take another one."
            }
            Self::Unrendered => {
                "Another program completes the object before anybody applies it, so lint does not check the incomplete object."
            }
        }
    }

    /// Whether the update is not checked because of this problem. The new object itself is still checked.
    const fn blocks_update_check(self) -> bool {
        matches!(self, Self::OldUndecodable | Self::OldVersionOther)
    }

    /// How severe the problem is: a denial if an API server or the webhook rejects the object.
    pub(in crate::commands) const fn action(self) -> Action {
        match self {
            Self::OldUndecodable
            | Self::OldVersionOther
            | Self::OverrideIgnored
            | Self::HealthCheckIdle
            | Self::KeyDuplicate
            | Self::Unrendered
            | Self::FieldMoved
            | Self::FieldUnknown
            | Self::InventoryDropped => Action::Warn,
            Self::KindMissing | Self::VersionUnserved | Self::Undecodable | Self::FieldInvalid => {
                Action::Deny
            }
        }
    }
}

/// A problem of an object, without the object and its position in a file.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// The path of the field with the problem.
    pub(super) field: Cow<'static, str>,
    /// The id of the admission rule, or of the check in `lint`, that found the problem.
    pub(super) rule: &'static str,
    /// The finding of the admission rule; `None` if `lint` itself found the problem.
    pub(super) admission: Option<kcp_rules::Finding>,
    /// The line in the file, if it is not that of the field.
    pub(super) line: Option<u64>,
    /// What the webhook would do because of the problem.
    pub(super) action: Action,
    /// What is wrong and what to do about it, followed by the rule's id.
    pub(super) message: String,
    /// Why the webhook only warns, although the rule denies.
    pub(super) downgrade_reason: Option<&'static str>,
    /// Whether the update was not checked because of this problem.
    pub(super) blocks_update_check: bool,
}

impl Fault {
    /// Creates a problem that `lint` itself found, rather than an admission rule.
    pub(super) fn from_lint(rule: LintRule, field: impl Into<Cow<'static, str>>, message: &str) -> Self {
        let id = rule.id();
        Self {
            field: field.into(),
            rule: id,
            admission: None,
            line: None,
            action: rule.action(),
            message: format!("{message} ({id})"),
            downgrade_reason: None,
            blocks_update_check: rule.blocks_update_check(),
        }
    }

    /// Shows the value that the webhook would hide. This is safe, because the value is in the user's own file.
    pub(super) fn show(&mut self, value: &Value) {
        if let Some(finding) = &mut self.admission
            && finding.fault.value.as_deref() == Some(HIDDEN)
        {
            finding.fault.value = Some(shown(&self.field, value));
            self.message = finding.message().to_string();
        }
    }
}

/// A value of the user's own file, as messages show it. If the value may be secret, only its type.
pub(super) fn shown(path: &str, value: &Value) -> String {
    match value {
        Value::String(_) if is_secret(path) => HIDDEN.to_owned(),
        Value::Number(_) if is_secret(path) => "a number".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(items) if !items.is_empty() => "a list".to_owned(),
        Value::Object(fields) if !fields.is_empty() => "an object".to_owned(),
        other => other.to_string(),
    }
}

impl From<kcp_rules::Finding> for Fault {
    fn from(finding: kcp_rules::Finding) -> Self {
        let message = finding.message().to_string();
        Self {
            rule: finding.rule.id,
            action: finding.action,
            field: finding
                .exact_field
                .as_ref()
                .unwrap_or(&finding.fault.field)
                .clone(),
            line: None,
            message,
            downgrade_reason: finding.downgrade_reason.map(DowngradeReason::why),
            admission: Some(finding),
            blocks_update_check: false,
        }
    }
}

impl From<Correction> for Fault {
    fn from(repair: Correction) -> Self {
        Self {
            field: repair.field.into(),
            rule: repair.rule,
            admission: None,
            line: None,
            action: Action::Warn,
            message: repair.message,
            downgrade_reason: None,
            blocks_update_check: false,
        }
    }
}
