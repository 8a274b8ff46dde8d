//! What Hive's controllers write, as data: `recording.yaml`. Pure.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

const RECORDING: &str = include_str!("recording.yaml");

/// The name that replaces each placeholder, such as `pool` for `$pool`.
pub type Names = BTreeMap<&'static str, String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    writes: BTreeMap<String, Write>,
    /// The writes of each reconcile.
    sequences: BTreeMap<String, Vec<Vec<String>>>,
}

/// A write of one controller.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Write {
    /// The file and the function in Hive's sources.
    by: String,
    pub verb: Verb,
    object: Kind,
    subresource: Option<Subresource>,
    /// A merge patch, or the object to create.
    #[serde(default)]
    set: Value,
    /// Conditions without their times.
    #[serde(default)]
    conditions: Vec<Value>,
    add_finalizer: Option<String>,
    remove_finalizer: Option<String>,
    /// JSON pointers to fields that are omitted if they are empty.
    #[serde(default)]
    omitempty: Vec<String>,
    /// A merge patch for the controller's copy of the object, after the write.
    #[serde(default)]
    in_memory: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    Create,
    Update,
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Pool,
    Customization,
    Cluster,
    Claim,
    Namespace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Subresource {
    Status,
}

impl Recording {
    pub fn read() -> Result<Self> {
        serde_saphyr::from_str(RECORDING).context("reading recording.yaml")
    }

    pub fn sequence(&self, name: &str) -> Result<&[Vec<String>]> {
        let found = self.sequences.get(name);
        Ok(found.with_context(|| format!("no sequence {name} is recorded"))?)
    }

    pub fn write(&self, name: &str) -> Result<&Write> {
        self.writes
            .get(name)
            .with_context(|| format!("no write {name} is recorded"))
    }
}

impl Kind {
    /// The API path of the collection, and the name of the object.
    const fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::Pool => (
                "/apis/hive.openshift.io/v1/namespaces/$namespace/clusterpools",
                "$pool",
            ),
            Self::Customization => (
                "/apis/hive.openshift.io/v1/namespaces/$namespace/clusterdeploymentcustomizations",
                "$entry",
            ),
            Self::Cluster => (
                "/apis/hive.openshift.io/v1/namespaces/$cluster/clusterdeployments",
                "$cluster",
            ),
            Self::Claim => (
                "/apis/hive.openshift.io/v1/namespaces/$namespace/clusterclaims",
                "$claim",
            ),
            Self::Namespace => ("/api/v1/namespaces", "$cluster"),
        }
    }
}

impl Write {
    /// The API path of the object.
    pub fn object_path(&self, names: &Names) -> Result<String> {
        let (collection, name) = self.object.place();
        named(&format!("{collection}/{name}"), names)
    }

    /// The API path of the request.
    pub fn path(&self, names: &Names) -> Result<String> {
        if self.verb == Verb::Create {
            return named(self.object.place().0, names);
        }
        let path = self.object_path(names)?;
        Ok(match self.subresource {
            Some(Subresource::Status) => format!("{path}/status"),
            None => path,
        })
    }

    /// The object after the write; `None` if the write changes nothing, so that Hive omits it.
    pub fn applied(&self, object: &Value, names: &Names, now: Timestamp) -> Result<Option<Value>> {
        let mut changed = object.clone();
        json_patch::merge(&mut changed, &self.named(&self.set, names)?);
        for condition in &self.conditions {
            set_condition(&mut changed, &self.named(condition, names)?, self.object, now)?;
        }
        if let Some(finalizer) = &self.add_finalizer {
            finalizers(&mut changed, &named(finalizer, names)?, true)?;
        }
        if let Some(finalizer) = &self.remove_finalizer {
            finalizers(&mut changed, &named(finalizer, names)?, false)?;
        }
        if changed == *object {
            return Ok(None);
        }
        for field in &self.omitempty {
            let (parent, name) = field.rsplit_once('/').context("not a JSON pointer")?;
            let fields = changed.pointer_mut(parent).and_then(Value::as_object_mut);
            if let Some(fields) = fields
                && fields
                    .get(name)
                    .and_then(Value::as_array)
                    .is_some_and(Vec::is_empty)
            {
                fields.remove(name);
            }
        }
        Ok(Some(changed))
    }

