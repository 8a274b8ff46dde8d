//! The two webhook configurations: what they should contain, and how that compares with what the API server has.
//!
//! Fields that the shipped configurations do not set stay as they are, such as an `objectSelector` that a user has added.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use kcp_api::names::group;
use kcp_rules::registration::{
    CANARY_ENTRY, CANARY_LEASE, CONFIGURATION, disabled_entries, disabled_until, enabled, has_only_canary,
    is_disabled, static_pod_url,
};
use serde_json::{Map, Value, json};

use super::{authorities::certificates, decision::Registration};
use crate::hook::Hook;

/// The annotation that tells cert-manager's injector to write the caBundle of a configuration.
const INJECTED: &str = "cert-manager.io/inject-ca-from";

/// What the configurations refer to, and what differs between installations.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) namespace: String,
    /// The port of the Service.
    pub(crate) port: i32,
    /// The port on 127.0.0.1 of the static Pods, if the API servers call these instead of the Service.
    pub(crate) static_pod_port: Option<u16>,
    /// The newest version in which the API server serves control planes.
    pub(crate) control_plane_version: &'static str,
}

/// The `ClusterRole` that owns the configurations, so that Kubernetes deletes them together with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Hook {
    /// The shipped configuration, adapted to this [`Place`], with a caBundle in PEM format.
    pub(crate) fn desired(self, place: &Place, bundle: &str, owner: Option<&Owner>) -> Result<Value, String> {
        let mut configuration: Value = serde_saphyr::from_str(self.manifest())
            .map_err(|error| format!("the shipped {} cannot be read: {error}", self.kind()))?;
        let bundle = STANDARD.encode(bundle);
        let mut entries = configuration.get_mut("webhooks").and_then(Value::as_array_mut);
        if let (Self::Validate, Some(entries)) = (self, &mut entries)
            && let Some(client) = entries.first().and_then(|entry| entry.get("clientConfig"))
        {
            let canary = canary_entry(client, &place.namespace);
            entries.push(canary);
        }
        for entry in entries.into_iter().flatten() {
            set_version(entry, place.control_plane_version);
            if let Some(client) = entry.get_mut("clientConfig").and_then(Value::as_object_mut) {
                client.insert("caBundle".to_owned(), json!(bundle));
                if let Some(port) = place.static_pod_port {
                    let service = client.remove("service").unwrap_or_default();
                    let path = service.get("path").and_then(Value::as_str).unwrap_or_default();
                    client.insert("url".to_owned(), json!(format!("{}{path}", static_pod_url(port))));
                } else if let Some(service) = client.get_mut("service").and_then(Value::as_object_mut) {
                    service.insert("namespace".to_owned(), json!(place.namespace));
                    service.insert("port".to_owned(), json!(place.port));
                }
            }
        }
        let mut metadata = json!({
            "name": CONFIGURATION,
            "labels": {"app.kubernetes.io/name": "kcp-webhook", "app.kubernetes.io/part-of": "kubectl-kcp"},
        });
        if let (Some(metadata), Some(owner)) = (metadata.as_object_mut(), owner) {
            metadata.insert("ownerReferences".to_owned(), json!([owner.reference()]));
        }
        if let Some(configuration) = configuration.as_object_mut() {
            configuration.insert("metadata".to_owned(), metadata);
        }
        Ok(configuration)
    }
}

/// Sets the version of control planes and Clusters in the rules of an entry. Cluster API serves both in the same versions.
fn set_version(entry: &mut Value, version: &str) {
    let rules = entry.get_mut("rules").and_then(Value::as_array_mut);
    for rule in rules.into_iter().flatten() {
        let group = rule.pointer("/apiGroups/0").and_then(Value::as_str);
        if group.is_some_and(|group| [group::CONTROL_PLANE, group::CLUSTER].contains(&group)) {
            set(rule, "/apiVersions", json!([version]));
        }
    }
}

/// Returns the entry because of which the API server sends writes of one Lease to the webhook. If the webhook does not answer,
/// the write of the Lease still succeeds.
fn canary_entry(client: &Value, namespace: &str) -> Value {
    json!({
        "name": CANARY_ENTRY,
        "rules": [{
            "apiGroups": ["coordination.k8s.io"],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["leases"],
            "scope": "Namespaced",
        }],
        "clientConfig": client,
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 3,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "matchConditions": [{"name": "canary", "expression": format!("object.metadata.name == '{CANARY_LEASE}'")}],
    })
}

/// A configuration with only the entry of the canary.
pub(crate) fn only_canary(mut configuration: Value) -> Value {
    if let Some(entries) = configuration.get_mut("webhooks").and_then(Value::as_array_mut) {
        entries.retain(|entry| entry.get("name").and_then(Value::as_str) == Some(CANARY_ENTRY));
    }
    configuration
}

impl Owner {
    // `blockOwnerDeletion` stays unset: setting it needs a permission on the finalizers of ClusterRoles where the admission
    // plugin OwnerReferencesPermissionEnforcement is enabled.
    fn reference(&self) -> Value {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": self.name, "uid": self.uid})
    }
}

