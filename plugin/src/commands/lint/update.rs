//! What an API server makes of an update before it is judged.

use kcp_rules::view::object::Object as Described;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::commands::lint::finding::{Fault, OwnRule};

/// Metadata that a client may leave out or write anything into: the server's own stays.
const KEPT_METADATA: [&str; 4] = ["uid", "generation", "creationTimestamp", "deletionTimestamp"];

/// Whether an object is being deleted.
pub(super) fn is_deleting(object: &str) -> bool {
    serde_json::from_str::<Described>(object).is_ok_and(|object| object.is_deleting())
}

/// The new object with what the server keeps of the old one: its status, which a write to the object itself leaves
/// alone, and [`KEPT_METADATA`]. None when one of the two is no object.
pub(super) fn stored(new: &str, old: &str) -> Option<String> {
    let mut new: Map<String, Value> = serde_json::from_str(new).ok()?;
    let mut old: Map<String, Value> = serde_json::from_str(old).ok()?;
    keep("status", &mut new, &mut old);
    if let (Some(Value::Object(new)), Some(Value::Object(old))) =
        (new.get_mut("metadata"), old.get_mut("metadata"))
    {
        for field in KEPT_METADATA {
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

/// Says that the versions differ. An API server would convert; without one, fields that moved would look changed.
pub(super) fn other_version(new: &str, old: &str) -> Option<Fault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Versioned {
        api_version: String,
    }
    let version = |object| serde_json::from_str::<Versioned>(object).map(|object| object.api_version);
    let (new, old) = (version(new).ok()?, version(old).ok()?);
    let message = format!(
        "Invalid value: {new:?}: the object as it was is of {old}, and the change to it was not judged; give both in \
         the same version"
    );
    (new != old).then(|| Fault::own(OwnRule::OldVersionOther, "apiVersion", &message))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{is_deleting, stored};

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
        let stored = stored(&new.to_string(), &old.to_string()).unwrap();
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
