//! A step of a migration: a change of a control plane that can be reversed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

const CONTROLLER_MANAGER: [&str; 4] = [
    "spec",
    "kubeadmConfigSpec",
    "clusterConfiguration",
    "controllerManager",
];

/// What a step sets or removes. Everything else stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MigrationStep {
    /// The new `spec.version`, if the step changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Flags of kube-controller-manager with all their values, by name. A flag without a value is removed.
    pub flags: BTreeMap<String, Vec<String>>,
    /// Volumes of kube-controller-manager by name. Null removes a volume.
    pub volumes: BTreeMap<String, Value>,
    /// Entries of `files` by path. Null removes an entry.
    pub files: BTreeMap<String, Value>,
}

impl MigrationStep {
    /// The step that restores the control plane as it is now.
    #[must_use]
    pub fn inverse(&self, control_plane: &Value) -> Self {
        let find = |path: &[&str]| path.iter().try_fold(control_plane, |value, name| value.get(name));
        let manager = find(&CONTROLLER_MANAGER);
        let entries = |list: Option<&Value>, key: &str, names: &BTreeMap<String, Value>| {
            let entry = |name: &str| {
                let mut entries = list.and_then(Value::as_array)?.iter();
                entries.find(|entry| is_named(entry, key, name)).cloned()
            };
            let names = names.keys();
            names
                .map(|name| (name.clone(), entry(name).unwrap_or_default()))
                .collect()
        };
        let flags = manager.and_then(|manager| manager.get("extraArgs"));
        Self {
            version: self
                .version
                .as_ref()
                .and_then(|_| Some(find(&["spec", "version"])?.as_str()?.to_owned())),
            flags: self
                .flags
                .keys()
                .map(|name| (name.clone(), values(flags, name)))
                .collect(),
            volumes: entries(
                manager.and_then(|manager| manager.get("extraVolumes")),
                "name",
                &self.volumes,
            ),
            files: entries(find(&["spec", "kubeadmConfigSpec", "files"]), "path", &self.files),
        }
    }

    /// The control plane after the step.
    #[must_use]
    pub fn taken(&self, control_plane: &Value) -> Value {
        let mut object = control_plane.clone();
        if let (Some(version), Some(spec)) = (&self.version, object_at(&mut object, &["spec"])) {
            spec.insert("version".to_owned(), json!(version));
        }
        let is_map = control_plane
            .get("apiVersion")
            .and_then(Value::as_str)
            .is_some_and(|version| version.ends_with("/v1beta1"));
        if !(self.flags.is_empty() && self.volumes.is_empty())
            && let Some(manager) = object_at(&mut object, &CONTROLLER_MANAGER)
        {
            if is_map {
                set_flags_of_map(manager, &self.flags);
            } else {
                edit(manager, "extraArgs", |list| {
                    for (name, values) in &self.flags {
                        let flags = values.iter().map(|value| json!({"name": name, "value": value}));
                        replace(list, "name", name, flags.collect());
                    }
                });
            }
            set_entries(manager, "extraVolumes", "name", &self.volumes);
            remove_if_empty(&mut object, &CONTROLLER_MANAGER);
            let [spec, kubeadm, cluster, _] = CONTROLLER_MANAGER;
            remove_if_empty(&mut object, &[spec, kubeadm, cluster]);
        }
        if !self.files.is_empty()
            && let Some(spec) = object_at(&mut object, &["spec", "kubeadmConfigSpec"])
        {
            set_entries(spec, "files", "path", &self.files);
        }
        object
    }
}

fn is_named(entry: &Value, key: &str, name: &str) -> bool {
    let dashed = |name: &str| name.replace('_', "-");
    let known = entry.get(key).and_then(Value::as_str);
    // The components treat underscores in the names of flags as dashes.
    known.is_some_and(|known| known == name || (key == "name" && dashed(known) == dashed(name)))
}

/// The values of a flag in either API version.
fn values(flags: Option<&Value>, name: &str) -> Vec<String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    match flags {
        Some(Value::Object(map)) => map.get(name).map(|value| text(Some(value))).into_iter().collect(),
        Some(Value::Array(list)) => list
            .iter()
            .filter(|flag| is_named(flag, "name", name))
            .map(|flag| text(flag.get("value")))
            .collect(),
        _ => Vec::new(),
    }
}

fn set_flags_of_map(manager: &mut Map<String, Value>, flags: &BTreeMap<String, Vec<String>>) {
    let Some(map) = manager
        .entry("extraArgs")
        .or_insert_with(|| json!({}))
        .as_object_mut()
    else {
        return;
    };
    for (name, values) in flags {
        match values.last() {
            Some(value) => map.insert(name.clone(), json!(value)),
            None => map.remove(name),
        };
    }
    if map.is_empty() {
        manager.remove("extraArgs");
    }
}

