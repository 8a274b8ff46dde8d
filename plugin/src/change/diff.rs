//! The values of the fields that a write changes, before and after the write.

use std::collections::BTreeMap;

use kcp_control_plane::{bundle::is_secret, merge_patch};
use serde_json::Value;

/// The fields that distinguish the entries of a list.
const KEYS: [&str; 2] = ["name", "path"];

/// The maximum length in bytes of a text that is shown. For longer text, only the size is shown.
const MAX_LENGTH: usize = 100;

/// One line for each value that a merge patch removes (`-`) or sets (`+`).
pub(crate) fn diff(object: &Value, patch: &Value) -> Vec<String> {
    let mut patched = object.clone();
    merge_patch::apply(&mut patched, patch);
    let [before, after] = [object, &patched].map(|object| {
        let mut values = BTreeMap::new();
        flatten(object, patch, "", &mut values);
        values
    });
    let mut paths: Vec<&String> = before.keys().chain(after.keys()).collect();
    paths.sort();
    paths.dedup();
    let mut lines = Vec::new();
    for path in paths {
        let (old, new) = (before.get(path), after.get(path));
        if old == new {
            continue;
        }
        lines.extend(old.map(|value| format!("- {path}: {}", shown(path, value))));
        lines.extend(new.map(|value| format!("+ {path}: {}", shown(path, value))));
    }
    lines
}

/// Collects from `value` the values of the fields that the patch contains, by path.
fn flatten<'v>(value: &'v Value, patch: &Value, parent: &str, values: &mut BTreeMap<String, &'v Value>) {
    let (Value::Object(fields), Value::Object(patched)) = (value, patch) else {
        return collect(value, parent, values);
    };
    for (name, patch) in patched {
        if let Some(value) = fields.get(name) {
            flatten(value, patch, &below(parent, name), values);
        }
    }
}

fn collect<'v>(value: &'v Value, path: &str, values: &mut BTreeMap<String, &'v Value>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                collect(value, &below(path, name), values);
            }
        }
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                match key(entry, entries) {
                    Some((key, name)) => {
                        for (field, value) in entry.as_object().into_iter().flatten() {
                            if field != key {
                                collect(value, &below(&format!("{path}[{name}]"), field), values);
                            }
                        }
                    }
                    None => collect(entry, &format!("{path}[{index}]"), values),
                }
            }
        }
        _ => {
            values.insert(path.to_owned(), value);
        }
    }
}

/// The field that tells an entry apart from all others, and its value.
fn key<'e>(entry: &'e Value, entries: &[Value]) -> Option<(&'static str, &'e str)> {
    KEYS.into_iter().find_map(|key| {
        let name = entry.get(key)?.as_str()?;
        let is_only = entries
            .iter()
            .filter(|other| other.get(key) == entry.get(key))
            .count()
            == 1;
        (is_only && entry.as_object()?.len() > 1).then_some((key, name))
    })
}

fn below(path: &str, name: &str) -> String {
    if name.contains(['.', '/']) {
        format!("{path}[{name}]")
    } else if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// A value on one line.
fn shown(path: &str, value: &Value) -> String {
    match value {
        Value::String(text) if text.len() > MAX_LENGTH || text.contains('\n') || is_secret(path) => {
            format!("({} bytes)", text.len())
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::diff;

    #[test]
    fn each_changed_field_is_shown_before_and_after() {
        let object = json!({
            "metadata": {"name": "c1", "annotations": {"a.io/b": "old"}},
            "spec": {"replicas": 3, "version": "v1.35.4", "args": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}],
                "users": [{"name": "u", "passwd": "secret"}],
                "files": [{"path": "/f", "content": "secret"}], "taints": [{"key": "k"}], "same": {"x": 1}},
        });
        let patch = json!({
            "metadata": {"annotations": {"a.io/b": null}},
            "spec": {"version": "v1.36.0", "users": null, "args": [{"name": "b", "value": "3"}, {"name": "c", "value": "4"}],
                "files": [{"path": "/f", "content": "secret"}, {"path": "/g", "content": "one\ntwo\n"}], "taints": null,
                "same": {"x": 1}},
        });
        assert_eq!(
            diff(&object, &patch),
            [
                "- metadata.annotations[a.io/b]: old",
                "- spec.args[a].value: 1",
                "- spec.args[b].value: 2",
                "+ spec.args[b].value: 3",
                "+ spec.args[c].value: 4",
                "+ spec.files[/g].content: (8 bytes)",
                "- spec.taints[0].key: k",
                "- spec.users[u].passwd: (6 bytes)",
                "- spec.version: v1.35.4",
                "+ spec.version: v1.36.0",
            ]
        );
        assert_eq!(
            diff(&json!({}), &json!({"spec": {"replicas": 3}})),
            ["+ spec.replicas: 3"]
        );
    }
}
