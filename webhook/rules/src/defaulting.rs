//! Default values as minimal JSON patches (RFC 6902) for the fields that an object omits.
//!
//! Each function is idempotent: it returns no operations for an object that has already been patched. It adds only the
//! deepest missing parent, so that it does not overwrite fields that another mutating webhook has written.

use std::{borrow::Cow, collections::HashSet, fmt, sync::LazyLock};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    api::{
        ClusterDeploymentCustomization, IntOrString, KubeadmControlPlane, Metadata, Text,
        control_plane::Shape,
    },
    change::{Change, Operation},
    syntax::parse_version,
    topics::customization,
};

/// The JSON patch with the default values for an object, and the corrections to report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaulted {
    /// The JSON patch; empty if the object omits no field with a default.
    pub operations: Vec<PatchOperation>,
    /// The invalid values that the patch corrects. Added defaults are not reported.
    pub corrections: Vec<Correction>,
}

/// An invalid value that the patch corrects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    pub field: String,
    /// The rule that would have denied the value.
    pub rule: &'static str,
    /// A message about the change, with the rule id at the end. It does not contain the value, which may be secret.
    pub message: String,
}

impl fmt::Display for Correction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// One operation of a JSON patch. Each `path` is a JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum PatchOperation {
    Add {
        path: Cow<'static, str>,
        value: Cow<'static, Value>,
    },
    Replace {
        path: Cow<'static, str>,
        value: Cow<'static, Value>,
    },
}

/// Applies a patch to an object in JSON. `None` if the patch cannot be applied to the object.
pub fn apply(object: &str, patch: &[PatchOperation]) -> Option<String> {
    let mut object: Value = serde_json::from_str(object).ok()?;
    let patch: json_patch::Patch = serde_json::from_value(serde_json::to_value(patch).ok()?).ok()?;
    json_patch::patch(&mut object, &patch).ok()?;
    Some(object.to_string())
}

/// Default values for a `KubeadmControlPlane`: replicas, the leading `v` of the version, and the rollout
/// strategy (proposal, sections "And the following defaulting" and "Rollout strategy").
///
/// If an update omits replicas, the default is the old number. Otherwise Cluster API would set 1, and scale
/// down a control plane of three.
pub fn default_control_plane(change: &Change<'_, KubeadmControlPlane<'_>>) -> Defaulted {
    if is_deletion(change.operation, change.old.map(|old| &old.metadata)) {
        return Defaulted::default();
    }
    let mut operations = Vec::new();
    if change.new.spec.replicas.is_none() {
        operations.push(PatchOperation::Add {
            path: "/spec/replicas".into(),
            value: Cow::Owned(json!(default_replicas(change.old))),
        });
    }
    if let Some(version) = version_with_v(change.new) {
        operations.push(PatchOperation::Replace {
            path: "/spec/version".into(),
            value: Cow::Owned(json!(version)),
        });
    }
    operations.extend(default_strategy(change.new));
    Defaulted {
        operations,
        corrections: Vec::new(),
    }
}

/// Sets the values of [`default_control_plane`] in the decoded object. The result is the object that would be decoded from
/// the patched text, which takes ten times as long to create.
pub fn set_control_plane_defaults(new: &mut KubeadmControlPlane<'_>, old: Option<&KubeadmControlPlane<'_>>) {
    if is_deletion(Operation::Update, old.map(|old| &old.metadata)) {
        return;
    }
    new.spec.replicas.get_or_insert_with(|| default_replicas(old));
    if let Some(version) = version_with_v(new) {
        new.spec.version = Some(Text::from(version));
    }
    let strategy = match new.shape() {
        Shape::V1Beta1 => &mut new.spec.rollout_strategy,
        Shape::V1Beta2 => &mut new.spec.rollout.get_or_insert_default().strategy,
    };
    let strategy = strategy.get_or_insert_default();
    if &**strategy.kind.get_or_insert_with(|| ROLLING_UPDATE.into()) == ROLLING_UPDATE {
        let rolling_update = strategy.rolling_update.get_or_insert_default();
        rolling_update
            .max_surge
            .get_or_insert(IntOrString::Int(DEFAULT_MAX_SURGE));
    }
}

/// Cluster API supports no other rollout strategy. A rule denies any other type.
const ROLLING_UPDATE: &str = "RollingUpdate";

