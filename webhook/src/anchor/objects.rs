//! Reads and writes the objects of the anchor. Every call has a time limit.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apps::v1::DaemonSet,
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Node, Pod, ServiceAccount},
};
use kcp_rules::{anchor::SERVES, registration::CONFIGURATION};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::decision::{Cause, Membership};
use crate::{
    arguments::AnchorArguments,
    request::{RequestError, call},
};

/// The service account of the Deployment, whose permissions the static Pod needs, too.
const SERVICE_ACCOUNT: &str = "kcp-webhook";

/// How long a token of the static Pod is valid, in seconds: a day. An API server can shorten it.
const TOKEN_VALIDITY: i64 = 24 * 3600;

/// A token of the static Pod. No `Debug`, because it contains the token.
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) expires: Timestamp,
}

pub(crate) struct Objects {
    client: Client,
    namespace: String,
    node: String,
    pod: String,
    daemon_set: String,
    port: u16,
}

impl Objects {
    pub(crate) fn new(client: Client, arguments: &AnchorArguments) -> Self {
        Self {
            client,
            namespace: arguments.namespace.clone(),
            node: arguments.node_name.clone(),
            pod: arguments.pod_name.clone(),
            daemon_set: arguments.daemon_set.clone(),
            port: arguments.port,
        }
    }

    /// Whether the DaemonSet wants its Pod on this Node.
    pub(crate) async fn membership(&self) -> Result<Membership, RequestError> {
        let daemon_sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), &self.namespace);
        let action = format!("get the DaemonSet {}", self.daemon_set);
        let daemon_set = call(&action, daemon_sets.get_opt(&self.daemon_set)).await?;
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = call(&format!("get the Node {}", self.node), nodes.get_opt(&self.node)).await?;
        Ok(membership(daemon_set.as_ref(), node.as_ref()))
    }

    /// Whether a webhook configuration has the address of the static Pod.
    pub(crate) async fn is_called(&self) -> Result<bool, RequestError> {
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let action = format!("get the webhook configuration {CONFIGURATION}");
        let mutating = call(&action, mutating.get_opt(CONFIGURATION)).await?;
        let validating = call(&action, validating.get_opt(CONFIGURATION)).await?;
        let mutating = mutating
            .into_iter()
            .flat_map(|found| found.webhooks.unwrap_or_default());
        let validating = validating
            .into_iter()
            .flat_map(|found| found.webhooks.unwrap_or_default());
        let configs = mutating.map(|webhook| webhook.client_config);
        let mut configs = configs.chain(validating.map(|webhook| webhook.client_config));
        let address = format!("https://127.0.0.1:{}/", self.port);
        Ok(configs.any(|config| config.url.is_some_and(|url| url.starts_with(&address))))
    }

    /// The Pod in which this process runs.
    pub(crate) async fn own_pod(&self) -> Result<Pod, RequestError> {
        call(&format!("get the Pod {}", self.pod), self.pods().get(&self.pod)).await
    }

    /// Records the serial number of the certificate with which the local server has passed its self-test.
    pub(crate) async fn record_certificate(&self, pod: &Pod, serial: &str) -> Result<(), RequestError> {
        // With the resource version, the API server rejects the write after another change.
        let change = json!({"metadata": {
            "resourceVersion": pod.resource_version(),
            "annotations": {SERVES: serial},
        }});
        let action = format!("annotate the Pod {}", self.pod);
        let parameters = PatchParams::default();
        call(
            &action,
            self.pods().patch(&self.pod, &parameters, &Patch::Merge(change)),
        )
        .await?;
        Ok(())
    }

    /// Requests a token for the static Pod, with the permissions of the Deployment.
    pub(crate) async fn token(&self) -> Result<Token, RequestError> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(TOKEN_VALIDITY),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let action = "request a token for the static Pod";
        let parameters = PostParams::default();
        let response = call(
            action,
            accounts.create_token_request(SERVICE_ACCOUNT, &parameters, &request),
        )
        .await?;
        let token = response.status.and_then(|status| {
            Some(Token {
                text: status.token?,
                expires: status.expiration_timestamp?.0,
            })
        });
        token.ok_or_else(|| RequestError::failed(action, &"the response has no token"))
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// The image of the first container of a Pod.
pub(crate) fn image(pod: &Pod) -> Option<&str> {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice());
    containers.unwrap_or_default().first()?.image.as_deref()
}

fn membership(daemon_set: Option<&DaemonSet>, node: Option<&Node>) -> Membership {
    let Some(daemon_set) = daemon_set.filter(|found| found.metadata.deletion_timestamp.is_none()) else {
        return Membership::Ended(Cause::Uninstalled);
    };
    let Some(node) = node.filter(|found| found.metadata.deletion_timestamp.is_none()) else {
        return Membership::Ended(Cause::NodeDeleted);
    };
    let selector = daemon_set.spec.as_ref();
    let selector = selector.and_then(|spec| spec.template.spec.as_ref()?.node_selector.as_ref());
    let no_labels = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&no_labels);
    if selector.is_none_or(|selector| selector.iter().all(|(key, value)| labels.get(key) == Some(value))) {
        Membership::Selected
    } else {
        Membership::Ended(Cause::NotSelected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_belongs_to_the_daemon_set_while_both_exist_and_the_labels_match() {
        let daemon_set = |deleted: Option<&str>| -> DaemonSet {
            serde_json::from_value(json!({
                "metadata": {"deletionTimestamp": deleted},
                "spec": {"selector": {}, "template": {"spec": {
                    "containers": [], "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
                }}},
            }))
            .unwrap()
        };
        let node = |label: &str, deleted: Option<&str>| -> Node {
            serde_json::from_value(json!({"metadata": {"labels": {label: ""}, "deletionTimestamp": deleted}}))
                .unwrap()
        };
        let (role, time) = (
            "node-role.kubernetes.io/control-plane",
            Some("2026-12-01T00:00:00Z"),
        );
        let selecting = || Some(daemon_set(None));
        let cases: Vec<(Option<DaemonSet>, Option<Node>, Membership)> = vec![
            (selecting(), Some(node(role, None)), Membership::Selected),
            (
                selecting(),
                Some(node("other", None)),
                Membership::Ended(Cause::NotSelected),
            ),
            (
                selecting(),
                Some(node(role, time)),
                Membership::Ended(Cause::NodeDeleted),
            ),
            (selecting(), None, Membership::Ended(Cause::NodeDeleted)),
            (
                Some(daemon_set(time)),
                Some(node(role, None)),
                Membership::Ended(Cause::Uninstalled),
            ),
            (
                None,
                Some(node(role, None)),
                Membership::Ended(Cause::Uninstalled),
            ),
        ];
        for (daemon_set, node, expected) in cases {
            assert_eq!(
                membership(daemon_set.as_ref(), node.as_ref()),
                expected,
                "{daemon_set:?} {node:?}"
            );
        }
    }
}
