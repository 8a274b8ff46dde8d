//! The webhooks of others that review the same objects, and when the API server calls them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kcp_api::{
    Object as _,
    webhook_configuration::{Rule, Webhook, WebhookConfiguration},
};
use kcp_rules::registration::CANARY_ENTRY;

use super::HookKind;

/// A webhook of another program that reviews some of the same writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherWebhook {
    pub kind: HookKind,
    pub configuration: String,
    pub name: String,
    /// The resources that both review, such as `kubeadmcontrolplanes`.
    pub resources: Vec<String>,
    pub turn: Turn,
    /// Whether the API server refuses the write if this webhook does not respond.
    pub fails_closed: bool,
    pub timeout_seconds: Option<i32>,
    /// Whether the webhook reviews only some of these objects, because of a selector or a match condition.
    pub is_selective: bool,
}

/// When the API server calls a webhook, relative to kcp-webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Before,
    After,
    /// The API server calls all validating webhooks at the same time.
    SameTime,
}

/// The webhooks of other configurations that review some of the same writes as `own`.
///
/// The API server calls mutating webhooks in the order of their configurations' names, and those of one configuration in
/// the order of its list: k8s.io/apiserver, `pkg/admission/configuration/mutating_webhook_manager.go`. API versions are not
/// compared, because the API server converts a write to a version that the webhook lists (`matchPolicy: Equivalent`).
pub fn other_webhooks(
    kind: HookKind,
    own: &WebhookConfiguration,
    all: &[WebhookConfiguration],
) -> Vec<OtherWebhook> {
    let mut others: Vec<&WebhookConfiguration> =
        all.iter().filter(|other| other.name() != own.name()).collect();
    others.sort_by_key(|other| other.name());
    let mut found = Vec::new();
    for other in others {
        let turn = match kind {
            HookKind::Validating => Turn::SameTime,
            HookKind::Mutating if other.name() < own.name() => Turn::Before,
            HookKind::Mutating => Turn::After,
        };
        for webhook in &other.webhooks {
            let resources = shared_resources(own, webhook);
            if resources.is_empty() {
                continue;
            }
            found.push(OtherWebhook {
                kind,
                configuration: other.name().to_owned(),
                name: webhook.name.clone(),
                resources,
                turn,
                fails_closed: webhook.failure_policy.as_deref() != Some("Ignore"),
                timeout_seconds: webhook.timeout_seconds,
                is_selective: is_selective(webhook),
            });
        }
    }
    found
}

/// The resources for which both review at least one common operation, in the order of our rules.
fn shared_resources(own: &WebhookConfiguration, other: &Webhook) -> Vec<String> {
    let mut shared = Vec::new();
    let reviewing = own.webhooks.iter().filter(|webhook| webhook.name != CANARY_ENTRY);
    for rule in reviewing.flat_map(|webhook| &webhook.rules) {
        for resource in &rule.resources {
            let reviews = |other: &Rule| {
                overlaps(&rule.api_groups, &other.api_groups)
                    && overlaps(&rule.operations, &other.operations)
                    && other.scope.as_deref() != Some("Cluster")
                    && other.resources.iter().any(|pattern| covers(pattern, resource))
            };
            if other.rules.iter().any(reviews) && !shared.contains(resource) {
                shared.push(resource.clone());
            }
        }
    }
    shared
}

fn overlaps(ours: &[String], others: &[String]) -> bool {
    others.iter().any(|other| other == "*" || ours.contains(other))
}

/// Whether a rule for `pattern` matches a resource, as k8s.io/apiserver, pkg/admission/plugin/webhook/predicates/rules,
/// matches it.
fn covers(pattern: &str, resource: &str) -> bool {
    let split = |text: &str| match text.split_once('/') {
        Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
        None => (text.to_owned(), String::new()),
    };
    let ((pattern, sub_pattern), (resource, subresource)) = (split(pattern), split(resource));
    (pattern == "*" || pattern == resource) && (sub_pattern == "*" || sub_pattern == subresource)
}

fn is_selective(webhook: &Webhook) -> bool {
    let selects = |selector: &Option<LabelSelector>| {
        selector.as_ref().is_some_and(|selector| {
            selector
                .match_labels
                .as_ref()
                .is_some_and(|labels| !labels.is_empty())
                || selector
                    .match_expressions
                    .as_ref()
                    .is_some_and(|terms| !terms.is_empty())
        })
    };
    selects(&webhook.namespace_selector)
        || selects(&webhook.object_selector)
        || !webhook.match_conditions.is_empty()
}

