//! A stand-in for an admission webhook that denies every request.

use anyhow::{Context as _, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::json_server::JsonServer;
use crate::resources::{CLUSTER_GROUP, CONTROL_PLANE_GROUP};

/// The name of every such webhook ends with this. Logs of controllers may then contain its denials.
pub(crate) const SUFFIX: &str = ".refusing.test";

/// The server, and its configuration. Dropping it closes all its connections; [`Self::remove`] also removes the
/// configuration.
pub struct RefusingWebhook {
    api: Api<ValidatingWebhookConfiguration>,
    name: String,
    _server: JsonServer,
}

impl RefusingWebhook {
    /// Denies each request that creates a Machine in a namespace, for this reason. The webhook's name is the namespace
    /// and [`SUFFIX`].
    pub async fn of_machines(api: &ApiServer, namespace: &str, reason: &str) -> Result<Self> {
        let rule = json!({"apiGroups": [CLUSTER_GROUP], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["machines"]});
        Self::start(api, namespace, &rule, &json!({}), reason).await
    }

    /// Denies each request of Cluster API's core manager that changes the control plane of a Cluster, for this reason.
    pub async fn of_topology(api: &ApiServer, namespace: &str, cluster: &str, reason: &str) -> Result<Self> {
        let rule = json!({"apiGroups": [CONTROL_PLANE_GROUP], "apiVersions": ["*"], "operations": ["UPDATE"],
            "resources": ["kubeadmcontrolplanes"]});
        let user = "request.userInfo.username == 'system:serviceaccount:capi-system:capi-manager'";
        let only = json!({
            "objectSelector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": cluster}},
            "matchConditions": [{"name": "topology-controller", "expression": user}],
        });
        Self::start(api, namespace, &rule, &only, reason).await
    }

    /// `only` has the fields of the webhook that further limit the requests.
    async fn start(
        api: &ApiServer,
        namespace: &str,
        rule: &Value,
        only: &Value,
        reason: &str,
    ) -> Result<Self> {
        let name = format!("{namespace}{SUFFIX}");
        let reason = reason.to_owned();
        let server = JsonServer::start(api, &name, move |review| denial(review, &reason)).await?;
        let mut webhook = json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": server.client_config,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [rule],
        });
        json_patch::merge(&mut webhook, only);
        let configuration =
            serde_json::from_value(json!({"metadata": {"name": name}, "webhooks": [webhook]}))?;
        let configurations = Api::all(api.client().clone());
        configurations
            .create(&PostParams::default(), &configuration)
            .await
            .context("creating the configuration of the refusing webhook")?;
        Ok(Self {
            api: configurations,
            name,
            _server: server,
        })
    }

    pub async fn remove(self) -> Result<()> {
        self.api.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }
}

fn denial(review: &Value, reason: &str) -> Result<Value> {
    let uid = review.pointer("/request/uid").context("the review has no uid")?;
    Ok(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": uid, "allowed": false, "status": {"code": 403, "message": reason}},
    }))
}
