//! What `lint` finds.

use std::{borrow::Cow, fmt};

use kcp_rules::{Action, Rule, defaulting::Repair};
use serde::Serialize;

/// One fault of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// The file, as it was named; `-` is stdin. Absent for an object of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
    /// Counted from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<u64>,
    /// The object.
    pub(super) object: ObjectName,
    /// The path of the field, in the version that was written.
    pub(super) field: String,
    /// The rule's id, or one of our own (see [`OwnRule`]).
    pub(super) rule: &'static str,
    /// What admission would do.
    pub(super) action: Action,
    /// What is wrong and what to do about it.
    pub(super) message: String,
    /// Whether it kept the change to the object from being judged.
    #[serde(skip)]
    pub(super) leaves_open: bool,
}

/// What an object is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectName {
    /// As written, or as its fields tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    /// Absent in a manifest that leaves it to the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    /// Absent when it is generated, or in a fragment.
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

/// Faults of a manifest that no admission rule is about: they keep the rules from being asked, or would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnRule {
    /// A document does not say what it is.
    KindMissing,
    /// A version of a kind that no server has any more, or never had.
    VersionUnserved,
    /// A field does not have the type that its kind gives it.
    Undecodable,
    /// The object as it is cannot be read, so that the step from it cannot be judged.
    OldUndecodable,
    /// The object as it is, is written in another version: fields that moved look changed.
    OldVersionOther,
    /// An override that does not override.
    OverrideIgnored,
}

impl OwnRule {
    /// As the rules' ids: `<field>-<fault>`.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::KindMissing => "kind-missing",
            Self::VersionUnserved => "api-version-unserved",
            Self::Undecodable => "object-undecodable",
            Self::OldUndecodable => "old-object-undecodable",
            Self::OldVersionOther => "old-api-version-other",
            Self::OverrideIgnored => "override-ignored",
        }
    }

    /// Whether it keeps the change to the object from being judged. The object by itself is.
    const fn leaves_open(self) -> bool {
        matches!(self, Self::OldUndecodable | Self::OldVersionOther)
    }

    /// An object of a version without a server may be meant for a converter, so that is no denial.
    pub(super) const fn action(self) -> Action {
        match self {
            Self::VersionUnserved | Self::OldUndecodable | Self::OldVersionOther | Self::OverrideIgnored => {
                Action::Warn
            }
            Self::KindMissing | Self::Undecodable => Action::Deny,
        }
    }
}

/// A fault before it is placed in a file.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// The path of the field.
    pub(super) field: Cow<'static, str>,
    /// Who found it.
    pub(super) rule: &'static str,
    /// The admission rule that did, if one did.
    pub(super) admission: Option<&'static Rule>,
    /// What follows.
    pub(super) action: Action,
    /// With the rule's id at its end.
    pub(super) message: String,
    /// Whether it kept the change to the object from being judged.
    pub(super) leaves_open: bool,
}

impl Fault {
    /// A fault that no admission rule is about.
    pub(super) fn own(rule: OwnRule, field: impl Into<Cow<'static, str>>, message: &str) -> Self {
        let id = rule.id();
        Self {
            field: field.into(),
            rule: id,
            admission: None,
            action: rule.action(),
            message: format!("{message} ({id})"),
            leaves_open: rule.leaves_open(),
        }
    }
}

impl From<kcp_rules::Finding> for Fault {
    fn from(finding: kcp_rules::Finding) -> Self {
        let message = finding.message().to_string();
        Self {
            rule: finding.rule.id,
            admission: Some(finding.rule),
            action: finding.action,
            field: finding.fault.field,
            message,
            leaves_open: false,
        }
    }
}

impl From<Repair> for Fault {
    fn from(repair: Repair) -> Self {
        Self {
            field: repair.field.into(),
            rule: repair.rule,
            admission: None,
            action: Action::Warn,
            message: repair.message,
            leaves_open: false,
        }
    }
}
