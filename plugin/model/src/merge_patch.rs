//! Compares objects with JSON merge patches (RFC 7386) and with each other.

pub use json_patch::merge as apply;
use kcp_rules::api::{DecodeError, decode};
use serde_json::{Map, Value};

/// Applies a patch to an object that is given as JSON.
pub fn apply_to_json(text: &str, patch: &Value) -> Result<String, DecodeError> {
    let mut object: Value = decode(text)?;
    apply(&mut object, patch);
    Ok(object.to_string())
}

/// The merge patch that gives `from` the values of `to`, field by field. A list counts as one field.
pub fn between(from: &Value, to: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (from, to) else {
        return to.clone();
    };
    let empty = Value::Object(Map::new());
    let mut patch = Map::new();
    for (name, old) in before {
        // The fields of an object are removed one by one, because the patched object may have fields that `from` lacks.
        let new = after.get(name).unwrap_or(match old {
            Value::Object(_) => &empty,
            _ => &Value::Null,
        });
        if old != new {
            patch.insert(name.clone(), between(old, new));
        }
    }
    let added = after.iter().filter(|(name, _)| !before.contains_key(*name));
    patch.extend(added.map(|(name, new)| (name.clone(), new.clone())));
    Value::Object(patch)
}

/// Changes a patch of `object` so that it removes each nested object that it would leave empty. Many schemas allow no empty
/// objects.
pub fn remove_emptied(object: &Value, patch: &mut Value) {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return;
    };
    for (name, patch) in patch {
        let Some(mut value) = object.get(name).cloned().filter(|_| patch.is_object()) else {
            continue;
        };
        remove_emptied(&value, patch);
        apply(&mut value, patch);
        if value == Value::Object(Map::new()) {
            *patch = Value::Null;
        }
    }
}

/// Whether an object already has all values of the patch, so that the patch would not change it.
pub fn is_applied(object: &Value, patch: &Value) -> bool {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => patch.iter().all(|(name, patch)| {
            object
                .get(name)
                .map_or(is_empty(patch), |value| is_applied(value, patch))
        }),
        (value, patch) => value == patch,
    }
}

/// Whether a patch would leave an absent field absent.
fn is_empty(patch: &Value) -> bool {
    match patch {
        Value::Null => true,
        Value::Object(fields) => !fields.is_empty() && fields.values().all(is_empty),
        _ => false,
    }
}

/// The path of each field that a patch sets or removes. A list counts as one field.
pub fn fields(patch: &Value) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    collect_fields(&mut Vec::new(), patch, &mut found);
    found
}

fn collect_fields<'p>(path: &mut Vec<&'p str>, value: &'p Value, found: &mut Vec<Vec<&'p str>>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                path.push(name);
                collect_fields(path, value, found);
                path.pop();
            }
        }
        // A patch of the whole object has an empty path, which is not a field.
        _ if path.is_empty() => {}
        _ => found.push(path.clone()),
    }
}

/// Makes a patch set the field at these names to `value`; null makes the patch remove it.
pub fn set(patch: &mut Value, names: &[&str], value: Value) {
    let Some((name, rest)) = names.split_first() else {
        *patch = value;
        return;
    };
    if !patch.is_object() {
        *patch = Value::Object(Map::new());
    }
    if let Value::Object(fields) = patch {
        set(fields.entry(*name).or_insert(Value::Null), rest, value);
    }
}

pub fn value_at<'o>(object: &'o Value, path: &[&str]) -> Option<&'o Value> {
    path.iter().try_fold(object, |value, name| value.get(name))
}

/// Formats the path of a field, such as `spec.rollout.after` or `metadata.annotations[a.io/b]`.
pub fn display_path(path: &[&str]) -> String {
    let mut text = String::new();
    for name in path {
        if name.contains(['.', '/']) {
            text = format!("{text}[{name}]");
        } else if text.is_empty() {
            text.push_str(name);
        } else {
            text = format!("{text}.{name}");
        }
    }
    text
}

/// The paths at which two documents differ, such as `a.b[2].c`, sorted. Absent and null are equal. The result contains
/// no values, because they may be secret.
pub fn differences(old: &Value, new: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    compare("", old, new, &mut paths);
    paths
}

