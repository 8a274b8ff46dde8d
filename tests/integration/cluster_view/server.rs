//! A server of ours beside an API server, called like the API server would, and its status.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use http::Request;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kcp_tests::addresses::free_port;
use kcp_tests::api_server::ApiServer;
use kcp_tests::kubeconfig::{self, User};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::pki::Subject;
use kcp_tests::process::Process;
use kcp_tests::{manifests, products, wait};
use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

/// The server's user, which does not have the shipped role at first.
const USER: &str = "kcp-webhook";

/// The server under test.
pub(super) struct Server {
    process: Process,
    port: u16,
    health: Client,
    reviews: Client,
}

impl Server {
    /// Starts a server without permissions, see [`bind_shipped_role`].
    pub(super) async fn start(management: &ManagementCluster, api: &ApiServer) -> Result<Self> {
        Self::start_for_clients_of(management, api, None).await
    }

    /// The same with a CA for the certificates of clients.
    pub(super) async fn start_for_clients_of(
        management: &ManagementCluster,
        api: &ApiServer,
        client_ca: Option<&Path>,
    ) -> Result<Self> {
        let subject = Subject {
            common_name: USER,
            ..Subject::default()
        };
        let user = api
            .authority()
            .issue(api.folder(), "kcp-webhook-user", &subject)?;
        let kubeconfig = api.folder().join("kcp-webhook-kubeconfig");
        api.write_kubeconfig(&kubeconfig, &User::Certificate(&user))?;
        let mut flags = vec![format!("--kubeconfig={}", kubeconfig.display())];
        flags.extend(client_ca.map(|file| format!("--client-ca-file={}", file.display())));
        Self::start_with(management, api, &flags).await
    }

    /// Starts a server without API access.
    pub(super) async fn start_blind(management: &ManagementCluster, api: &ApiServer) -> Result<Self> {
        Self::start_with(management, api, &[]).await
    }

    async fn start_with(management: &ManagementCluster, api: &ApiServer, flags: &[String]) -> Result<Self> {
        let subject = Subject {
            common_name: "kcp-webhook",
            addresses: &[Ipv4Addr::LOCALHOST.into()],
            ..Subject::default()
        };
        let (port, health) = (free_port()?, free_port()?);
        let name = format!("{}-kcp-webhook-{port}", api.name());
        let serving = api.authority().issue(api.folder(), &name, &subject)?;
        let mut arguments = vec![
            "serve".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--health-port={health}"),
            format!("--tls-cert-file={}", serving.certificate.display()),
            format!("--tls-private-key-file={}", serving.key.display()),
        ];
        arguments.extend_from_slice(flags);
        let program = products::under_test("kcp-webhook")?;
        let environment: &[(&str, &str)] = &[];
        let process = Process::start(management.run(), &name, &program, arguments, environment)?;
        let url = format!("https://127.0.0.1:{port}");
        let authority = api.folder().join("ca.crt");
        let server = Self {
            process,
            port,
            health: kubeconfig::plain_client(&format!("http://127.0.0.1:{health}"))?,
            reviews: kubeconfig::client(&url, &authority, &User::Token("unread")).await?,
        };
        // Readiness does not depend on the caches.
        wait::until("kcp-webhook is ready", || async {
            ensure!(server.probe("/readyz").await? == "ok", "not ready");
            Ok(())
        })
        .await?;
        Ok(server)
    }

    /// Sends a review to the validating webhook, and returns the answer in one line.
    pub(super) async fn says(&self, review: &Value) -> Result<String> {
        let request = Request::post("/validate")
            .header("content-type", "application/json")
            .body(serde_json::to_vec(review)?)?;
        let answer: Value = self.reviews.request(request).await.context("POST /validate")?;
        Ok(told(&answer["response"]))
    }

    /// Reads a path of its health port.
    pub(super) async fn probe(&self, path: &str) -> Result<String> {
        let request = Request::get(path).body(Vec::new())?;
        let answer = self.health.request_text(request).await;
        answer.with_context(|| format!("GET {path}"))
    }

    /// The states of its caches, by kind.
    pub(super) async fn caches(&self) -> Result<Vec<String>> {
        let answer = self.probe("/readyz?verbose").await?;
        ensure!(answer.ends_with("readyz check passed\n"), "{answer}");
        let caches = answer.lines().filter_map(|line| line.strip_prefix("[i]cache/"));
        Ok(caches.map(str::to_owned).collect())
    }

