//! Where two JSON documents differ.

use serde_json::Value;

/// The paths at which two documents differ, as `a.b[2].c`, in order. Absent and null are equal. Without the values: they
/// may be secret.
pub fn differences(old: &Value, new: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    walk("", old, new, &mut paths);
    paths
}

fn walk(path: &str, old: &Value, new: &Value, paths: &mut Vec<String>) {
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
                let at =
                    |object: &'_ serde_json::Map<String, Value>| object.get(key).cloned().unwrap_or_default();
                walk(&child, &at(before), &at(after), paths);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                walk(&format!("{path}[{index}]"), before, after, paths);
            }
        }
        // An object that comes or goes is told by its fields, as far as it has any.
        (Value::Object(fields), Value::Null) | (Value::Null, Value::Object(fields)) if !fields.is_empty() => {
            let empty = Value::Object(serde_json::Map::new());
            let (before, after) = if old.is_null() {
                (&empty, new)
            } else {
                (old, &empty)
            };
            walk(path, before, after, paths);
        }
        (before, after) if before == after => {}
        _ => paths.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::differences;

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
