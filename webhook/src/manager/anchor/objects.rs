//! Reads and writes the objects of the anchor. Every call has a time limit.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Node, Pod, ServiceAccount},
};
use kcp_rules::{
    anchor::{ADMISSION_KINDS, NAME, SERVES, STOPS, StaticPod},
    registration::{CONFIGURATION, calls_static_pods},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::decision::{Cause, Membership};
use crate::{
    arguments::AnchorArguments,
    manager::request::{RequestError, call},
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

/// What the manager learns from an anchor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StaticPodState {
    /// The port and the serial number of the certificate, as in [`SERVES`].
    Serves(String),
    Stops,
}

pub(crate) struct Objects {
    client: Client,
    namespace: String,
    node: String,
    pod: String,
    daemon_set: String,
}

impl Objects {
    pub(crate) fn new(client: Client, arguments: &AnchorArguments) -> Self {
        Self {
            client,
            namespace: arguments.namespace.clone(),
            node: arguments.node_name.clone(),
            pod: arguments.pod_name.clone(),
            daemon_set: arguments.daemon_set.clone(),
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

    /// Whether a webhook configuration has the address of the static Pods, at any port.
    pub(crate) async fn is_called(&self) -> Result<bool, RequestError> {
        for (kind, ..) in ADMISSION_KINDS {
            let stored = self.configuration(kind).await?;
            if stored.is_some_and(|stored| calls_static_pods(&stored, None)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The stored webhook configuration of a kind. `None` if there is none.
    pub(crate) async fn configuration(&self, kind: &str) -> Result<Option<Value>, RequestError> {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, &(kind.to_lowercase() + "s"));
        let configurations: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let action = format!("get the {kind} {CONFIGURATION}");
        let stored = call(&action, configurations.get_opt(CONFIGURATION)).await?;
        Ok(stored.map(|stored| stored.data))
    }

    /// The Pod in which this process runs.
    pub(crate) async fn own_pod(&self) -> Result<Pod, RequestError> {
        call(&format!("get the Pod {}", self.pod), self.pods().get(&self.pod)).await
    }

    /// The Pod with which the kubelet reports the static Pod of this Node. `None` if it has reported none.
    pub(crate) async fn mirror_pod(&self) -> Result<Option<Pod>, RequestError> {
        let name = format!("{NAME}-{}", self.node);
        call(&format!("get the Pod {name}"), self.pods().get_opt(&name)).await
    }

    /// Records in the Pod what the static Pod serves, or that no API server should call it.
    pub(crate) async fn record(&self, pod: &Pod, state: &StaticPodState) -> Result<(), RequestError> {
        let (serves, stops) = match state {
            StaticPodState::Serves(what) => (Some(what.as_str()), None),
            StaticPodState::Stops => (None, Some("true")),
        };
        let annotations = pod.metadata.annotations.as_ref();
        let recorded = |name: &str| annotations.and_then(|all| all.get(name)).map(String::as_str);
        if (recorded(SERVES), recorded(STOPS)) == (serves, stops) {
            return Ok(());
        }
        // Send the resource version, so that the API server rejects the write if another client has changed the Pod since.
        let change = json!({"metadata": {
            "resourceVersion": pod.resource_version(),
            "annotations": {SERVES: serves, STOPS: stops},
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

    /// Requests a token for the static Pod, with the permissions of the Deployment. The token expires after [`TOKEN_VALIDITY`] at
    /// the latest, and earlier if the Node is deleted.
    pub(crate) async fn token(&self) -> Result<Token, RequestError> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(TOKEN_VALIDITY),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Node".to_owned()),
                    name: Some(self.node.clone()),
                    uid: None,
                }),
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

/// Whether the kubelet runs this static Pod, not one from another manifest, and reports it as ready.
pub(crate) fn runs(mirror: &Pod, static_pod: &StaticPod) -> bool {
    let containers = mirror.spec.as_ref().map(|spec| spec.containers.as_slice());
    let is_same = containers.unwrap_or_default().first().is_some_and(|container| {
        container.image.as_deref() == Some(&static_pod.image)
            && container.args.as_ref() == Some(&static_pod.serve_arguments())
    });
    let conditions = mirror
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    is_same && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
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
    fn a_static_pod_runs_once_its_own_version_is_ready() {
        let static_pod = StaticPod::of_anchor("n", "image", &[]).static_pod;
        let mirror = |image: &str, argument: Option<&str>, ready: &str| -> Pod {
            let mut arguments = static_pod.serve_arguments();
            arguments.extend(argument.map(str::to_owned));
            serde_json::from_value(json!({
                "spec": {"containers": [{"name": "c", "image": image, "args": arguments}]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };
        for (mirror, expected) in [
            (mirror("image", None, "True"), true),
            (mirror("image", None, "False"), false),
            (mirror("before", None, "True"), false),
            (mirror("image", Some("--log-format=json"), "True"), false),
            (Pod::default(), false),
        ] {
            assert_eq!(runs(&mirror, &static_pod), expected, "{mirror:?}");
        }
    }

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
