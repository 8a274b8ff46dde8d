//! Default values for the fields that an object omits: set in the decoded object, and as a JSON patch (RFC 6902).
//!
//! Setting them again changes nothing. A patch adds only what is missing, so that it does not overwrite fields that another
//! mutating webhook has written.

use std::{collections::HashSet, fmt};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    api::{
        Cluster, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, IntOrString,
        KubeadmControlPlane, KubeadmControlPlaneTemplate, Text,
        control_plane::{RollingUpdate, RolloutStrategy, Shape},
    },
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

/// One operation of a JSON patch. `path` is a JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PatchOperation {
    op: &'static str,
    path: String,
    value: Value,
}

/// A kind whose defaults the webhook sets. Most kinds have none.
pub trait SetDefaults: Sized {
    /// Sets the defaults in a new object. `old` is the stored object of an update.
    fn set_defaults(&mut self, _old: Option<&Self>) -> Defaulted {
        Defaulted::default()
    }
}

impl SetDefaults for Cluster<'_> {}
impl SetDefaults for KubeadmControlPlaneTemplate<'_> {}
impl SetDefaults for ClusterPool<'_> {}
impl SetDefaults for ClusterDeployment<'_> {}

/// Cluster API supports no other rollout strategy. A rule denies any other type.
const ROLLING_UPDATE: &str = "RollingUpdate";

/// The default of Cluster API.
const DEFAULT_MAX_SURGE: i64 = 1;

/// Sets the number of replicas, the leading `v` of the version, and the rollout strategy (proposal, sections "And the following
/// defaulting" and "Rollout strategy").
///
/// If an update omits replicas, the default is the old number. Otherwise Cluster API would set 1, and scale
/// down a control plane of three.
impl SetDefaults for KubeadmControlPlane<'_> {
    fn set_defaults(&mut self, old: Option<&Self>) -> Defaulted {
        let mut defaulted = Defaulted::default();
        // Only the old object counts, because any client can set a deletionTimestamp in the new object.
        if old.is_some_and(|old| old.metadata.is_deleting()) {
            return defaulted;
        }
        let shape = self.shape();
        let spec = &mut self.spec;
        let mut set = Setter(&mut defaulted.operations);
        let replicas = old.and_then(|old| old.spec.replicas).unwrap_or(1);
        set.absent("/spec/replicas", &mut spec.replicas, replicas, json!(replicas));
        if let Some(version) = spec.version.as_deref().and_then(with_v) {
            set.replace("/spec/version", version.clone());
            spec.version = Some(version.into());
        }
        let (path, strategy) = match shape {
            Shape::V1Beta1 => ("/spec/rolloutStrategy", &mut spec.rollout_strategy),
            Shape::V1Beta2 => {
                let rollout = set.empty("/spec/rollout", &mut spec.rollout);
                ("/spec/rollout/strategy", &mut rollout.strategy)
            }
        };
        let strategy: &mut RolloutStrategy<'_> = set.empty(path, strategy);
        let kind = Text::from(ROLLING_UPDATE);
        let kind = set.absent(
            &format!("{path}/type"),
            &mut strategy.kind,
            kind,
            json!(ROLLING_UPDATE),
        );
        if &**kind == ROLLING_UPDATE {
            let path = format!("{path}/rollingUpdate");
            let rolling_update: &mut RollingUpdate<'_> = set.empty(&path, &mut strategy.rolling_update);
            let (path, surge) = (format!("{path}/maxSurge"), IntOrString::Int(DEFAULT_MAX_SURGE));
            set.absent(
                &path,
                &mut rolling_update.max_surge,
                surge,
                json!(DEFAULT_MAX_SURGE),
            );
        }
        defaulted
    }
}

/// Sets fields in a decoded object, and adds the operation for each to a patch.
struct Setter<'p>(&'p mut Vec<PatchOperation>);

impl Setter<'_> {
    fn absent<'f, T>(&mut self, path: &str, field: &'f mut Option<T>, value: T, json: Value) -> &'f mut T {
        if field.is_none() {
            self.push("add", path, json);
        }
        field.get_or_insert(value)
    }

    fn empty<'f, T: Default>(&mut self, path: &str, field: &'f mut Option<T>) -> &'f mut T {
        self.absent(path, field, T::default(), json!({}))
    }

    fn replace(&mut self, path: &str, text: String) {
        self.push("replace", path, text.into());
    }

    fn push(&mut self, op: &'static str, path: &str, value: Value) {
        let path = path.to_owned();
        self.0.push(PatchOperation { op, path, value });
    }
}

/// A version with a leading `v` added; `None` if it already starts with `v`, or is not a valid version.
fn with_v(version: &str) -> Option<String> {
    (!version.starts_with('v') && parse_version(version).is_ok()).then(|| format!("v{version}"))
}

/// Adds the leading slash to the JSON pointers of a `ClusterDeploymentCustomization`. The example in the design
/// document omits the slash. Without it, Hive patches the wrong field and reports success.
///
/// In an update, pointers of the old object stay as they are, so that an unrelated edit does not change what
/// they patch.
impl SetDefaults for ClusterDeploymentCustomization<'_> {
    fn set_defaults(&mut self, old: Option<&Self>) -> Defaulted {
        let mut defaulted = Defaulted::default();
        if old.is_some_and(|old| old.metadata.is_deleting()) {
            return defaulted;
        }
        let known: HashSet<_> = old.into_iter().flat_map(customization::pointers).collect();
        for pointer in customization::pointers_mut(self) {
            if !is_repairable(pointer.text) || known.contains(&**pointer.text) {
                continue;
            }
            pointer.text.insert(0, '/');
            let (field, rule) = (pointer.field, pointer.rule);
            let path = format!("/{}", field.replace('[', "/").replace(']', "").replace('.', "/"));
            Setter(&mut defaulted.operations).replace(&path, pointer.text.clone());
            defaulted.corrections.push(Correction {
                field,
                rule,
                message: format!("added the leading slash that a JSON pointer must have ({rule})"),
            });
        }
        defaulted
    }
}

/// Whether a relative pointer becomes correct with a leading slash. A pointer with a single step is not corrected,
/// because it may have another syntax, such as `metadata.name`.
fn is_repairable(pointer: &str) -> bool {
    let mut steps = pointer.split('/');
    pointer.contains('/')
        && steps.all(|step| !matches!(step, "" | "." | ".."))
        && customization::is_pointer(&format!("/{pointer}"))
}
