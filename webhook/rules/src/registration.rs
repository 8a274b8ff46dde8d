//! The two webhook configurations as JSON: how to disable and enable them, and what they call.
//!
//! To switch a configuration off, kcp-webhook or the plugin adds a match condition that is never true to each of its entries. The
//! API server evaluates match conditions itself, so it then never calls the webhook. Everything else stays as it is: cert-manager
//! and `kcp-webhook manage` still renew the CA certificates of the configuration. Without the condition, the configuration is on
//! again.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The name of both webhook configurations. The API server calls mutating webhooks in the order of these names, and this
/// one sorts before `capi-kubeadm-control-plane-mutating-webhook-configuration`.
pub const CONFIGURATION: &str = "admission.kubectl-kcp.dev";

/// The namespace of the servers in `manifests`.
pub const NAMESPACE: &str = "kcp-webhook-system";

/// The Secret with the serving certificate, in the namespace of the servers. `manifests` and the manager use this name.
pub const TLS_SECRET: &str = "kcp-webhook-tls";

/// The entry of the validating configuration with which `kcp-webhook manage` tests whether the API server reaches the webhook.
pub const CANARY_ENTRY: &str = "canary.validate.kubectl-kcp.dev";

/// The Lease that `kcp-webhook manage` updates. The API server sends the update to the webhook because of [`CANARY_ENTRY`]. Its
/// `renewTime` is the time of the last update that the webhook has answered.
pub const CANARY_LEASE: &str = "kcp-webhook-canary";

/// The annotation of [`CANARY_LEASE`] with the text that the webhook repeats in its answer.
pub const CANARY_ANNOTATION: &str = "kubectl-kcp.dev/canary";

/// The annotation of [`CANARY_LEASE`] with the problem of `kcp-webhook manage`.
pub const PROBLEM_ANNOTATION: &str = "kubectl-kcp.dev/problem";

/// The warning with which the webhook answers an update of [`CANARY_LEASE`]. The API server returns it to the manager.
pub fn canary_warning(nonce: &str) -> String {
    format!("kcp-webhook has received the canary {nonce}")
}

/// Whether a configuration has [`CANARY_ENTRY`].
pub fn has_canary(configuration: &Value) -> bool {
    entries(configuration).iter().any(is_canary)
}

/// Whether [`CANARY_ENTRY`] is the only entry of a configuration, so that the API server sends nothing else to the webhook.
pub fn has_only_canary(configuration: &Value) -> bool {
    has_canary(configuration) && entries(configuration).iter().all(is_canary)
}

/// The namespace of [`CANARY_LEASE`]: that of `kcp-webhook manage`. `None` if a configuration has no [`CANARY_ENTRY`].
pub fn canary_namespace(configuration: &Value) -> Option<&str> {
    let entry = entries(configuration).iter().find(|entry| is_canary(entry))?;
    let labels = entry.pointer("/namespaceSelector/matchLabels")?;
    labels.get("kubernetes.io/metadata.name")?.as_str()
}

fn is_canary(entry: &Value) -> bool {
    entry.get("name").and_then(Value::as_str) == Some(CANARY_ENTRY)
}

/// The annotation of a configuration that is switched off. Its value says when and why.
pub const DISABLED_ANNOTATION: &str = "kubectl-kcp.dev/webhook-disabled";

/// The annotation of a configuration that is switched off. Its value is the time from which `kcp-webhook manage` switches the
/// configuration on again.
pub const DISABLED_UNTIL_ANNOTATION: &str = "kubectl-kcp.dev/webhook-disabled-until";

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
    annotation(configuration, DISABLED_ANNOTATION)
}

/// When the configuration was switched off. `None` if it is on, or if it was switched off in another way.
pub fn disabled_since(configuration: &Value) -> Option<Timestamp> {
    let (since, _) = disabled_note(configuration)?.split_once(": ")?;
    since.parse().ok()
}

/// When the configuration is to be switched on again.
pub fn disabled_until(configuration: &Value) -> Option<Timestamp> {
    annotation(configuration, DISABLED_UNTIL_ANNOTATION)?.parse().ok()
}

/// The configuration, switched on.
pub fn enabled(configuration: &Value) -> Value {
    let mut enabled = configuration.clone();
    if let Some(configuration) = enabled.as_object_mut() {
        let entries = json!(enabled_entries(&Value::Object(configuration.clone())));
        configuration.insert("webhooks".to_owned(), entries);
    }
    let annotations = enabled.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.retain(|key, _| key != DISABLED_ANNOTATION && key != DISABLED_UNTIL_ANNOTATION);
    }
    enabled
}

fn annotation<'c>(configuration: &'c Value, key: &str) -> Option<&'c str> {
    configuration
        .get("metadata")?
        .get("annotations")?
        .get(key)?
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

/// Whether an entry of a configuration makes API servers call static Pods at `port`, or at any port if `port` is `None`.
pub fn calls_static_pods(configuration: &Value, port: Option<u16>) -> bool {
    let url = port.map_or_else(|| STATIC_PODS.to_owned(), |port| static_pod_url(port) + "/");
    let mut urls = entries(configuration)
        .iter()
        .filter_map(|entry| entry.get("clientConfig")?.get("url")?.as_str());
    urls.any(|called| called.starts_with(&url))
}

/// The name of both configurations in files from which API servers load them. Kubernetes reserves the suffix for such files.
pub const STATIC_CONFIGURATION: &str = "admission.kubectl-kcp.dev.static.k8s.io";

