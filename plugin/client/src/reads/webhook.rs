//! Reads the webhook configurations of all programs, and the Pods of kcp-webhook.

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kcp_api::{
    Kind, Object as _, WebhookConfiguration,
    kind::{LEASE, MUTATING_WEBHOOK_CONFIGURATION, POD, VALIDATING_WEBHOOK_CONFIGURATION},
    webhook_configuration::Webhook,
};
use kcp_control_plane::webhook::{
    Canary, HookKind, Pods, Registered, Registration, Trust, WebhookState, order::other_webhooks,
};
use kcp_rules::{
    anchor::STATIC_POD,
    registration::{
        CANARY_LEASE, CONFIGURATION, PROBLEM_ANNOTATION, calls_static_pods, canary_namespace, disabled_note,
        disabled_until, switch,
    },
};
use serde_json::Value;

use crate::{Action, Connection, Error, ReadLimit, reads::certificates::lifetimes, reads::failure::one_line};

/// The label of the Pods, which the Deployment and the Service in `manifests/base` select.
const POD_SELECTOR: &str = "app.kubernetes.io/name=kcp-webhook";

/// The kind of the configurations in the API.
pub const fn resource_kind(kind: HookKind) -> &'static Kind {
    match kind {
        HookKind::Mutating => &MUTATING_WEBHOOK_CONFIGURATION,
        HookKind::Validating => &VALIDATING_WEBHOOK_CONFIGURATION,
    }
}

/// Reads the state of kcp-webhook. If the Pods cannot be read, the state says why.
pub async fn read_webhook(connection: &Connection, limit: ReadLimit) -> Result<WebhookState, Error> {
    let (mutating, validating) = futures_util::future::try_join(
        list(connection, HookKind::Mutating, limit),
        list(connection, HookKind::Validating, limit),
    )
    .await?;
    let registration = |kind, all: &[(Value, WebhookConfiguration)]| Registration {
        kind,
        registered: own(all).map(|(object, configuration)| registered(object, configuration)),
    };
    let others = |kind, all: &[(Value, WebhookConfiguration)]| {
        let configurations: Vec<_> = all
            .iter()
            .map(|(_, configuration)| configuration.clone())
            .collect();
        own(all).map_or_else(Vec::new, |(_, own)| other_webhooks(kind, own, &configurations))
    };
    let namespace = [&mutating, &validating].into_iter().find_map(|all| {
        let service = |webhook: &Webhook| Some(webhook.client_config.service.as_ref()?.namespace.clone());
        own(all)?.1.webhooks.iter().find_map(service)
    });
    let canary = own(&validating).and_then(|(object, _)| canary_namespace(object));
    let canary = match canary {
        Some(namespace) => read_canary(connection, namespace, limit).await,
        None => Canary::Absent,
    };
    let calls_static_pods = [&mutating, &validating]
        .into_iter()
        .any(|all| own(all).is_some_and(|(object, _)| calls_static_pods(object, None)));
    Ok(WebhookState {
        registrations: [
            registration(HookKind::Mutating, &mutating),
            registration(HookKind::Validating, &validating),
        ],
        pods: match &namespace {
            Some(namespace) => read_pods(connection, Some(namespace), POD_SELECTOR, limit).await,
            None if calls_static_pods => {
                read_pods(
                    connection,
                    None,
                    &format!("app.kubernetes.io/name={STATIC_POD}"),
                    limit,
                )
                .await
            }
            None => Pods::Unknown,
        },
        canary,
        namespace,
        others: [
            others(HookKind::Mutating, &mutating),
            others(HookKind::Validating, &validating),
        ]
        .concat(),
    })
}

/// Returns a text that says that somebody has disabled kcp-webhook. `None` if kcp-webhook is enabled or not installed, or if the
/// configurations cannot be read.
pub async fn read_switched_off(connection: &Connection, limit: ReadLimit) -> Option<String> {
    for kind in HookKind::ALL {
        let all = list(connection, kind, limit).await.ok()?;
        let own = own(&all).map(|(object, configuration)| registered(object, configuration));
        if let Some(off) = own.and_then(|own| own.switched_off(kind, connection.now())) {
            return Some(off);
        }
    }
    None
}

async fn list(
    connection: &Connection,
    kind: HookKind,
    limit: ReadLimit,
) -> Result<Vec<(Value, WebhookConfiguration)>, Error> {
    let resource = resource_kind(kind).api_resource("v1");
    let action = Action::new("list", &resource);
    let listed: Vec<Value> = connection
        .run_with_limit(limit, &action, connection.list(&resource, None, None))
        .await?;
    let decoded = listed.into_iter().map(|object| {
        let configuration = serde_json::from_value(object.clone()).map_err(|error| Error::Other {
            action: action.clone(),
            cause: format!("a webhook configuration cannot be decoded: {error}"),
        })?;
        Ok((object, configuration))
    });
    decoded.collect()
}

