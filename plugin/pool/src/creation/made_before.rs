//! What stands already where an object of a cluster is to be made. Pure.

use serde_json::{Map, Value, json};

use crate::objects::record::LABEL;

/// What an object that is there is to the one that is to be made. It may have a pull secret: there is no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub enum Before {
    AsWanted,
    /// Ours, from an earlier lease or another install-config. The merge patch makes it as wanted, and the server refuses
    /// it once the object has changed.
    Outdated(Value),
    /// Somebody else's.
    Foreign,
}

/// Compares this field of the two.
pub fn compare(found: &Value, wanted: &Value, field: &str) -> Before {
    let of = |object: &Value| object.get(field).cloned().unwrap_or_else(|| json!({}));
    let (has, wants) = (of(found), of(wanted));
    if has == wants {
        return Before::AsWanted;
    }
    let labels = found.pointer("/metadata/labels");
    if labels.and_then(|labels| labels.get(LABEL)).is_none() {
        return Before::Foreign;
    }
    Before::Outdated(json!({
        "metadata": {"resourceVersion": found.pointer("/metadata/resourceVersion")},
        field: replacing(&has, &wants),
    }))
}

/// The merge patch that turns one value into the other: null removes a field.
fn replacing(has: &Value, wants: &Value) -> Value {
    let (Value::Object(has), Value::Object(wants)) = (has, wants) else {
        return wants.clone();
    };
    let removed = has.keys().filter(|field| !wants.contains_key(*field));
    let mut patch: Map<_, _> = removed.map(|field| (field.clone(), Value::Null)).collect();
    for (field, wanted) in wants {
        let value = has
            .get(field)
            .map_or_else(|| wanted.clone(), |has| replacing(has, wanted));
        patch.insert(field.clone(), value);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Before, compare};

    #[test]
    fn what_is_there_is_kept_replaced_or_somebody_elses() {
        let wanted = json!({"spec": {"a": [1], "b": {"c": 1}}});
        let found = |labels: Value, spec: Value| json!({"metadata": {"resourceVersion": "7", "labels": labels}, "spec": spec});
        let ours = json!({"kubectl-kcp.dev/pool-lease": "true"});
        let same = json!({"a": [1], "b": {"c": 1}});
        let other = json!({"a": [2], "b": {"d": 1}, "e": 1});
        for (case, found, is_foreign) in [
            ("the same", found(ours.clone(), same.clone()), None),
            ("the same of another", found(json!({}), same), None),
            (
                "ours, and another",
                found(ours.clone(), other.clone()),
                Some(false),
            ),
            ("ours, and empty", found(ours, json!({})), Some(false)),
            ("another's", found(json!({}), other.clone()), Some(true)),
            ("another's without labels", found(Value::Null, other), Some(true)),
        ] {
            match compare(&found, &wanted, "spec") {
                Before::AsWanted => assert_eq!(is_foreign, None, "{case}"),
                Before::Foreign => assert_eq!(is_foreign, Some(true), "{case}"),
                Before::Outdated(patch) => {
                    assert_eq!(is_foreign, Some(false), "{case}");
                    assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}), "{case}");
                    let mut replaced = found;
                    json_patch::merge(&mut replaced, &patch);
                    assert_eq!(replaced["spec"], wanted["spec"], "{case}");
                }
            }
        }
    }
}
