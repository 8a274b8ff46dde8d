//! A stand-in for a runtime extension of Cluster API, which blocks each lifecycle hook of an upgrade until the test lets it pass.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::json_server::JsonServer;
use crate::{resources, wait};

/// The hooks that it answers.
pub const HOOKS: [&str; 6] = [
    "BeforeClusterUpgrade",
    "BeforeControlPlaneUpgrade",
    "AfterControlPlaneUpgrade",
    "BeforeWorkersUpgrade",
    "AfterWorkersUpgrade",
    "AfterClusterUpgrade",
];

/// The setting of the registration with the person for whom the hooks wait.
const APPROVER: &str = "approver";

/// A hook, and the version to which it belongs.
type Step = (String, String);

/// The server, and its registration. After a test, [`Self::remove`] removes the registration: without the server, the managers of
/// other tests would not start.
pub struct RuntimeExtension {
    api: Api<DynamicObject>,
    name: String,
    /// What the extension answers, if it does not block.
    answers: Arc<Mutex<BTreeMap<Step, Value>>>,
    _server: JsonServer,
}

impl RuntimeExtension {
    /// Registers the extension for the Clusters of a namespace, whose name it has.
    pub async fn register(api: &ApiServer, namespace: &str, approver: &str) -> Result<Self> {
        let answers: Arc<Mutex<BTreeMap<Step, Value>>> = Arc::default();
        let known = answers.clone();
        let server = JsonServer::start(api, &format!("{namespace}-extension"), move |request| {
            response(request, &known.lock().unwrap_or_else(PoisonError::into_inner))
        })
        .await?;
        let registration = serde_json::from_value(json!({
            "apiVersion": "runtime.cluster.x-k8s.io/v1beta2",
            "kind": "ExtensionConfig",
            "metadata": {"name": namespace},
            "spec": {
                "clientConfig": server.client_config,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "settings": {APPROVER: approver},
            },
        }))?;
        let api = resources::extension_configs(api.client());
        api.create(&PostParams::default(), &registration)
            .await
            .context("registering the runtime extension")?;
        let extension = Self {
            api,
            name: namespace.to_owned(),
            answers,
            _server: server,
        };
        if let Err(error) = extension.is_discovered().await {
            // Otherwise, Cluster API's managers would wait for it at their next start.
            extension
                .api
                .delete(&extension.name, &DeleteParams::default())
                .await?;
            return Err(error);
        }
        Ok(extension)
    }

    async fn is_discovered(&self) -> Result<()> {
        wait::until("the runtime extension is discovered", || async {
            let registration = self.api.get(&self.name).await.context("reading it")?;
            let handlers = registration.data.pointer("/status/handlers");
            let count = handlers.and_then(Value::as_array).map_or(0, Vec::len);
            ensure!(count == HOOKS.len(), "{:?}", registration.data.get("status"));
            Ok(())
        })
        .await
    }

    /// What the extension says while it blocks a hook.
    pub fn message(approver: &str, hook: &str, version: &str) -> String {
        format!("{approver} has not approved {hook} of {version}")
    }

    /// Lets a hook pass.
    pub fn release(&self, hook: &str, version: &str) {
        self.answer(hook, version, json!({"status": "Success"}));
    }

    /// Has the extension report a failure of a hook.
    pub fn fail(&self, hook: &str, version: &str, reason: &str) {
        self.answer(hook, version, json!({"status": "Failure", "message": reason}));
    }

    /// Has the extension block a hook again.
    pub fn block(&self, hook: &str, version: &str) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.remove(&(hook.to_owned(), version.to_owned()));
    }

    fn answer(&self, hook: &str, version: &str, answer: Value) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.insert((hook.to_owned(), version.to_owned()), answer);
    }

    pub async fn remove(self) -> Result<()> {
        self.api.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// Source: Cluster API v1.14, `api/runtime/hooks/v1alpha1`.
fn response(request: &Value, answers: &BTreeMap<Step, Value>) -> Result<Value> {
    let text = |pointer| request.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").context("a request without kind")?;
    let hook = kind.strip_suffix("Request").context("no request of a hook")?;
    let api_version = text("/apiVersion").context("a request without apiVersion")?;
    let mut response = if hook == "Discovery" {
        let handler = |hook: &str| {
            let request = json!({"apiVersion": api_version, "hook": hook});
            json!({"name": hook.to_lowercase(), "requestHook": request})
        };
        json!({"status": "Success", "handlers": HOOKS.map(handler)})
    } else {
        let version = text("/toKubernetesVersion").or_else(|| text("/kubernetesVersion"));
        let version = version.context("a hook without version")?;
        let approver = text(&format!("/settings/{APPROVER}")).context("the settings are missing")?;
        let known = answers.get(&(hook.to_owned(), version.to_owned()));
        known.cloned().unwrap_or_else(|| {
            let message = RuntimeExtension::message(approver, hook, version);
            json!({"status": "Success", "retryAfterSeconds": 1, "message": message})
        })
    };
    let types = json!({"apiVersion": api_version, "kind": format!("{hook}Response")});
    json_patch::merge(&mut response, &types);
    Ok(response)
}