fn own(all: &[(Value, WebhookConfiguration)]) -> Option<&(Value, WebhookConfiguration)> {
    all.iter()
        .find(|(_, configuration)| configuration.name() == CONFIGURATION)
}

fn registered(object: &Value, configuration: &WebhookConfiguration) -> Registered {
    let webhooks = &configuration.webhooks;
    let fails_closed = |webhook: &&Webhook| webhook.failure_policy.as_deref() != Some("Ignore");
    Registered {
        switch: switch(object),
        disabled_note: disabled_note(object).map(str::to_owned),
        disabled_until: disabled_until(object),
        entries: webhooks.len(),
        fail_closed: webhooks.iter().filter(fails_closed).count(),
        trust: trust(configuration),
    }
}

fn trust(configuration: &WebhookConfiguration) -> Trust {
    let bundles = || {
        configuration
            .webhooks
            .iter()
            .map(|webhook| webhook.client_config.ca_bundle.as_ref())
    };
    let Some(Some(first)) = bundles().next() else {
        return Trust::NoBundle;
    };
    if bundles().any(|bundle| bundle.is_none_or(|bundle| bundle.0.is_empty())) {
        return Trust::NoBundle;
    }
    if bundles().any(|bundle| bundle != Some(first)) {
        return Trust::Differs;
    }
    match lifetimes(&first.0) {
        Some(lifetimes) => match lifetimes.iter().map(|(expires, _)| *expires).max() {
            Some(expires) => Trust::Until {
                expires,
                certificates: lifetimes.len(),
            },
            None => Trust::Unreadable,
        },
        None => Trust::Unreadable,
    }
}

async fn read_canary(connection: &Connection, namespace: &str, limit: ReadLimit) -> Canary {
    let resource = LEASE.api_resource("v1");
    let action = Action::new("get", &resource)
        .in_namespace(namespace)
        .with_name(CANARY_LEASE);
    let read = connection.get::<Lease>(&resource, namespace, CANARY_LEASE);
    match connection.run_with_limit(limit, &action, read).await {
        Ok(lease) => Canary::Read {
            answered: lease.spec.and_then(|spec| Some(spec.renew_time?.0)),
            problem: lease
                .metadata
                .annotations
                .and_then(|mut all| all.remove(PROBLEM_ANNOTATION)),
        },
        Err(error) => Canary::Unread(one_line(&error.to_string())),
    }
}

/// Reads the Pods with these labels in a namespace, or in all namespaces.
async fn read_pods(
    connection: &Connection,
    namespace: Option<&str>,
    selector: &str,
    limit: ReadLimit,
) -> Pods {
    let resource = POD.api_resource("v1");
    let action = Action::new("list", &resource);
    let action = match namespace {
        Some(namespace) => action.in_namespace(namespace),
        None => action,
    };
    let read = connection.list::<Pod>(&resource, namespace, Some(selector));
    match connection.run_with_limit(limit, &action, read).await {
        Ok(pods) => Pods::Read {
            ready: pods.iter().filter(|pod| is_ready(pod)).count(),
            total: pods.len(),
        },
        Err(error) => Pods::Unread(one_line(&error.to_string())),
    }
}

fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcp_rules::registration::{CANARY_ENTRY, Switch};
    use serde_json::json;

    use super::*;
    use crate::testing::failure;

    fn configuration(name: &str, webhooks: &Value) -> Value {
        json!({"metadata": {"name": name}, "webhooks": webhooks})
    }

    fn entry(bundle: &Value, policy: &str) -> Value {
        json!({
            "name": "kubeadmcontrolplanes.example", "failurePolicy": policy,
            "clientConfig": {"caBundle": bundle, "service": {"namespace": "kcp-webhook-system", "name": "kcp-webhook"}},
            "rules": [{"apiGroups": ["controlplane.cluster.x-k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
                "resources": ["kubeadmcontrolplanes"]}],
        })
    }

    async fn read(own: Vec<Value>, pods: (u16, Value)) -> WebhookState {
        read_with(own, Vec::new(), pods, (404, json!({}))).await
    }

    async fn read_with(
        mutating: Vec<Value>,
        validating: Vec<Value>,
        pods: (u16, Value),
        lease: (u16, Value),
    ) -> WebhookState {
        let connection = Connection::canned(move |_, path| {
            let path = path.split('?').next().unwrap_or_default();
            match path {
                _ if path.ends_with("/mutatingwebhookconfigurations") => (200, json!({"items": mutating})),
                _ if path.ends_with("/validatingwebhookconfigurations") => {
                    (200, json!({"items": validating}))
                }
                "/apis/coordination.k8s.io/v1/namespaces/edge/leases/kcp-webhook-canary" => lease.clone(),
                "/api/v1/namespaces/kcp-webhook-system/pods" | "/api/v1/pods" => pods.clone(),
                _ => panic!("{path}"),
            }
        });
        let limit = ReadLimit::per_read(Duration::from_secs(10));
        read_webhook(&connection, limit).await.expect("a state")
    }

    fn pod(ready: &str) -> Value {
        json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[tokio::test]
    async fn the_lease_of_the_canary_is_in_the_namespace_that_its_entry_names() {
        let mut entry = entry(&json!("bm8="), "Ignore");
        entry["name"] = json!(CANARY_ENTRY);
        entry["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": "edge"}});
        let lease = json!({
            "metadata": {"annotations": {PROBLEM_ANNOTATION: "p"}},
            "spec": {"renewTime": "2026-12-01T12:00:00.000000Z"},
        });
        let expected = Canary::Read {
            answered: "2026-12-01T12:00:00Z".parse().ok(),
            problem: Some("p".to_owned()),
        };
        let own = configuration(CONFIGURATION, &json!([entry]));
        let pods = (200, json!({"items": []}));
        let read = async |lease| {
            read_with(Vec::new(), vec![own.clone()], pods.clone(), lease)
                .await
                .canary
        };
        assert_eq!(read((200, lease)).await, expected);
        assert!(matches!(
            read(failure(403, "Forbidden", "no")).await,
            Canary::Unread(_)
        ));
    }

    #[tokio::test]
    async fn a_registered_webhook_is_read_with_its_pods() {
        let own = configuration(
            CONFIGURATION,
            &json!([entry(&json!("bm8="), "Fail"), entry(&json!("bm8="), "Ignore")]),
        );
        let other = configuration("other", &json!([entry(&json!(null), "Fail")]));
        let pods = (200, json!({"items": [pod("True"), pod("False")]}));
        let state = read(vec![other, own], pods).await;
        let [mutating, validating] = &state.registrations;
        assert_eq!(
            mutating.registered,
            Some(Registered {
                switch: Switch::On,
                disabled_note: None,
                disabled_until: None,
                entries: 2,
                fail_closed: 1,
                trust: Trust::Unreadable,
            })
        );
        assert_eq!(validating.registered, None);
        assert_eq!(state.pods, Pods::Read { ready: 1, total: 2 });
        let others: Vec<_> = state
            .others
            .iter()
            .map(|other| other.configuration.as_str())
            .collect();
        assert_eq!(others, ["other"]);
    }

    #[tokio::test]
    async fn static_pods_are_read_in_every_namespace() {
        for (url, expected) in [
            (
                "https://127.0.0.1:11443/mutate",
                Pods::Read { ready: 1, total: 1 },
            ),
            ("https://webhook.example.com/mutate", Pods::Unknown),
        ] {
            let mut entry = entry(&json!("bm8="), "Fail");
            entry["clientConfig"] = json!({"caBundle": "bm8=", "url": url});
            let own = configuration(CONFIGURATION, &json!([entry]));
            let state = read(vec![own], (200, json!({"items": [pod("True")]}))).await;
            assert_eq!((state.namespace, state.pods), (None, expected), "{url}");
        }
    }

    #[tokio::test]
    async fn pods_that_cannot_be_read_have_a_reason() {
        let own = configuration(CONFIGURATION, &json!([entry(&json!(null), "Fail")]));
        let state = read(vec![own], failure(403, "Forbidden", "no")).await;
        let Pods::Unread(why) = &state.pods else {
            panic!("{:?}", state.pods)
        };
        assert!(
            why.starts_with("cannot list pods in namespace \"kcp-webhook-system\": forbidden"),
            "{why}"
        );
        assert_eq!(
            state.registrations[0].registered.as_ref().map(|hook| &hook.trust),
            Some(&Trust::NoBundle)
        );
    }

    #[tokio::test]
    async fn without_a_configuration_the_namespace_is_unknown() {
        let state = read(Vec::new(), (200, json!({"items": []}))).await;
        assert_eq!((state.namespace, state.pods), (None, Pods::Unknown));
    }
}
