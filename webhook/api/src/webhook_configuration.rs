//! `MutatingWebhookConfiguration` and `ValidatingWebhookConfiguration`: which requests the API server sends to which
//! webhook. Both kinds have the same fields, except for `reinvocationPolicy`.

use k8s_openapi::{
    ByteString,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use serde::Deserialize;

use crate::{decode::null_as_default, metadata};

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct WebhookConfiguration {
    #[serde(default, deserialize_with = "metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    pub webhooks: Vec<Webhook>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Webhook {
    pub name: String,
    #[serde(deserialize_with = "null_as_default")]
    pub client_config: ClientConfig,
    #[serde(deserialize_with = "null_as_default")]
    pub rules: Vec<Rule>,
    /// `Fail` or `Ignore`. The API server always sets it.
    pub failure_policy: Option<String>,
    pub timeout_seconds: Option<i32>,
    pub namespace_selector: Option<LabelSelector>,
    pub object_selector: Option<LabelSelector>,
    #[serde(deserialize_with = "null_as_default")]
    pub match_conditions: Vec<MatchCondition>,
    /// `IfNeeded` if a mutating webhook is called again after a later one has changed the object.
    pub reinvocation_policy: Option<String>,
}

/// Where the API server reaches a webhook: at a Service or at a URL.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientConfig {
    /// The CA certificates that the API server trusts, in PEM format.
    pub ca_bundle: Option<ByteString>,
    pub service: Option<ServiceReference>,
    pub url: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServiceReference {
    pub namespace: String,
    pub name: String,
}

/// The requests that a webhook receives. `*` stands for every value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rule {
    #[serde(deserialize_with = "null_as_default")]
    pub api_groups: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    pub api_versions: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    pub operations: Vec<String>,
    /// The plural names of resources. `machines/scale` is a subresource, `machines/*` are all subresources, and `*/*` is
    /// everything.
    #[serde(deserialize_with = "null_as_default")]
    pub resources: Vec<String>,
    /// `Cluster`, `Namespaced` or `*`.
    pub scope: Option<String>,
}

/// A CEL expression. The API server calls the webhook only if every expression is true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MatchCondition {
    pub name: String,
    pub expression: String,
}

impl metadata::Object for WebhookConfiguration {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Rule, WebhookConfiguration};
    use crate::{Object as _, decode};

    #[test]
    fn decodes_what_an_api_server_returns() {
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "a", "managedFields": [{"manager": "m"}]},
            "webhooks": [
                {
                    "name": "one.a", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                    "clientConfig": {"service": {"namespace": "n", "name": "s", "port": 443}, "caBundle": "Q0E="},
                    "rules": [{"apiGroups": ["*"], "apiVersions": ["v1"], "operations": ["CREATE"],
                        "resources": ["pods"], "scope": "*"}],
                    "failurePolicy": "Fail", "timeoutSeconds": 5, "namespaceSelector": {}, "objectSelector": {},
                    "matchConditions": [{"name": "c", "expression": "true"}],
                },
                {"name": "two.a", "clientConfig": {"url": "https://h"}, "rules": null},
            ],
        });
        let configuration: WebhookConfiguration = decode(&object.to_string()).expect("decodes");
        assert_eq!(configuration.name(), "a");
        let [one, two] = configuration.webhooks.as_slice() else {
            panic!("two webhooks")
        };
        assert_eq!(
            one.client_config.ca_bundle.as_ref().map(|pem| pem.0.as_slice()),
            Some(&b"CA"[..])
        );
        assert_eq!(one.match_conditions[0].expression, "true");
        assert_eq!(two.rules, Vec::<Rule>::new());
        assert_eq!(two.client_config.url.as_deref(), Some("https://h"));
        let empty: WebhookConfiguration = decode(r#"{"metadata": {"name": "b"}}"#).expect("decodes");
        assert_eq!(empty.webhooks, []);
    }
}