    /// Changes the controller's copy of the object.
    pub fn remember(&self, copy: &mut Value, names: &Names) -> Result<()> {
        json_patch::merge(copy, &self.named(&self.in_memory, names)?);
        Ok(())
    }

    /// The merge patch with names instead of placeholders; an empty one instead of null.
    fn named(&self, patch: &Value, names: &Names) -> Result<Value> {
        Ok(match patch {
            Value::Null => json!({}),
            patch => all_named(patch, names).with_context(|| self.by.clone())?,
        })
    }
}

/// Sets a condition. Its `lastTransitionTime` stays if its status does, as in Hive.
fn set_condition(object: &mut Value, desired: &Value, kind: Kind, now: Timestamp) -> Result<()> {
    let status = object
        .as_object_mut()
        .context("not an object")?
        .entry("status")
        .or_insert_with(|| json!({}));
    let conditions = status
        .as_object_mut()
        .context("status is not an object")?
        .entry("conditions")
        .or_insert_with(|| json!([]));
    let conditions = conditions.as_array_mut().context("conditions are not a list")?;
    let now = json!(format!("{now:.0}"));
    let place = conditions
        .iter()
        .position(|condition| condition.get("type") == desired.get("type"));
    let old = place.and_then(|place| conditions.get(place));
    let is_same = |field: &str| old.is_some_and(|old| old.get(field) == desired.get(field));
    if ["status", "reason", "message"].into_iter().all(is_same) {
        return Ok(());
    }
    let transition = old
        .filter(|_| is_same("status"))
        .and_then(|old| old.get("lastTransitionTime"));
    let mut condition = desired.clone();
    let fields = condition
        .as_object_mut()
        .context("a condition is not an object")?;
    fields.insert(
        "lastTransitionTime".to_owned(),
        transition.unwrap_or(&now).clone(),
    );
    // The conditions of a customization are those of Kubernetes, which have no such field.
    if kind != Kind::Customization {
        fields.insert("lastProbeTime".to_owned(), now);
    }
    match place.and_then(|place| conditions.get_mut(place)) {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
    Ok(())
}

fn finalizers(object: &mut Value, finalizer: &str, is_wanted: bool) -> Result<()> {
    let metadata = object
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .context("no metadata")?;
    if !is_wanted && !metadata.contains_key("finalizers") {
        return Ok(());
    }
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    let finalizers = finalizers.as_array_mut().context("finalizers are not a list")?;
    let is_present = finalizers.iter().any(|one| one == finalizer);
    if is_wanted && !is_present {
        finalizers.push(finalizer.into());
    }
    if !is_wanted {
        finalizers.retain(|one| one != finalizer);
    }
    Ok(())
}

fn all_named(value: &Value, names: &Names) -> Result<Value> {
    Ok(match value {
        Value::String(text) => named(text, names)?.into(),
        Value::Array(items) => {
            let items = items.iter().map(|item| all_named(item, names));
            items.collect::<Result<Vec<_>>>()?.into()
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(field, value)| Ok((field.clone(), all_named(value, names)?)));
            Value::Object(fields.collect::<Result<_>>()?)
        }
        other => other.clone(),
    })
}

/// Replaces each placeholder, which is a `$` with small letters.
fn named(text: &str, names: &Names) -> Result<String> {
    let mut parts = text.split('$');
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|character: char| !character.is_ascii_lowercase())
            .unwrap_or(part.len());
        let (placeholder, rest) = part.split_at(end);
        let Some(name) = names.get(placeholder) else {
            bail!("nothing replaces ${placeholder} in {text}");
        };
        result.push_str(name);
        result.push_str(rest);
    }
    Ok(result)
}