fn set_entries(parent: &mut Map<String, Value>, list: &str, key: &str, entries: &BTreeMap<String, Value>) {
    edit(parent, list, |list| {
        for (name, entry) in entries {
            let entry = Some(entry.clone()).filter(|entry| !entry.is_null());
            replace(list, key, name, entry.into_iter().collect());
        }
    });
}

/// Changes a list, and removes it if it becomes empty, because the API does not accept an empty list.
fn edit(parent: &mut Map<String, Value>, name: &str, change: impl FnOnce(&mut Vec<Value>)) {
    let list = parent.get(name).and_then(Value::as_array).cloned();
    let mut changed = list.unwrap_or_default();
    change(&mut changed);
    if changed.is_empty() {
        parent.remove(name);
    } else {
        parent.insert(name.to_owned(), Value::Array(changed));
    }
}

/// Replaces the entries whose `key` is `name` with `entries`, at the position of the first one. If there are
/// none, appends `entries`.
fn replace(list: &mut Vec<Value>, key: &str, name: &str, entries: Vec<Value>) {
    let first = list.iter().position(|entry| is_named(entry, key, name));
    let index = first.unwrap_or(list.len());
    list.retain(|entry| !is_named(entry, key, name));
    list.splice(index..index, entries);
}

/// Returns the object at a path, and creates it if it is missing.
fn object_at<'v>(value: &'v mut Value, path: &[&str]) -> Option<&'v mut Map<String, Value>> {
    let mut value = value;
    for name in path {
        value = value.as_object_mut()?.entry(*name).or_insert(Value::Null);
        if value.is_null() {
            *value = json!({});
        }
    }
    value.as_object_mut()
}

/// Removes an object without fields, which the API does not accept.
fn remove_if_empty(value: &mut Value, path: &[&str]) {
    let Some((name, parents)) = path.split_last() else {
        return;
    };
    let mut parent = Some(value);
    for name in parents {
        parent = parent.and_then(|parent| parent.get_mut(name));
    }
    if let Some(parent) = parent.and_then(Value::as_object_mut)
        && parent
            .get(*name)
            .and_then(Value::as_object)
            .is_some_and(Map::is_empty)
    {
        parent.remove(*name);
    }
}

/// The operations of a JSON patch (RFC 6902) that turn `old` into `new`. They contain no unchanged values, because the
/// other files of a control plane may contain secrets.
pub fn operations(old: &Value, new: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    compare("", old, new, &mut found);
    found
}

