//! Checks whether the webhook configurations of the API server call this program. Without them no write is reviewed, and
//! nothing else shows it: the server is ready, and its caches are up to date.

use std::time::Duration;

use jiff::Timestamp;
use kcp_api::names::group::CONTROL_PLANE;
use kcp_rules::registration::{CONFIGURATION, Switch, disabled_since, has_canary, switch};
use serde_json::{Value, json};
use tokio::time;

use super::{
    live_reads::{ApiServer, Projection},
    read_error::ReadError,
};
use crate::{hook::Hook, tasks::Tasks};

/// How often to check. An alert waits longer than this.
const INTERVAL: Duration = Duration::from_secs(60);

/// The time limit for reading one configuration.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether the API server calls a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RegistrationState {
    /// Whether the API server calls it for each shipped entry of its configuration.
    is_registered: bool,
    /// When a person disabled the configuration. `None` if it is not disabled, or if the time is not recorded.
    disabled_since: Option<Timestamp>,
    /// Whether the API server sends canaries.
    has_canary: bool,
}

impl RegistrationState {
    /// `served` is the version in which this program reads control planes, and `None` if it is unknown.
    fn new(hook: Hook, configuration: &Value, shipped: &[String], served: Option<&str>) -> Self {
        let entries = configuration.get("webhooks").and_then(Value::as_array);
        let entries = entries.map(Vec::as_slice).unwrap_or_default();
        let is_called = |name: &String| {
            let mut named = entries
                .iter()
                .filter(|entry| entry.get("name") == Some(&json!(name)));
            named.any(|entry| has_client(hook, entry) && has_version(entry, served))
        };
        let is_on = switch(configuration) == Switch::On;
        Self {
            is_registered: is_on && shipped.iter().all(is_called),
            disabled_since: disabled_since(configuration).filter(|_| !is_on),
            has_canary: is_on && has_canary(configuration),
        }
    }
}

/// Whether an entry calls this webhook. Without a CA, a call fails: no public CA signs the certificate of a Service.
fn has_client(hook: Hook, entry: &Value) -> bool {
    let text = |path: &str| entry.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let called = [text("/clientConfig/service/path"), text("/clientConfig/url")];
    !text("/clientConfig/caBundle").is_empty() && called.iter().any(|called| called.ends_with(hook.path()))
}

/// Whether all rules of an entry for control planes list the version `served`. Also true if the entry has no such rule, or if
/// `served` is `None`.
fn has_version(entry: &Value, served: Option<&str>) -> bool {
    let mut rules = entry.get("rules").and_then(Value::as_array).into_iter().flatten();
    rules.all(|rule| {
        let lists = |field: &str, text: &str| {
            let listed = rule.get(field).and_then(Value::as_array);
            listed.is_some_and(|listed| listed.contains(&json!(text)))
        };
        let is_served = |served| lists("apiVersions", served) || lists("apiVersions", "*");
        !lists("apiGroups", CONTROL_PLANE) || served.is_none_or(is_served)
    })
}

/// Starts a task that checks both configurations repeatedly, and reports their states as metrics.
pub(super) fn spawn(server: &ApiServer, tasks: &mut Tasks) {
    let server = server.clone();
    let hooks = Hook::ALL.map(|hook| (hook, shipped_entries(hook)));
    tasks.spawn("registration check", async move {
        loop {
            let reads = server.reads_within(REQUEST_TIMEOUT);
            let version = reads.discover_version(CONTROL_PLANE).await.ok();
            for (hook, shipped) in &hooks {
                let state = match read(&server, *hook).await {
                    Ok(configuration) => Some(RegistrationState::new(
                        *hook,
                        &configuration,
                        shipped,
                        version.as_deref(),
                    )),
                    Err(ReadError::NotFound) => Some(RegistrationState::default()),
                    Err(error) => {
                        tracing::debug!(webhook = hook.path(), %error, "cannot read the webhook configuration");
                        None
                    }
                };
                server.metrics.set_registered(
                    *hook,
                    state.map(|state| state.is_registered),
                    state.and_then(|state| state.disabled_since),
                );
                if let Some(state) = state {
                    server.metrics.expect_canaries(*hook, state.has_canary);
                }
            }
            time::sleep(INTERVAL).await;
        }
    });
}