/// What `kcp-webhook anchor` must do with a file from which an API server loads a webhook configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum StaticManifest {
    /// Write this file. It has the same webhooks as the stored configuration.
    Same(Value),
    /// Remove the file, because the stored configuration calls a Service, or another address than that of the static Pods.
    Absent,
    /// Leave the file as it is, because no configuration is stored.
    Unchanged,
}

impl StaticManifest {
    /// Whether the file makes the API server call no webhook, because the webhooks are disabled.
    pub fn is_disabled(&self) -> bool {
        matches!(self, Self::Same(manifest) if entries(manifest).iter().all(is_off))
    }
}

/// Returns what to do with the file for a stored configuration. An API server that cannot load such a file does not start. It
/// loads a file if the name in the file has the reserved suffix and each webhook has a URL (k8s.io/apiserver 1.36,
/// `pkg/admission/plugin/webhook/manifest/loader`). The API server validated everything else when it stored the configuration.
pub fn static_manifest(kind: &str, stored: Option<&Value>) -> StaticManifest {
    let Some(stored) = stored else {
        return StaticManifest::Unchanged;
    };
    let entries = entries(stored);
    let is_static = |entry: &Value| {
        let config = entry.get("clientConfig");
        let url = config.and_then(|config| config.get("url")?.as_str());
        url.is_some_and(|url| url.starts_with(STATIC_PODS))
            && config.is_some_and(|config| config.get("service").is_none())
    };
    if entries.is_empty() || !entries.iter().all(is_static) {
        return StaticManifest::Absent;
    }
    StaticManifest::Same(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": STATIC_CONFIGURATION},
        "webhooks": entries,
    }))
}

/// Whether a file is a [`StaticManifest`], and not somebody's own file of the same name.
pub fn is_static_manifest(manifest: &str) -> bool {
    let parsed: Result<Value, _> = serde_saphyr::from_str(manifest);
    parsed.is_ok_and(|manifest| manifest.pointer("/metadata/name") == Some(&json!(STATIC_CONFIGURATION)))
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
        let enabled = json!({"name": "a", "matchConditions": [{"name": "c", "expression": "true"}]});
        let bare = json!({"name": "b"});
        let is_off = json!({"name": "c", "matchConditions": [off()]});
        let note = json!({DISABLED_ANNOTATION: "2026-12-01T00:00:00Z: upgrade"});
        for (entries, annotations, expected, disabled) in [
            (json!([]), json!({}), Switch::Empty, false),
            (json!(null), json!({}), Switch::Empty, false),
            (json!([enabled, bare]), json!({}), Switch::On, false),
            (json!([enabled, is_off]), json!({}), Switch::Partial, false),
            (json!([is_off]), json!({}), Switch::Off, true),
            (json!([is_off]), note.clone(), Switch::Off, true),
            // A new version of the manifests adds an entry.
            (json!([is_off, bare]), note.clone(), Switch::Partial, true),
            (json!([enabled]), note, Switch::On, true),
        ] {
            let configuration = configuration(&entries, &annotations);
            assert_eq!(switch(&configuration), expected, "{configuration}");
            assert_eq!(is_disabled(&configuration), disabled, "{configuration}");
        }
    }

    #[test]
    fn the_canary_is_one_entry() {
        let canary = json!({"name": CANARY_ENTRY,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "edge"}}});
        let other = json!({"name": "a"});
        for (entries, has, only, namespace) in [
            (json!([]), false, false, None),
            (json!([other]), false, false, None),
            (json!([other, canary]), true, false, Some("edge")),
            (json!([canary]), true, true, Some("edge")),
        ] {
            let configuration = configuration(&entries, &json!({}));
            assert_eq!(has_canary(&configuration), has, "{entries}");
            assert_eq!(has_only_canary(&configuration), only, "{entries}");
            assert_eq!(canary_namespace(&configuration), namespace, "{entries}");
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
    fn only_webhooks_of_static_pods_become_a_manifest() {
        let kind = "MutatingWebhookConfiguration";
        let url = json!({"name": "a", "clientConfig": {"url": "https://127.0.0.1:11443/mutate", "caBundle": "Q0E="}});
        let service = json!({"name": "b", "clientConfig": {"service": {"name": "s"}}});
        let elsewhere = json!({"name": "c", "clientConfig": {"url": "https://webhook.example.com/mutate"}});
        let both =
            json!({"name": "d", "clientConfig": {"url": "https://127.0.0.1:1/", "service": {"name": "s"}}});
        let file = |entries: &Value| static_manifest(kind, Some(&configuration(entries, &json!({"a": "b"}))));
        let expected = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": STATIC_CONFIGURATION}, "webhooks": [url],
        });
        assert_eq!(file(&json!([url])), StaticManifest::Same(expected.clone()));
        for entries in [
            json!([]),
            json!([url, service]),
            json!([elsewhere]),
            json!([both]),
            json!([{}]),
        ] {
            assert_eq!(file(&entries), StaticManifest::Absent, "{entries}");
        }
        let mut disabled = url.clone();
        disabled["matchConditions"] = json!([off()]);
        assert!(file(&json!([disabled])).is_disabled());
        for entries in [json!([disabled, url]), json!([url]), json!([])] {
            assert!(!file(&entries).is_disabled(), "{entries}");
        }
        assert_eq!(static_manifest(kind, None), StaticManifest::Unchanged);
        assert!(is_static_manifest(&expected.to_string()));
        assert!(!is_static_manifest("metadata: {name: other.static.k8s.io}"));
        assert!(!is_static_manifest("{"));
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
