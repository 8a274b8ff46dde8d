//! Selects the webhook configurations and the Events that concern a control plane.

use std::{cmp::Reverse, collections::BTreeSet};

use jiff::Timestamp;
use kcp_api::names::group;
use serde_json::Value;

/// The objects that a bundle contains, by kind and name.
pub type ObjectNames = BTreeSet<(String, String)>;

/// Where an Event says when it was last reported.
const EVENT_TIMES: [&str; 4] = [
    "/series/lastObservedTime",
    "/deprecatedLastTimestamp",
    "/eventTime",
    "/metadata/creationTimestamp",
];

/// The kind and the name of an object.
pub fn object_name(object: &Value) -> Option<(String, String)> {
    let kind = object.get("kind")?.as_str()?;
    let name = object.pointer("/metadata/name")?.as_str()?;
    Some((kind.to_owned(), name.to_owned()))
}

/// Whether a webhook configuration reviews writes of Cluster API's objects, or of the objects of its providers.
pub fn reviews_cluster_api(configuration: &Value) -> bool {
    let list = |value: &Value, field: &str| {
        let list = value.get(field).and_then(Value::as_array);
        list.cloned().unwrap_or_default()
    };
    let webhooks = list(configuration, "webhooks").into_iter();
    let rules = webhooks.flat_map(|webhook| list(&webhook, "rules"));
    let mut groups = rules.flat_map(|rule| list(&rule, "apiGroups"));
    groups.any(|name| {
        let name = name.as_str().unwrap_or_default();
        let before = name.strip_suffix(group::CLUSTER);
        name == "*" || before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    })
}

/// The Events about these objects, the newest first.
pub fn events_about(objects: &ObjectNames, mut events: Vec<Value>) -> Vec<Value> {
    events.retain(|event| {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
        let regarding = (text("/regarding/kind"), text("/regarding/name"));
        matches!(regarding, (Some(kind), Some(name)) if objects.contains(&(kind.to_owned(), name.to_owned())))
    });
    events.sort_by_cached_key(|event| Reverse(last_reported(event)));
    events
}

fn last_reported(event: &Value) -> Option<Timestamp> {
    let times = EVENT_TIMES.iter().filter_map(|pointer| event.pointer(pointer));
    let times = times.filter_map(|time| time.as_str()?.parse().ok());
    times.max()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ObjectNames, events_about, object_name, reviews_cluster_api};

    #[test]
    fn a_configuration_concerns_cluster_api_by_its_groups() {
        for (groups, expected) in [
            (json!(["cluster.x-k8s.io"]), true),
            (json!(["apps", "controlplane.cluster.x-k8s.io"]), true),
            (json!(["*"]), true),
            (json!(["", "apps"]), false),
            (json!(["mycluster.x-k8s.io"]), false),
            (json!(null), false),
        ] {
            let configuration = json!({"webhooks": [{"name": "a"}, {"rules": [{"apiGroups": groups}]}]});
            assert_eq!(reviews_cluster_api(&configuration), expected, "{groups}");
        }
        assert!(!reviews_cluster_api(&json!({})));
    }

    #[test]
    fn the_newest_event_about_an_object_is_first() {
        let event = |name: &str, times: &Value| {
            let mut event = json!({"regarding": {"kind": "Machine", "name": name}});
            let fields = times.as_object().cloned().unwrap_or_default();
            event.as_object_mut().expect("an object").extend(fields);
            event
        };
        let events = vec![
            event("m1", &json!({"eventTime": "2026-12-01T10:00:00.000000Z"})),
            event("m2", &json!({"eventTime": "2026-12-01T11:00:00.000000Z"})),
            event("m1", &json!({"deprecatedLastTimestamp": "2026-12-01T10:30:00Z"})),
            event("m1", &json!({})),
            event(
                "m1",
                &json!({"eventTime": "2026-12-01T09:00:00.000000Z",
                    "series": {"lastObservedTime": "2026-12-01T12:00:00.000000Z"}}),
            ),
            json!({"regarding": {"kind": "Cluster", "name": "m1"}}),
            json!({}),
        ];
        let machine = json!({"kind": "Machine", "metadata": {"name": "m1"}});
        let objects = ObjectNames::from([object_name(&machine).expect("a name")]);
        let expected = [4, 2, 0, 3].map(|index: usize| events[index].clone());
        assert_eq!(events_about(&objects, events), expected);
    }
}