fn compare(path: &str, old: &Value, new: &Value, found: &mut Vec<Value>) {
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            let removed = before.keys().filter(|name| !after.contains_key(*name));
            found.extend(removed.map(|name| remove(&child(path, name))));
            for (name, value) in after {
                match before.get(name) {
                    Some(old) => compare(&child(path, name), old, value, found),
                    None => found.push(add(&child(path, name), value)),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => compare_lists(path, before, after, found),
        (old, new) if old == new => {}
        (_, new) => found.push(json!({"op": "replace", "path": path, "value": new})),
    }
}

fn compare_lists(path: &str, before: &[Value], after: &[Value], found: &mut Vec<Value>) {
    let mut list = before.to_vec();
    for (index, item) in before.iter().enumerate().rev() {
        if !after.contains(item) {
            list.remove(index);
            found.push(remove(&format!("{path}/{index}")));
        }
    }
    for (index, item) in after.iter().enumerate() {
        if list.get(index) != Some(item) {
            list.insert(index, item.clone());
            found.push(add(&format!("{path}/{index}"), item));
        }
    }
    let left = (after.len()..list.len()).rev();
    found.extend(left.map(|index| remove(&format!("{path}/{index}"))));
}

fn add(path: &str, value: &Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

fn remove(path: &str) -> Value {
    json!({"op": "remove", "path": path})
}

/// The JSON pointer (RFC 6901) to a field of the object at `path`.
fn child(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control_plane(version: &str, cluster: &Value, files: &Value) -> Value {
        let mut object = json!({"apiVersion": format!("controlplane.cluster.x-k8s.io/{version}"),
            "spec": {"version": "v1.35.4", "kubeadmConfigSpec": {"initConfiguration": {"patches": {}}}}});
        let spec = &mut object["spec"]["kubeadmConfigSpec"];
        if !cluster.is_null() {
            spec["clusterConfiguration"] = cluster.clone();
        }
        if !files.is_null() {
            spec["files"] = files.clone();
        }
        object
    }

    /// A value to which another library applies our patch.
    fn patched(old: &Value, new: &Value) -> Value {
        let patch: json_patch::Patch = serde_json::from_value(operations(old, new).into()).unwrap();
        let mut patched = old.clone();
        json_patch::patch(&mut patched, &patch).unwrap();
        patched
    }

    fn step() -> MigrationStep {
        let map = |name: &str, value: Value| BTreeMap::from([(name.to_owned(), value)]);
        MigrationStep {
            version: Some("v1.36.0".to_owned()),
            flags: BTreeMap::from([
                ("a".to_owned(), vec!["new".to_owned()]),
                ("gone".to_owned(), Vec::new()),
            ]),
            volumes: map("v", json!({"name": "v", "hostPath": "/v"})),
            files: map("/f", json!({"path": "/f", "content": "new"})),
        }
    }

    #[test]
    fn a_step_and_its_inverse_restore_every_control_plane_exactly() {
        let flags = json!([{"name": "first", "value": "1"}, {"name": "a", "value": "x"}, {"name": "gone", "value": "y"}]);
        let volume = json!([{"name": "v", "hostPath": "/old"}, {"name": "w"}]);
        for (case, object) in [
            ("nothing", control_plane("v1beta2", &json!(null), &json!(null))),
            (
                "other settings",
                control_plane(
                    "v1beta2",
                    &json!({"dns": {"imageTag": "v1"}, "controllerManager": {"extraEnvs": [1]}}),
                    &json!([{"path": "/other"}]),
                ),
            ),
            (
                "the same entries",
                control_plane(
                    "v1beta2",
                    &json!({"controllerManager": {"extraArgs": flags, "extraVolumes": volume}}),
                    &json!([{"path": "/other"}, {"path": "/f", "content": "old"}]),
                ),
            ),
            (
                "a flag with underscores, and one that repeats",
                control_plane(
                    "v1beta2",
                    &json!({"controllerManager": {"extraArgs": [
                        {"name": "a", "value": "1"}, {"name": "a", "value": "2"}, {"name": "gone", "value": "y"}]}}),
                    &json!(null),
                ),
            ),
            (
                "flags as a map",
                control_plane(
                    "v1beta1",
                    &json!({"controllerManager": {"extraArgs": {"a": "x", "gone": "y"}, "extraVolumes": volume}}),
                    &json!(null),
                ),
            ),
        ] {
            let after = step().taken(&object);
            assert_ne!(after, object, "{case}");
            assert_eq!(after["spec"]["version"], json!("v1.36.0"), "{case}");
            assert_eq!(step().taken(&after), after, "{case}: the step is taken");
            assert_eq!(step().inverse(&object).taken(&after), object, "{case}");
            assert_eq!(patched(&object, &after), after, "{case}");
            assert_eq!(patched(&after, &object), object, "{case}");
        }
    }

    #[test]
    fn entries_keep_their_place_and_others_stay() {
        let object = control_plane(
            "v1beta2",
            &json!({"controllerManager": {"extraArgs": [
                {"name": "a", "value": "x"}, {"name": "gone", "value": "y"}, {"name": "b", "value": "z"}]}}),
            &json!([{"path": "/f"}, {"path": "/g"}]),
        );
        let manager = "/spec/kubeadmConfigSpec/clusterConfiguration/controllerManager";
        let field = |path: &str| format!("{manager}/{path}");
        assert_eq!(
            operations(&object, &step().taken(&object)),
            [
                remove(&field("extraArgs/1")),
                remove(&field("extraArgs/0")),
                add(&field("extraArgs/0"), &json!({"name": "a", "value": "new"})),
                add(&field("extraVolumes"), &json!([{"name": "v", "hostPath": "/v"}])),
                remove("/spec/kubeadmConfigSpec/files/0"),
                add(
                    "/spec/kubeadmConfigSpec/files/0",
                    &json!({"path": "/f", "content": "new"})
                ),
                json!({"op": "replace", "path": "/spec/version", "value": "v1.36.0"}),
            ]
        );
        let map = control_plane(
            "v1beta1",
            &json!({"controllerManager": {"extraArgs": {"gone": "y", "b": "z"}}}),
            &json!(null),
        );
        let patch = operations(&map, &step().taken(&map));
        assert_eq!(
            patch.get(..2),
            Some(
                [
                    remove(&field("extraArgs/gone")),
                    add(&field("extraArgs/a"), &json!("new"))
                ]
                .as_slice()
            )
        );
    }

    #[test]
    fn a_patch_escapes_names_and_puts_lists_in_order() {
        for (old, new) in [
            (json!({"a/b~c": 1}), json!({"a/b~c": 2, "d/e": 3})),
            (json!([1, 2, 3]), json!([3, 1, 2])),
            (json!([1, 1, 2]), json!([1, 2])),
            (json!([1]), json!({"a": 1})),
        ] {
            assert_eq!(patched(&old, &new), new, "{old}");
        }
    }
}