#[cfg(test)]
mod tests {
    use kcp_api::decode;
    use serde_json::{Value, json};

    use super::*;

    fn configuration(name: &str, webhooks: &Value) -> WebhookConfiguration {
        let object = json!({"metadata": {"name": name}, "webhooks": webhooks});
        decode(&object.to_string()).expect("decodes")
    }

    fn webhook(name: &str, groups: &[&str], operations: &[&str], resources: &[&str]) -> Value {
        json!({"name": name, "rules": [{"apiGroups": groups, "apiVersions": ["*"], "operations": operations,
            "resources": resources}]})
    }

    const GROUP: &str = "controlplane.cluster.x-k8s.io";

    fn own() -> WebhookConfiguration {
        let objects = webhook(
            "own.example",
            &[GROUP],
            &["CREATE", "UPDATE"],
            &["kubeadmcontrolplanes"],
        );
        let scale = webhook(
            "scale.example",
            &[GROUP],
            &["UPDATE"],
            &["kubeadmcontrolplanes/scale"],
        );
        configuration("admission.kubectl-kcp.dev", &json!([objects, scale]))
    }

    #[test]
    fn finds_webhooks_of_the_same_writes_only() {
        let objects = &["kubeadmcontrolplanes"][..];
        let scale = &["kubeadmcontrolplanes/scale"][..];
        let both = &["kubeadmcontrolplanes", "kubeadmcontrolplanes/scale"][..];
        for (groups, operations, resources, expected) in [
            (&[GROUP][..], &["UPDATE"][..], objects, objects),
            (&["*"], &["*"], &["*"], objects),
            (&["*"], &["*"], &["*/*"], both),
            (&["*"], &["UPDATE"], &["*/scale"], scale),
            (&[GROUP], &["UPDATE"], &["kubeadmcontrolplanes/*"], both),
            (&[GROUP], &["DELETE"], objects, &[]),
            (&["apps"], &["*"], &["*/*"], &[]),
            (&[GROUP], &["*"], &["kubeadmcontrolplanetemplates"], &[]),
        ] {
            let other = configuration("other", &json!([webhook("w", groups, operations, resources)]));
            let found = other_webhooks(HookKind::Validating, &own(), &[own(), other]);
            let resources: Vec<&str> = found
                .iter()
                .flat_map(|other| other.resources.iter().map(String::as_str))
                .collect();
            assert_eq!(resources, expected, "{groups:?} {operations:?}");
        }
    }

    #[test]
    fn mutating_webhooks_have_turns_and_validating_webhooks_do_not() {
        let any = webhook("w", &["*"], &["*"], &["*"]);
        let all = [
            configuration(
                "capi-kubeadm-control-plane-mutating-webhook-configuration",
                &json!([any]),
            ),
            own(),
            configuration("a-policy", &json!([any])),
        ];
        let turns = |kind| -> Vec<(String, Turn)> {
            let found = other_webhooks(kind, &own(), &all);
            found
                .into_iter()
                .map(|other| (other.configuration, other.turn))
                .collect()
        };
        let capi = "capi-kubeadm-control-plane-mutating-webhook-configuration".to_owned();
        assert_eq!(
            turns(HookKind::Mutating),
            [("a-policy".to_owned(), Turn::Before), (capi.clone(), Turn::After)]
        );
        assert_eq!(
            turns(HookKind::Validating),
            [("a-policy".to_owned(), Turn::SameTime), (capi, Turn::SameTime)]
        );
    }

    #[test]
    fn a_webhook_of_some_objects_is_selective() {
        let mut some = webhook("w", &["*"], &["*"], &["*"]);
        some["failurePolicy"] = json!("Ignore");
        some["timeoutSeconds"] = json!(10);
        for (field, value, expected) in [
            ("namespaceSelector", json!({}), false),
            ("objectSelector", json!({"matchLabels": {"a": "b"}}), true),
            (
                "matchConditions",
                json!([{"name": "c", "expression": "true"}]),
                true,
            ),
        ] {
            let mut some = some.clone();
            some[field] = value;
            let other = configuration("b", &json!([some]));
            let found = other_webhooks(HookKind::Mutating, &own(), &[other]);
            assert_eq!(
                found,
                [OtherWebhook {
                    kind: HookKind::Mutating,
                    configuration: "b".to_owned(),
                    name: "w".to_owned(),
                    resources: vec!["kubeadmcontrolplanes".to_owned()],
                    turn: Turn::After,
                    fails_closed: false,
                    timeout_seconds: Some(10),
                    is_selective: expected,
                }],
                "{field}"
            );
        }
    }
}