/// Compares a configuration with the desired one.
pub(crate) fn compare(live: Option<&Value>, desired: &Value, now: Timestamp) -> Registration {
    let Some(live) = live else {
        return Registration::Absent;
    };
    if live
        .pointer("/metadata/annotations")
        .is_some_and(|annotations| annotations.get(INJECTED).is_some())
    {
        return Registration::Injected;
    }
    if has_only_canary(live) {
        let is_current = merge(live, &only_canary(desired.clone()), now) == *live;
        return Registration::OnlyCanary { is_current };
    }
    if merge(live, desired, now) == *live {
        return Registration::Current;
    }
    let bundles = bundles(live);
    let is_valid = |bundle: &String| {
        let certificates = certificates(bundle).unwrap_or_default();
        certificates.iter().any(|ca| ca.lifetime.until > now)
    };
    Registration::Outdated {
        trusts_any: bundles.iter().any(is_valid),
    }
}

/// Returns the distinct caBundles of a configuration, in PEM format.
pub(crate) fn bundles(configuration: &Value) -> Vec<String> {
    let entries = configuration.get("webhooks").and_then(Value::as_array);
    let mut bundles: Vec<String> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.pointer("/clientConfig/caBundle")?.as_str())
        .filter_map(|bundle| String::from_utf8(STANDARD.decode(bundle).ok()?).ok())
        .collect();
    bundles.sort();
    bundles.dedup();
    bundles
}

/// Returns the live configuration, changed to contain everything that is desired. If someone has disabled the configuration, it
/// stays disabled until the end that they have set.
pub(crate) fn merge(live: &Value, desired: &Value, now: Timestamp) -> Value {
    let has_ended = disabled_until(live).is_some_and(|until| until <= now);
    let mut merged = if has_ended { enabled(live) } else { live.clone() };
    let is_disabled = is_disabled(&merged);
    if let (Some(merged), Some(desired)) = (merged.as_object_mut(), desired.as_object()) {
        overlay(merged, desired);
        remove_previous_backend(merged, desired);
    }
    if is_disabled {
        let entries = disabled_entries(&merged);
        set(&mut merged, "/webhooks", entries.into());
    }
    if let Some(references) = owner_references(live, desired) {
        set(&mut merged, "/metadata/ownerReferences", references);
    }
    merged
}

fn set(object: &mut Value, path: &str, value: Value) {
    if let Some(field) = object.pointer_mut(path) {
        *field = value;
    }
}

/// Removes the Service if a URL is desired, and the URL if a Service is desired. A client configuration must not have both.
fn remove_previous_backend(merged: &mut Map<String, Value>, desired: &Map<String, Value>) {
    let merged = merged.get_mut("webhooks").and_then(Value::as_array_mut);
    let desired = desired.get("webhooks").and_then(Value::as_array);
    for (entry, desired) in merged.into_iter().flatten().zip(desired.into_iter().flatten()) {
        let config = entry.get_mut("clientConfig").and_then(Value::as_object_mut);
        if let (Some(config), Some(desired)) = (config, desired.get("clientConfig")) {
            for (present, other) in [("service", "url"), ("url", "service")] {
                if desired.get(present).is_some() {
                    config.remove(other);
                }
            }
        }
    }
}

/// Returns the owner references of the live object. The desired reference replaces each other reference to a `ClusterRole` of
/// that name. After a new installation, such a reference has a uid that no longer exists, and Kubernetes would delete the
/// configuration.
fn owner_references(live: &Value, desired: &Value) -> Option<Value> {
    let own = desired.pointer("/metadata/ownerReferences/0")?;
    let all = live
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let is_same = |reference: &Value| {
        reference.get("kind") == own.get("kind") && reference.get("name") == own.get("name")
    };
    let mut references: Vec<Value> = all.into_iter().flatten().cloned().collect();
    if references
        .iter()
        .any(|reference| is_same(reference) && reference.get("uid") == own.get("uid"))
    {
        references.retain(|reference| !is_same(reference) || reference.get("uid") == own.get("uid"));
    } else {
        references.retain(|reference| !is_same(reference));
        references.push(own.clone());
    }
    Some(json!(references))
}

fn overlay(live: &mut Map<String, Value>, desired: &Map<String, Value>) {
    for (key, wanted) in desired {
        match (live.get_mut(key), wanted) {
            (Some(Value::Object(live)), Value::Object(wanted)) => overlay(live, wanted),
            (Some(Value::Array(entries)), Value::Array(wanted)) => *entries = overlaid(entries, wanted),
            (Some(live), wanted) => *live = wanted.clone(),
            (None, wanted) => _ = live.insert(key.clone(), wanted.clone()),
        }
    }
}

/// Returns the desired list. A desired entry also keeps those fields of the corresponding live entry that it does not set.
/// Entries correspond if they have the same name, or if they have the same position and the live entry has no name.
fn overlaid(live: &[Value], desired: &[Value]) -> Vec<Value> {
    let named = |wanted: &Value| {
        let name = wanted.get("name")?;
        live.iter().find(|entry| entry.get("name") == Some(name))
    };
    desired
        .iter()
        .enumerate()
        .map(|(index, wanted)| {
            let before =
                named(wanted).or_else(|| live.get(index).filter(|entry| entry.get("name").is_none()));
            match (before, wanted) {
                (Some(Value::Object(before)), Value::Object(wanted)) => {
                    let mut entry = before.clone();
                    overlay(&mut entry, wanted);
                    Value::Object(entry)
                }
                _ => wanted.clone(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