/// The default of Cluster API.
const DEFAULT_MAX_SURGE: i64 = 1;

fn default_replicas(old: Option<&KubeadmControlPlane<'_>>) -> i64 {
    old.and_then(|old| old.spec.replicas).unwrap_or(1)
}

/// The version with a leading `v` added; `None` if it already starts with `v`, or is not a valid version.
fn version_with_v(control_plane: &KubeadmControlPlane<'_>) -> Option<String> {
    let version = control_plane.spec.version.as_deref()?;
    (!version.starts_with('v') && parse_version(version).is_ok()).then(|| format!("v{version}"))
}

/// Whether the object is being deleted, according to the old object. Any client can set a deletionTimestamp
/// in the new object.
fn is_deletion(operation: Operation, old: Option<&Metadata<'_>>) -> bool {
    operation == Operation::Delete || old.is_some_and(Metadata::is_deleting)
}

/// The default rollout, and the strategy in it. They are created once, because most creations of a control plane need one of them.
struct DefaultRollout {
    rollout: Value,
    strategy: Value,
}

static DEFAULT_ROLLOUT: LazyLock<DefaultRollout> = LazyLock::new(|| {
    let strategy = json!({ "type": ROLLING_UPDATE, "rollingUpdate": default_rolling_update() });
    DefaultRollout {
        rollout: json!({ "strategy": strategy }),
        strategy,
    }
});

fn default_rolling_update() -> Value {
    json!({ "maxSurge": DEFAULT_MAX_SURGE })
}

fn default_strategy(control_plane: &KubeadmControlPlane<'_>) -> Vec<PatchOperation> {
    let add = |path: Cow<'static, str>, value: Cow<'static, Value>| PatchOperation::Add { path, value };
    let shape = control_plane.shape();
    let pointer = match shape {
        Shape::V1Beta1 => "/spec/rolloutStrategy",
        Shape::V1Beta2 => "/spec/rollout/strategy",
    };
    let Some(given) = control_plane.rollout_strategy() else {
        return match shape {
            Shape::V1Beta2 if control_plane.spec.rollout.is_none() => {
                vec![add(
                    "/spec/rollout".into(),
                    Cow::Borrowed(&DEFAULT_ROLLOUT.rollout),
                )]
            }
            _ => vec![add(pointer.into(), Cow::Borrowed(&DEFAULT_ROLLOUT.strategy))],
        };
    };
    if given.kind.as_deref().is_some_and(|kind| kind != ROLLING_UPDATE) {
        return Vec::new();
    }
    let mut operations = Vec::new();
    if given.kind.is_none() {
        let path = format!("{pointer}/type");
        operations.push(add(path.into(), Cow::Owned(json!(ROLLING_UPDATE))));
    }
    match &given.rolling_update {
        None => {
            let path = format!("{pointer}/rollingUpdate");
            operations.push(add(path.into(), Cow::Owned(default_rolling_update())));
        }
        Some(given) if given.max_surge.is_none() => {
            let path = format!("{pointer}/rollingUpdate/maxSurge");
            operations.push(add(path.into(), Cow::Owned(json!(DEFAULT_MAX_SURGE))));
        }
        Some(_) => {}
    }
    operations
}

/// Adds the leading slash to the JSON pointers of a `ClusterDeploymentCustomization`. The example in the design
/// document omits the slash. Without it, Hive patches the wrong field and reports success.
///
/// In an update, pointers of the old object stay as they are, so that an unrelated edit does not change what
/// they patch.
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
        defaulted.corrections.push(Correction {
            field: pointer.field(),
            rule,
            message: format!("added the leading slash that a JSON pointer must have ({rule})"),
        });
        defaulted.operations.push(PatchOperation::Replace {
            path: pointer.json_pointer().into(),
            value: Cow::Owned(json!(repaired)),
        });
    }
    defaulted
}

/// Whether a relative pointer becomes correct with a leading slash. A pointer with a single step is not corrected,
/// because it may have another syntax, such as `metadata.name`.
fn is_repairable(pointer: &str) -> bool {
    let mut steps = pointer.split('/');
    pointer.contains('/')
        && steps.all(|step| !matches!(step, "" | "." | ".."))
        && customization::is_pointer(&format!("/{pointer}"))
}
