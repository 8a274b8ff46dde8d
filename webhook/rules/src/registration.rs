//! The two webhook configurations as JSON: how to disable and enable them, and what they call.
//!
//! A configuration is switched off by a match condition that is never true, in each of its entries. The API server
//! evaluates match conditions itself, so it then never calls the webhook. Everything else stays as it is, so that
//! cert-manager and `kcp-webhook manage` still renew the CA certificates of a configuration that is switched off, and
//! switching it on again restores what is there without the condition.

use serde_json::{Map, Value, json};

/// The name of both webhook configurations. The API server calls mutating webhooks in the order of these names, and this
/// one sorts before `capi-kubeadm-control-plane-mutating-webhook-configuration`.
pub const CONFIGURATION: &str = "admission.kubectl-kcp.dev";

/// The namespace of the servers in `manifests`.
pub const NAMESPACE: &str = "kcp-webhook-system";

/// The Secret with the serving certificate, in the namespace of the servers. `manifests` and the manager use this name.
pub const TLS_SECRET: &str = "kcp-webhook-tls";

/// The annotation of a configuration that is switched off. Its value says when and why.
pub const DISABLED_ANNOTATION: &str = "kubectl-kcp.dev/webhook-disabled";

/// The name of the match condition that is never true.
pub const DISABLED_CONDITION: &str = "disabled.kubectl-kcp.dev";

/// Whether the API server calls the webhook for the entries of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    On,
    Off,
    /// Some entries are switched off and others are not.
    Partial,
    /// The configuration has no entries, so the API server never calls the webhook.
    Empty,
}

/// Reads whether a configuration is switched on.
pub fn switch(configuration: &Value) -> Switch {
    let entries = entries(configuration);
    let off = entries.iter().filter(|entry| is_off(entry)).count();
    match off {
        _ if entries.is_empty() => Switch::Empty,
        0 => Switch::On,
        off if off == entries.len() => Switch::Off,
        _ => Switch::Partial,
    }
}

/// Whether someone has switched the configuration off and not on again. New entries of such a configuration must be
/// switched off, too.
pub fn is_disabled(configuration: &Value) -> bool {
    disabled_note(configuration).is_some() || matches!(switch(configuration), Switch::Off)
}

/// When and why the configuration was switched off.
pub fn disabled_note(configuration: &Value) -> Option<&str> {
    configuration
        .get("metadata")?
        .get("annotations")?
        .get(DISABLED_ANNOTATION)?
        .as_str()
}

/// The entries of a configuration, each switched off.
pub fn disabled_entries(configuration: &Value) -> Vec<Value> {
    let mut entries = entries(configuration).to_vec();
    for entry in entries.iter_mut().filter(|entry| !is_off(entry)) {
        if let Some(entry) = entry.as_object_mut() {
            let off = json!({"name": DISABLED_CONDITION, "expression": "false"});
            match entry.get_mut("matchConditions").and_then(Value::as_array_mut) {
                Some(conditions) => conditions.push(off),
                None => _ = entry.insert("matchConditions".to_owned(), json!([off])),
            }
        }
    }
    entries
}

/// The entries of a configuration, each without the condition that switches it off.
pub fn enabled_entries(configuration: &Value) -> Vec<Value> {
    let mut entries = entries(configuration).to_vec();
    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
        let Some(conditions) = entry.get_mut("matchConditions").and_then(Value::as_array_mut) else {
            continue;
        };
        conditions.retain(|condition| !is_off_condition(condition));
        if conditions.is_empty() {
            entry.remove("matchConditions");
        }
    }
    entries
}

/// The scheme and the address of every static Pod that an anchor runs, each for the API server of its own host.
const STATIC_PODS: &str = "https://127.0.0.1:";

/// The URL of the static Pods, without a path.
pub fn static_pod_url(port: u16) -> String {
    format!("{STATIC_PODS}{port}")
}