    /// Waits until its caches have these states.
    pub(super) async fn has_caches(&self, expected: &[&str]) -> Result<()> {
        let what = format!("the caches are {expected:?}");
        wait::until(&what, || async {
            let caches = self.caches().await?;
            ensure!(caches == expected, "they are {caches:?}");
            Ok(())
        })
        .await
    }

    /// A sample of a metric, by its name and labels.
    pub(super) async fn metric(&self, name: &str) -> Result<Option<u64>> {
        let metrics = self.probe("/metrics").await?;
        let value = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value
            .map(|value| value.parse().context("not a number"))
            .transpose()
    }

    /// Waits until a metric has at least this value.
    pub(super) async fn metric_reaches(&self, name: &str, least: u64) -> Result<()> {
        wait::until(&format!("{name} is {least}"), || async {
            let value = self.metric(name).await?;
            ensure!(value.is_some_and(|value| value >= least), "it is {value:?}");
            Ok(())
        })
        .await
    }

    /// The number of log lines that contain all of these.
    pub(super) fn logged(&self, parts: &[&str]) -> Result<usize> {
        let log = fs::read_to_string(self.process.log())?;
        let lines = log.lines();
        Ok(lines
            .filter(|line| parts.iter().all(|part| line.contains(part)))
            .count())
    }

    /// Resident anonymous memory in KiB (proc(5), `RssAnon`).
    pub(super) fn resident_anonymous_kib(&self) -> Result<u64> {
        let file = PathBuf::from(format!("/proc/{}/status", self.process.id()?));
        let status = fs::read_to_string(&file)?;
        let value = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let value = value.with_context(|| format!("{} has no RssAnon", file.display()))?;
        Ok(value.trim().trim_end_matches(" kB").parse()?)
    }

    /// Registers it with the shipped validating webhooks, after `change`.
    pub(super) async fn register_shipped(
        &self,
        api: &ApiServer,
        change: impl FnOnce(&mut DynamicObject),
    ) -> Result<()> {
        let file = products::workspace().join("manifests/registration/validatingwebhookconfiguration.yaml");
        let mut objects = manifests::objects(&file)?;
        let mut configuration = objects.pop().context("the file has no object")?;
        manifests::redirect_webhooks(&mut configuration, |path| {
            manifests::local_client_config(self.port, path, api.authority().certificate())
        })?;
        change(&mut configuration);
        manifests::create_webhooks(api.client(), &configuration).await
    }

    /// Its readiness with details.
    pub(super) async fn readiness(&self) -> Result<String> {
        self.probe("/readyz?verbose").await
    }

    /// Makes an API server call it for every write to a resource.
    pub(super) async fn register(&self, api: &ApiServer, resource: &str) -> Result<()> {
        let config = manifests::local_client_config(self.port, "/validate", api.authority().certificate())?;
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "kcp-webhook"},
            "webhooks": [{
                "name": "scale.kubectl-kcp.dev", "clientConfig": config, "admissionReviewVersions": ["v1"],
                "sideEffects": "None", "failurePolicy": "Fail",
                "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource], "operations": ["UPDATE"]}]
            }]
        });
        manifests::create_webhooks(api.client(), &serde_json::from_value(configuration)?).await
    }
}

/// Gives the server's user the shipped role and no other.
pub(super) async fn bind_shipped_role(api: &ApiServer) -> Result<()> {
    let shipped = manifests::read(&products::workspace().join("manifests/base/rbac.yaml"))?;
    for mut object in shipped {
        if object["kind"] == "ClusterRole" {
            let role: ClusterRole = serde_json::from_value(object)?;
            let roles = Api::all(api.client().clone());
            roles.create(&PostParams::default(), &role).await?;
        } else {
            object["subjects"] =
                json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]);
            let binding: ClusterRoleBinding = serde_json::from_value(object)?;
            let bindings = Api::all(api.client().clone());
            bindings.create(&PostParams::default(), &binding).await?;
        }
    }
    Ok(())
}

/// An answer in one line: the verdict and the warnings.
fn told(response: &Value) -> String {
    let text = |pointer: &str| response.pointer(pointer).and_then(Value::as_str);
    let verdict = match text("/auditAnnotations/denied-by") {
        _ if response["allowed"] == true => "allowed".to_owned(),
        Some(rules) => format!("denied by {rules}"),
        None => format!(
            "{}: {}",
            response["status"]["code"],
            text("/status/message").unwrap_or_default()
        ),
    };
    let warnings = response["warnings"].as_array().into_iter().flatten();
    warnings
        .filter_map(Value::as_str)
        .fold(verdict, |told, warning| format!("{told}; {warning}"))
}
