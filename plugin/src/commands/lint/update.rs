//! Merges an update with the old object, as an API server does before admission.

use kcp_api::{Object as _, PartialObjectMetadata};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::commands::lint::finding::{Fault, LintRule};

/// The metadata fields that a client cannot change, because the server keeps the old object's values.
const SERVER_METADATA: [&str; 4] = ["uid", "generation", "creationTimestamp", "deletionTimestamp"];

/// Whether an object, given as JSON, is being deleted.
pub(super) fn is_deleting(object: &str) -> bool {
    serde_json::from_str::<PartialObjectMetadata>(object).is_ok_and(|object| object.is_deleting())
}

/// The new object as the server would store it: with the status and the [`SERVER_METADATA`] of the old object. `None` if
/// either text is not a JSON object.
pub(super) fn merge_as_stored(new: &str, old: &str) -> Option<String> {
    let mut new: Map<String, Value> = serde_json::from_str(new).ok()?;
    let mut old: Map<String, Value> = serde_json::from_str(old).ok()?;
    keep("status", &mut new, &mut old);
    if let (Some(Value::Object(new)), Some(Value::Object(old))) =
        (new.get_mut("metadata"), old.get_mut("metadata"))
    {
        for field in SERVER_METADATA {
            keep(field, new, old);
        }
    }
    Some(Value::Object(new).to_string())
}

fn keep(field: &str, new: &mut Map<String, Value>, old: &mut Map<String, Value>) {
    match old.remove(field) {
        Some(value) => new.insert(field.to_owned(), value),
        None => new.remove(field),
    };
}

/// Returns a problem if the objects have different API versions. Only an API server can convert them; without
/// conversion, fields with different paths would look changed.
pub(super) fn version_mismatch(new: &str, old: &str) -> Option<Fault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Versioned {
        api_version: String,
    }
    let version = |object| serde_json::from_str::<Versioned>(object).map(|object| object.api_version);
    let (new, old) = (version(new).ok()?, version(old).ok()?);
    let message = format!(
        "Invalid value: {new:?}: the old object has API version {old}, so the update was not checked; write both \
         objects in the same API version"
    );
    (new != old).then(|| Fault::from_lint(LintRule::OldVersionOther, "apiVersion", &message))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{is_deleting, merge_as_stored};

    #[test]
    fn the_server_keeps_status_and_its_own_metadata() {
        let old = json!({
            "metadata": {"name": "a", "uid": "1", "generation": 4, "labels": {"x": "y"}},
            "spec": {"size": 1},
            "status": {"ready": 2}
        });
        let new = json!({
            "metadata": {"name": "a", "generation": 9, "deletionTimestamp": "2026-05-01T00:00:00Z"},
            "spec": {"size": 2},
            "status": {"ready": 7}
        });
        let stored = merge_as_stored(&new.to_string(), &old.to_string()).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&stored).unwrap(),
            json!({
                "metadata": {"name": "a", "uid": "1", "generation": 4},
                "spec": {"size": 2},
                "status": {"ready": 2}
            })
        );
        assert!(!is_deleting(&stored));
        assert!(is_deleting(&new.to_string()));
    }
}
