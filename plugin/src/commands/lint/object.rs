//! Finds the objects in a manifest, and records where each object comes from.

use kcp_api::PartialObjectMetadata;
use serde_json::Value;

use crate::commands::lint::{
    document::{LocatedValue, SyntaxError, YamlNode},
    finding::{Fault, LintFinding, ObjectName},
    subject::{LintRole, Subject},
    unrendered,
};

#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// A file as the user named it, or `-` for stdin.
    File {
        file: String,
        located: LocatedValue,
    },
    Cluster,
}

#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) origin: Origin,
    pub(super) name: ObjectName,
    pub(super) role: LintRole,
    /// Problems of the object that were found before the rules ran.
    pub(super) faults: Vec<Fault>,
    /// The object as JSON.
    pub(super) text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    subject: Subject,
    namespace: String,
    name: String,
}

impl Object {
    /// The objects in one document of a manifest: the items of a List, or the document itself.
    pub(super) fn from_document(file: &str, document: LocatedValue) -> Vec<Self> {
        let is_list = document.text("kind").is_some_and(|kind| kind.ends_with("List"));
        match document {
            LocatedValue {
                node: YamlNode::Object(fields),
                ..
            } if is_list => fields
                .into_iter()
                .filter(|(name, _)| name == "items")
                .flat_map(|(_, items)| match items.node {
                    YamlNode::List(items) => items,
                    _ => Vec::new(),
                })
                .map(|item| Self::from_file(file, item))
                .collect(),
            document => vec![Self::from_file(file, document)],
        }
    }

    fn from_file(file: &str, mut located: LocatedValue) -> Self {
        let mut faults = Vec::new();
        let role = match unrendered::foreign(file, &located) {
            Some(foreign) => LintRole::Foreign(foreign),
            None => LintRole::new(&mut located, &mut faults),
        };
        if role.subject().is_some() {
            located.drop_nulls();
        }
        let metadata = located.get("metadata");
        let of_metadata = |field| {
            metadata
                .and_then(|metadata| metadata.text(field))
                .map(str::to_owned)
        };
        let kind = located.text("kind").or(role.subject().map(Subject::kind));
        Self {
            name: ObjectName {
                kind: kind.map(str::to_owned),
                namespace: of_metadata("namespace"),
                name: of_metadata("name"),
            },
            role,
            faults,
            text: located.to_json().to_string(),
            origin: Origin::File {
                file: file.to_owned(),
                located,
            },
        }
    }

    /// A document that is not YAML because it is a template.
    pub(super) fn unparsable(file: &str, error: &SyntaxError) -> Self {
        let node = YamlNode::Scalar(Value::Null);
        let line = error.line.unwrap_or(1);
        Self {
            origin: Origin::File {
                file: file.to_owned(),
                located: LocatedValue {
                    line,
                    node,
                    written: None,
                },
            },
            name: ObjectName::default(),
            role: LintRole::Unrendered(None),
            faults: vec![unrendered::unparsable(&error.to_string())],
            text: String::new(),
        }
    }

    /// An object that an API server returned.
    pub(super) fn from_cluster(subject: Subject, text: String) -> Self {
        let metadata = serde_json::from_str(&text).map(|PartialObjectMetadata { metadata }| metadata);
        let metadata = metadata.unwrap_or_default();
        Self {
            origin: Origin::Cluster,
            name: ObjectName {
                kind: Some(subject.kind().to_owned()),
                namespace: metadata.namespace,
                name: metadata.name,
            },
            role: LintRole::Subject(subject),
            faults: Vec::new(),
            text,
        }
    }

    /// The namespace of the object, or `namespace` if the object has none.
    pub(super) fn namespace_or<'n>(&'n self, namespace: &'n str) -> &'n str {
        self.name
            .namespace
            .as_deref()
            .filter(|given| !given.is_empty())
            .unwrap_or(namespace)
    }

    /// The object as the file contains it; `None` for an object in a cluster.
    pub(super) const fn located(&self) -> Option<&LocatedValue> {
        match &self.origin {
            Origin::File { located, .. } => Some(located),
            Origin::Cluster => None,
        }
    }

    pub(super) fn is_from_cluster(&self) -> bool {
        matches!(self.origin, Origin::Cluster)
    }

    /// The kind, the namespace and the name of the object; `None` if the object has no name, or if no rules apply to its
    /// kind.
    pub(super) fn identity(&self, namespace: &str) -> Option<Identity> {
        Some(Identity {
            subject: self.role.subject()?,
            namespace: self.namespace_or(namespace).to_owned(),
            name: self.name.name.clone()?,
        })
    }

    /// Adds the file, the line and the object to these problems, which makes them findings.
    pub(super) fn into_findings(self, faults: impl IntoIterator<Item = Fault>) -> Vec<LintFinding> {
        let Self { origin, name, .. } = self;
        let (file, located) = match &origin {
            Origin::File { file, located } => (Some(file), Some(located)),
            Origin::Cluster => (None, None),
        };
        let placed = faults.into_iter().map(|mut fault| {
            let value = located.and_then(|located| located.value_at(&fault.field));
            if let Some(YamlNode::Scalar(value)) = value.map(|value| &value.node) {
                fault.show(value);
            }
            LintFinding {
                file: file.cloned(),
                line: located.map(|located| fault.line.unwrap_or_else(|| located.line_of(&fault.field))),
                object: name.clone(),
                field: fault.field.into_owned(),
                rule: fault.rule,
                action: fault.action,
                message: fault.message,
                downgrade_reason: fault.downgrade_reason,
                blocks_update_check: fault.blocks_update_check,
            }
        });
        placed.collect()
    }
}