async fn read(server: &ApiServer, hook: Hook) -> Result<Value, ReadError> {
    let plural = hook.plural();
    let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/{CONFIGURATION}");
    let reads = server.reads_within(REQUEST_TIMEOUT);
    let body = reads.get(&path, Projection::Whole).await?;
    serde_json::from_slice(body.as_bytes()).map_err(|error| ReadError::from_json_error(&error))
}

/// The names of the entries in the shipped configuration.
fn shipped_entries(hook: Hook) -> Vec<String> {
    let lines = hook.manifest().lines();
    let names = lines.filter_map(|line| line.strip_prefix("- name: "));
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use kcp_rules::registration::{CANARY_ENTRY, DISABLED_ANNOTATION, disabled_entries};
    use serde_json::{Value, json};

    use super::{CONTROL_PLANE, Hook, RegistrationState, has_version, shipped_entries};

    #[test]
    fn every_shipped_entry_must_call_the_webhook() {
        let shipped = ["a".to_owned(), "b".to_owned()];
        let service = |path: &str, ca: &str| json!({"service": {"path": path}, "caBundle": ca});
        let entry = |name: &str, client: Value| json!({"name": name, "clientConfig": client});
        let called = |name: &str| entry(name, service("/validate", "YQ=="));
        let url = json!({"url": "https://127.0.0.1:11443/validate", "caBundle": "YQ=="});
        for (entries, is_registered) in [
            (json!(null), false),
            (json!([]), false),
            (json!([called("a")]), false),
            (json!([called("a"), called("b"), called("c")]), true),
            (json!([called("a"), entry("b", url)]), true),
            (json!([called("a"), entry("b", service("/validate", ""))]), false),
            (
                json!([called("a"), entry("b", service("/mutate", "YQ=="))]),
                false,
            ),
        ] {
            let configuration = json!({ "webhooks": entries });
            let state = RegistrationState::new(Hook::Validate, &configuration, &shipped, None);
            let expected = RegistrationState {
                is_registered,
                ..RegistrationState::default()
            };
            assert_eq!(state, expected, "{configuration}");
        }
        let canary = json!({"webhooks": [called(CANARY_ENTRY)]});
        let expected = RegistrationState {
            has_canary: true,
            ..RegistrationState::default()
        };
        assert_eq!(
            RegistrationState::new(Hook::Validate, &canary, &shipped, None),
            expected
        );
        let mut disabled = json!({"webhooks": [called("a"), called("b")]});
        disabled["webhooks"] = json!(disabled_entries(&disabled));
        disabled["metadata"]["annotations"] = json!({DISABLED_ANNOTATION: "2026-12-01T12:00:00Z: upgrade"});
        let state = RegistrationState::new(Hook::Validate, &disabled, &shipped, None);
        assert!(!state.is_registered);
        assert_eq!(state.disabled_since, "2026-12-01T12:00:00Z".parse().ok());
    }

    #[test]
    fn an_entry_must_list_the_served_version() {
        let entry = |group: &str, versions: Value| json!({"rules": [{"apiGroups": [group], "apiVersions": versions}]});
        for (entry, served, expected) in [
            (entry(CONTROL_PLANE, json!(["v1beta2"])), Some("v1beta2"), true),
            (
                entry(CONTROL_PLANE, json!(["v1beta1", "v1beta2"])),
                Some("v1beta2"),
                true,
            ),
            (entry(CONTROL_PLANE, json!(["*"])), Some("v1beta1"), true),
            (entry(CONTROL_PLANE, json!(["v1beta2"])), Some("v1beta1"), false),
            (entry(CONTROL_PLANE, json!(["v1beta2"])), None, true),
            (entry("hive.openshift.io", json!(["v1"])), Some("v1beta2"), true),
        ] {
            assert_eq!(has_version(&entry, served), expected, "{entry} {served:?}");
        }
    }

    #[test]
    fn the_names_of_the_shipped_entries_are_read() {
        assert_eq!(
            Hook::ALL.map(|hook| shipped_entries(hook).is_empty()),
            [false, false]
        );
        let names = shipped_entries(Hook::Validate);
        assert!(
            names.contains(&"kubeadmcontrolplanes.validate.kubectl-kcp.dev".to_owned()),
            "{names:?}"
        );
    }
}
