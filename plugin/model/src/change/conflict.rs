//! Fields that another client changed after an object was read.

use serde_json::{Value, json};

use crate::{change::ownership::last_writer, merge_patch, plan::difference::differences};

/// What another client changed between two reads of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldConflict {
    /// Changed fields that our patch writes as well, a line each. The user asked for the change while they had another
    /// value.
    pub contested: Vec<String>,
    /// Other changed fields of the spec, a line each.
    pub others: Vec<String>,
}

impl FieldConflict {
    /// Compares an object as the server wrote it when it was checked, and now; `patch` is the merge patch to write.
    pub fn between(checked: &str, now: &str, patch: &Value) -> Self {
        let decode = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        let (before, after) = (decode(checked), decode(now));
        let fields = merge_patch::fields(patch);
        let is_contested = |path: &&Vec<&str>| {
            let old = merge_patch::field(&before, path);
            let new = merge_patch::field(&after, path);
            // Another client that wrote our value does no harm.
            let ours = merge_patch::field(patch, path).filter(|ours| !ours.is_null());
            old != new && new != ours
        };
        let contested = fields.iter().filter(is_contested).map(|path| {
            let value = |object| merge_patch::field(object, path).map_or_else(|| "unset".to_owned(), shown);
            let writer =
                last_writer(now, path).map_or_else(String::new, |writer| format!(", set by {writer}"));
            format!(
                "{} was {} when checked and is {} now{writer}",
                merge_patch::shown(path),
                value(&before),
                value(&after)
            )
        });
        let own: Vec<String> = fields.iter().map(|path| merge_patch::shown(path)).collect();
        let spec = |object: &Value| json!({ "spec": object.get("spec") });
        let others = differences(&spec(&before), &spec(&after)).into_iter();
        Self {
            contested: contested.collect(),
            others: others
                .filter(|field| !own.contains(field))
                .map(|field| format!("another client changed {field} in the meantime; checked again"))
                .collect(),
        }
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::FieldConflict;

    fn object(replicas: Option<i64>, version: &str, by: Option<&str>) -> String {
        let managed = by.map(|manager| {
            json!({"manager": manager, "operation": "Update", "time": "2026-08-21T12:00:00Z",
                "fieldsV1": {"f:spec": {"f:replicas": {}}}})
        });
        let managed: Vec<Value> = managed.into_iter().collect();
        let mut object = json!({"metadata": {"resourceVersion": version.len(), "managedFields": managed},
            "spec": {"version": version}, "status": {"replicas": replicas}});
        if let Some(replicas) = replicas {
            object["spec"]["replicas"] = json!(replicas);
        }
        object.to_string()
    }

    #[test]
    fn a_field_that_another_client_changed_is_contested() {
        let checked = object(Some(3), "v1.34.1", None);
        let patch = json!({"spec": {"replicas": 7}});
        let of = |now: &str| FieldConflict::between(&checked, now, &patch);
        let contested = |line: &str| FieldConflict {
            contested: vec![line.to_owned()],
            others: vec![],
        };
        for (name, now, expected) in [
            (
                "nothing",
                object(Some(3), "v1.34.1", None),
                FieldConflict::default(),
            ),
            (
                "replicas",
                object(Some(5), "v1.34.1", Some("kubectl-scale")),
                contested("spec.replicas was 3 when checked and is 5 now, set by kubectl-scale"),
            ),
            (
                "unknown writer",
                object(Some(5), "v1.34.1", None),
                contested("spec.replicas was 3 when checked and is 5 now"),
            ),
            (
                "removed",
                object(None, "v1.34.1", None),
                contested("spec.replicas was 3 when checked and is unset now"),
            ),
            (
                "our value",
                object(Some(7), "v1.34.1", None),
                FieldConflict::default(),
            ),
            (
                "another field",
                object(Some(3), "v1.35.0", None),
                FieldConflict {
                    contested: vec![],
                    others: vec![
                        "another client changed spec.version in the meantime; checked again".to_owned(),
                    ],
                },
            ),
        ] {
            assert_eq!(of(&now), expected, "{name}");
        }
    }

    #[test]
    fn a_removed_field_is_contested_when_another_client_sets_it() {
        let object = |after: &str| json!({"spec": {"rollout": {"after": after}}}).to_string();
        let patch = json!({"spec": {"rollout": {"after": null}}});
        let checked = object("2026-08-21T12:00:00Z");
        assert_eq!(
            FieldConflict::between(&checked, &object("2026-08-22T12:00:00Z"), &patch).contested,
            ["spec.rollout.after was 2026-08-21T12:00:00Z when checked and is 2026-08-22T12:00:00Z now"]
        );
        assert_eq!(
            FieldConflict::between(&checked, &json!({"spec": {"rollout": {}}}).to_string(), &patch),
            FieldConflict::default()
        );
    }
}