/// Whether API servers call static Pods for an entry of a configuration: at this port, or at any port.
pub fn calls_static_pods(configuration: &Value, port: Option<u16>) -> bool {
    let url = port.map_or_else(|| STATIC_PODS.to_owned(), |port| static_pod_url(port) + "/");
    let mut urls = entries(configuration)
        .iter()
        .filter_map(|entry| entry.get("clientConfig")?.get("url")?.as_str());
    urls.any(|called| called.starts_with(&url))
}

fn entries(configuration: &Value) -> &[Value] {
    let entries = configuration.get("webhooks").and_then(Value::as_array);
    entries.map(Vec::as_slice).unwrap_or_default()
}

fn is_off(entry: &Value) -> bool {
    let conditions = entry.get("matchConditions").and_then(Value::as_array);
    conditions.is_some_and(|conditions| conditions.iter().any(is_off_condition))
}

fn is_off_condition(condition: &Value) -> bool {
    let name = |condition: &Map<String, Value>| {
        condition.get("name").and_then(Value::as_str) == Some(DISABLED_CONDITION)
    };
    condition.as_object().is_some_and(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(entries: &Value, annotations: &Value) -> Value {
        json!({"metadata": {"name": CONFIGURATION, "annotations": annotations}, "webhooks": entries})
    }

    fn off() -> Value {
        json!({"name": DISABLED_CONDITION, "expression": "false"})
    }

    #[test]
    fn the_switch_is_that_of_every_entry() {
        let on = json!({"name": "a", "matchConditions": [{"name": "c", "expression": "true"}]});
        let bare = json!({"name": "b"});
        let is_off = json!({"name": "c", "matchConditions": [off()]});
        let note = json!({DISABLED_ANNOTATION: "2026-12-01T00:00:00Z: upgrade"});
        for (entries, annotations, expected, disabled) in [
            (json!([]), json!({}), Switch::Empty, false),
            (json!(null), json!({}), Switch::Empty, false),
            (json!([on, bare]), json!({}), Switch::On, false),
            (json!([on, is_off]), json!({}), Switch::Partial, false),
            (json!([is_off]), json!({}), Switch::Off, true),
            (json!([is_off]), note.clone(), Switch::Off, true),
            // A new version of the manifests adds an entry.
            (json!([is_off, bare]), note.clone(), Switch::Partial, true),
            (json!([on]), note, Switch::On, true),
        ] {
            let configuration = configuration(&entries, &annotations);
            assert_eq!(switch(&configuration), expected, "{configuration}");
            assert_eq!(is_disabled(&configuration), disabled, "{configuration}");
        }
    }

    #[test]
    fn static_pods_are_called_at_their_port() {
        let calls = |url: &str, port| {
            let entries = json!([{"name": "a", "clientConfig": {"service": {}}}, {"name": "b", "clientConfig": {"url": url}}]);
            calls_static_pods(&configuration(&entries, &json!({})), port)
        };
        assert!(calls("https://127.0.0.1:11443/mutate", Some(11443)));
        assert!(calls("https://127.0.0.1:11443/mutate", None));
        assert!(!calls("https://127.0.0.1:11443/mutate", Some(1144)));
        assert!(!calls("https://webhook.example.com/mutate", None));
        assert!(!calls_static_pods(&json!({}), None));
    }

    #[test]
    fn switching_on_restores_what_was_there() {
        let entries = json!([
            {"name": "a", "matchConditions": [{"name": "c", "expression": "true"}], "timeoutSeconds": 5},
            {"name": "b", "unknownField": {"x": 1}},
        ]);
        let before = configuration(&entries, &json!({}));
        let off_entries = disabled_entries(&before);
        assert_eq!(
            off_entries[0]["matchConditions"],
            json!([{"name": "c", "expression": "true"}, off()])
        );
        assert_eq!(off_entries[1]["matchConditions"], json!([off()]));
        let disabled = configuration(&json!(off_entries), &json!({}));
        assert_eq!(switch(&disabled), Switch::Off);
        assert_eq!(
            disabled_entries(&disabled),
            off_entries,
            "a second time changes nothing"
        );
        assert_eq!(json!(enabled_entries(&disabled)), entries);
        assert_eq!(
            json!(enabled_entries(&before)),
            entries,
            "nor does switching on what is on"
        );
    }
}
