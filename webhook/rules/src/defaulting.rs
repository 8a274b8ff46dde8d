//! The fields we fill in: minimal JSON patches (RFC 6902), made from what decoding found absent.
//!
//! Idempotent: put to an object that has been patched, each function returns nothing. One `add` of the deepest
//! missing parent, so that what another mutating webhook wrote beside it stays.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    api::{ClusterDeploymentCustomization, KubeadmControlPlane, Metadata, control_plane::Shape},
    change::{Change, Operation},
    fault::quoted,
    topics::{customization, version},
};

/// What is filled in, and what to tell the person who left it out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaulted {
    /// The patch; empty when nothing is missing.
    pub operations: Vec<PatchOperation>,
    /// What the patch changes of what was written. Nobody is told of what was left out to be filled in.
    pub repairs: Vec<Repair>,
}

/// A value that was at fault, and has been mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The path of the field.
    pub field: String,
    /// The rule that would have refused it.
    pub rule: &'static str,
    /// What became of it, with the rule's id at its end.
    pub message: String,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// One operation of a JSON patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum PatchOperation {
    /// Adds a value that was absent.
    Add {
        /// JSON pointer (RFC 6901).
        path: Cow<'static, str>,
        /// What to add.
        value: Value,
    },
    /// Replaces a value that was there.
    Replace {
        /// JSON pointer (RFC 6901).
        path: Cow<'static, str>,
        /// What to put in its place.
        value: Value,
    },
}

/// Puts a patch to an object, both of them JSON. None when the patch was made for another object.
pub fn apply(object: &str, patch: &[PatchOperation]) -> Option<String> {
    let mut object: Value = serde_json::from_str(object).ok()?;
    let patch: json_patch::Patch = serde_json::from_value(serde_json::to_value(patch).ok()?).ok()?;
    json_patch::patch(&mut object, &patch).ok()?;
    Some(object.to_string())
}

/// Defaults for a `KubeadmControlPlane` (proposal, "And the following defaulting", and "Rollout strategy"):
/// replicas, the version's `v`, and the rollout strategy.
///
/// Replicas left out on an update keep the old object's number: Cluster API alone would make them 1, which scales a
/// control plane of three down.
pub fn default_control_plane(change: &Change<'_, KubeadmControlPlane<'_>>) -> Defaulted {
    if is_deletion(change.operation, change.old.map(|old| &old.metadata)) {
        return Defaulted::default();
    }
    let mut operations = Vec::new();
    if change.new.spec.replicas.is_none() {
        let replicas = change.old.and_then(|old| old.spec.replicas).unwrap_or(1);
        operations.push(PatchOperation::Add {
            path: "/spec/replicas".into(),
            value: json!(replicas),
        });
    }
    if let Some(given) = change.new.spec.version.as_deref()
        && !given.starts_with('v')
        && version::parse(given).is_ok()
    {
        operations.push(PatchOperation::Replace {
            path: "/spec/version".into(),
            value: json!(format!("v{given}")),
        });
    }
    operations.extend(default_strategy(change.new));
    Defaulted {
        operations,
        repairs: Vec::new(),
    }
}

/// Whether the object goes, or is going: of the new one, a client can say so of an object that stays.
fn is_deletion(operation: Operation, old: Option<&Metadata<'_>>) -> bool {
    operation == Operation::Delete || old.is_some_and(Metadata::is_deleting)
}

fn default_strategy(control_plane: &KubeadmControlPlane<'_>) -> Vec<PatchOperation> {
    let add = |path: Cow<'static, str>, value| PatchOperation::Add { path, value };
    let surge = json!({ "maxSurge": 1 });
    let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": surge });
    let shape = control_plane.shape();
    let pointer = match shape {
        Shape::V1Beta1 => "/spec/rolloutStrategy",
        Shape::V1Beta2 => "/spec/rollout/strategy",
    };
    let Some(given) = control_plane.rollout_strategy() else {
        return match shape {
            Shape::V1Beta2 if control_plane.spec.rollout.is_none() => {
                vec![add("/spec/rollout".into(), json!({ "strategy": strategy }))]
            }
            _ => vec![add(pointer.into(), strategy)],
        };
    };
    // What follows is for rolling updates only: another type is left for the rules to refuse.
    if given.kind.as_deref().is_some_and(|kind| kind != "RollingUpdate") {
        return Vec::new();
    }
    let mut operations = Vec::new();
    if given.kind.is_none() {
        operations.push(add(format!("{pointer}/type").into(), json!("RollingUpdate")));
    }
    match &given.rolling_update {
        None => operations.push(add(format!("{pointer}/rollingUpdate").into(), surge)),
        Some(given) if given.max_surge.is_none() => {
            operations.push(add(format!("{pointer}/rollingUpdate/maxSurge").into(), json!(1)));
        }
        Some(_) => {}
    }
    operations
}

/// Gives the JSON pointers of a `ClusterDeploymentCustomization` the leading slash that the design document's own
/// example leaves out: Hive would patch another place and report success.
///
/// An update that brings no such pointer changes none: what an object of old means stays, until somebody writes it anew.
pub fn default_customization(change: &Change<'_, ClusterDeploymentCustomization<'_>>) -> Defaulted {
    let mut defaulted = Defaulted::default();
    let unknown = change.operation == Operation::Update && change.old.is_none();
    if unknown || is_deletion(change.operation, change.old.map(|old| &old.metadata)) {
        return defaulted;
    }
    let pointers = |object| customization::pointers(object).filter(|pointer| is_repairable(pointer.text));
    let known: HashSet<_> = change
        .old
        .into_iter()
        .flat_map(pointers)
        .map(|pointer| pointer.text)
        .collect();
    for pointer in pointers(change.new).filter(|pointer| !known.contains(pointer.text)) {
        let repaired = format!("/{}", pointer.text);
        let rule = pointer.rule();
        defaulted.repairs.push(Repair {
            field: pointer.field(),
            rule,
            message: format!(
                "changed {} to {}: a JSON pointer starts with a slash ({rule})",
                quoted(pointer.text),
                quoted(&repaired),
            ),
        });
        defaulted.operations.push(PatchOperation::Replace {
            path: pointer.place().into(),
            value: json!(repaired),
        });
    }
    defaulted
}

/// Whether a relative pointer needs nothing but its slash. One of a single step may be meant in another syntax, such as
/// `metadata.name`.
fn is_repairable(pointer: &str) -> bool {
    let mut steps = pointer.split('/');
    pointer.contains('/')
        && steps.all(|step| !matches!(step, "" | "." | ".."))
        && customization::is_pointer(&format!("/{pointer}"))
}
