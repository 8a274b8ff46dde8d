//! What others have changed between our judgement of an object and our write.

use serde_json::Value;

use kcp_control_plane::{change::ownership::last_writer, merge_patch, plan::difference::differences};

/// What others have written meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Overtaking {
    /// Fields that are to be written and are another's now, a line each: who asked for them has decided on values that
    /// are there no more.
    pub(super) contested: Vec<String>,
    /// Other fields of the spec, a line each.
    pub(super) beside: Vec<String>,
}

impl Overtaking {
    /// Of an object as it was judged and as it is now, both as the server wrote them, under a merge patch.
    pub(super) fn of(judged: &str, now: &str, patch: &Value) -> Self {
        let decode = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        let (before, after) = (decode(judged), decode(now));
        let fields = merge_patch::fields(patch);
        let is_moved = |path: &&Vec<&str>| {
            let (old, new) = (
                merge_patch::field(&before, path),
                merge_patch::field(&after, path),
            );
            // What is as we want it is no loss.
            let wanted = merge_patch::field(patch, path).filter(|wanted| !wanted.is_null());
            old != new && new != wanted
        };
        let contested = fields.iter().filter(is_moved).map(|path| {
            let value = |object| merge_patch::field(object, path).map_or_else(|| "unset".to_owned(), told);
            let writer = last_writer(now, path).map_or_else(String::new, |writer| format!(", by {writer}"));
            format!(
                "{} was {} when judged and is {} now{writer}",
                merge_patch::shown(path),
                value(&before),
                value(&after)
            )
        });
        let own: Vec<String> = fields.iter().map(|path| merge_patch::shown(path)).collect();
        let spec = |object: &Value| serde_json::json!({ "spec": object.get("spec") });
        let beside = differences(&spec(&before), &spec(&after)).into_iter();
        Self {
            contested: contested.collect(),
            beside: beside
                .filter(|field| !own.contains(field))
                .map(|field| format!("{field} was changed meanwhile: judged anew"))
                .collect(),
        }
    }
}

fn told(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Overtaking;

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
    fn a_field_of_ours_that_is_anothers_is_lost() {
        let judged = object(Some(3), "v1.34.1", None);
        let patch = json!({"spec": {"replicas": 7}});
        let of = |now: &str| Overtaking::of(&judged, now, &patch);
        let contested = |line: &str| Overtaking {
            contested: vec![line.to_owned()],
            beside: vec![],
        };
        for (name, now, expected) in [
            ("nothing", object(Some(3), "v1.34.1", None), Overtaking::default()),
            (
                "replicas",
                object(Some(5), "v1.34.1", Some("kubectl-scale")),
                contested("spec.replicas was 3 when judged and is 5 now, by kubectl-scale"),
            ),
            (
                "nobody says who",
                object(Some(5), "v1.34.1", None),
                contested("spec.replicas was 3 when judged and is 5 now"),
            ),
            (
                "taken away",
                object(None, "v1.34.1", None),
                contested("spec.replicas was 3 when judged and is unset now"),
            ),
            (
                "as we want it",
                object(Some(7), "v1.34.1", None),
                Overtaking::default(),
            ),
            (
                "another field",
                object(Some(3), "v1.35.0", None),
                Overtaking {
                    contested: vec![],
                    beside: vec!["spec.version was changed meanwhile: judged anew".to_owned()],
                },
            ),
        ] {
            assert_eq!(of(&now), expected, "{name}");
        }
    }

    #[test]
    fn what_is_taken_away_is_lost_when_another_sets_it() {
        let object = |after: &str| json!({"spec": {"rollout": {"after": after}}}).to_string();
        let patch = json!({"spec": {"rollout": {"after": null}}});
        let judged = object("2026-08-21T12:00:00Z");
        assert_eq!(
            Overtaking::of(&judged, &object("2026-08-22T12:00:00Z"), &patch).contested,
            ["spec.rollout.after was 2026-08-21T12:00:00Z when judged and is 2026-08-22T12:00:00Z now"]
        );
        assert_eq!(
            Overtaking::of(&judged, &json!({"spec": {"rollout": {}}}).to_string(), &patch),
            Overtaking::default()
        );
    }
}