fn compare(path: &str, old: &Value, new: &Value, paths: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            let added = after.keys().filter(|key| !before.contains_key(*key));
            let mut keys: Vec<&String> = before.keys().chain(added).collect();
            keys.sort();
            for key in keys {
                let child = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                let value = |object: &'_ Map<String, Value>| object.get(key).cloned().unwrap_or_default();
                compare(&child, &value(before), &value(after), paths);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                compare(&format!("{path}[{index}]"), before, after, paths);
            }
        }
        // An object that was added or removed is reported field by field.
        (Value::Object(fields), Value::Null) | (Value::Null, Value::Object(fields)) if !fields.is_empty() => {
            let empty = Value::Object(Map::new());
            let (before, after) = if old.is_null() {
                (&empty, new)
            } else {
                (old, &empty)
            };
            compare(path, before, after, paths);
        }
        (before, after) if before == after => {}
        _ => paths.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{apply, between, differences, display_path, fields, is_applied, remove_emptied, value_at};

    #[test]
    fn the_patch_between_two_objects_changes_one_into_the_other() {
        for (from, to, expected) in [
            (json!({"a": 1, "b": [1]}), json!({"a": 1, "b": [1]}), json!({})),
            (json!({"a": 1}), json!({"a": 2}), json!({"a": 2})),
            (json!({"a": [1, 2]}), json!({"a": [2]}), json!({"a": [2]})),
            (json!({"a": 1, "b": 2}), json!({"b": 2}), json!({"a": null})),
            (json!({}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
            (
                json!({"a": {"b": {"c": 1, "d": 2}}}),
                json!({"a": {}}),
                json!({"a": {"b": {"c": null, "d": null}}}),
            ),
            (json!({"a": {"b": 1}}), json!({"a": [1]}), json!({"a": [1]})),
        ] {
            let patch = between(&from, &to);
            assert_eq!(patch, expected, "{from} {to}");
            let (mut patched, mut patch) = (from.clone(), patch);
            remove_emptied(&from, &mut patch);
            apply(&mut patched, &patch);
            let (mut wanted, unwanted) = (to, json!({"a": {}}));
            if wanted == unwanted {
                wanted = json!({});
            }
            assert_eq!(patched, wanted, "{patch}");
        }
    }

    #[test]
    fn what_a_patch_would_leave_empty_is_removed() {
        let object = json!({"a": {"b": {"c": 1}}, "d": {"e": 1, "f": 2}});
        for (mut patch, expected) in [
            (json!({"a": {"b": {"c": null}}}), json!({"a": null})),
            (json!({"a": {"b": {"c": 2}}}), json!({"a": {"b": {"c": 2}}})),
            (
                json!({"a": {"b": {"c": null, "x": 1}}}),
                json!({"a": {"b": {"c": null, "x": 1}}}),
            ),
            (json!({"d": {"e": null}}), json!({"d": {"e": null}})),
            (json!({"d": {"e": null, "f": null}}), json!({"d": null})),
            (json!({"x": {"y": 1}}), json!({"x": {"y": 1}})),
        ] {
            remove_emptied(&object, &mut patch);
            assert_eq!(patch, expected);
        }
    }

    #[test]
    fn applies_as_the_standard_has_it() {
        // The first cases are those of RFC 7386, appendix A.
        for (target, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (
                json!({}),
                json!({"a": {"bb": {"c": null}}}),
                json!({"a": {"bb": {}}}),
            ),
            (
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": null, "d": 3}}),
                json!({"a": {"c": 2, "d": 3}}),
            ),
        ] {
            let mut patched = target.clone();
            apply(&mut patched, &patch);
            assert_eq!(patched, expected, "{target} {patch}");
        }
    }

    #[test]
    fn tells_whether_anything_would_change() {
        for (object, patch, expected) in [
            (json!({"a": 1, "b": 2}), json!({"a": 1}), true),
            (json!({"a": 1}), json!({"a": 2}), false),
            (json!({"a": 1}), json!({"b": 2}), false),
            (json!({"a": {"b": 1}}), json!({"a": {"b": 1}}), true),
            (json!({"a": 1}), json!({"b": null}), true),
            (json!({"b": 1}), json!({"b": null}), false),
            (json!({}), json!({"a": {"b": null}}), true),
            (json!({"a": {}}), json!({"a": {"b": null}}), true),
            (json!({"a": {"b": 1}}), json!({"a": {"b": null}}), false),
            (json!({}), json!({"a": {}}), false),
            (json!({"a": [1]}), json!({"a": [1, 2]}), false),
        ] {
            assert_eq!(is_applied(&object, &patch), expected, "{object} {patch}");
        }
    }

    #[test]
    fn names_each_field() {
        let patch = json!({
            "metadata": {"annotations": {"cluster.x-k8s.io/paused": null}},
            "spec": {"replicas": 3, "rollout": {"after": "t"}, "list": [{"a": 1}]},
        });
        let names: Vec<String> = fields(&patch).iter().map(|path| display_path(path)).collect();
        assert_eq!(
            names,
            [
                "metadata.annotations[cluster.x-k8s.io/paused]",
                "spec.list",
                "spec.replicas",
                "spec.rollout.after"
            ]
        );
        for empty in [json!({}), json!(null)] {
            assert_eq!(fields(&empty), Vec::<Vec<&str>>::new());
        }
        assert_eq!(value_at(&patch, &["spec", "replicas"]), Some(&json!(3)));
        assert_eq!(value_at(&patch, &["spec", "none", "at"]), None);
    }

    #[test]
    fn tells_the_deepest_paths_that_differ() {
        for (old, new, expected) in [
            (json!({}), json!({}), vec![]),
            (json!({"a": null}), json!({}), vec![]),
            (
                json!({"a": 1, "b": 2}),
                json!({"b": 3, "c": 4}),
                vec!["a", "b", "c"],
            ),
            (
                json!({"a": {"b": [1, 2]}}),
                json!({"a": {"b": [1, 3]}}),
                vec!["a.b[1]"],
            ),
            (
                json!({"a": [{"b": 1}]}),
                json!({"a": [{"b": 1}, {"b": 2}]}),
                vec!["a"],
            ),
            (
                json!({}),
                json!({"a": {"b": 1, "c": {"d": 2}}}),
                vec!["a.b", "a.c.d"],
            ),
            (json!({"a": {"b": 1}}), json!({}), vec!["a.b"]),
            (json!({}), json!({"a": {}}), vec!["a"]),
            (json!({"a": [1]}), json!({"a": {"b": 1}}), vec!["a"]),
        ] {
            assert_eq!(differences(&old, &new), expected, "{old} {new}");
        }
    }
}
