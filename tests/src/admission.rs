//! Our own webhook server, installed from the shipped manifests.
//!
//! It runs as a process beside the API server, not in a pod: its Service becomes a URL, its volumes become folders, and
//! its ports are local. All other arguments are the Deployment's. It has the permissions of the shipped `ClusterRole`
//! only.

pub(crate) mod container;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use self::container::{Container, Ports};
use crate::addresses::free_port;
use crate::api_server::{ApiServer, NO_ENVIRONMENT, ready};
use crate::kubectl::Kubectl;
use crate::pki::Subject;
use crate::process::Process;
use crate::run::Run;
use crate::volume::Volume;
use crate::{kubeconfig, manifests, products, wait};

/// Longer than any run.
const TOKEN_SECONDS: i64 = 24 * 60 * 60;

const NAMESPACE: &str = "kcp-webhook-system";
const SERVICE_ACCOUNT: &str = "kcp-webhook";

const TLS_VOLUME: &str = "tls";
const CONFIGURATION_VOLUME: &str = "configuration";

/// The API server reads the two webhook configurations separately.
const PATHS: [&str; 2] = ["/mutate", "/validate"];

pub struct Admission {
    process: Process,
    health: Client,
    volumes: PathBuf,
}

impl Admission {
    /// Applies the manifests, starts the server and waits until the API server calls it.
    pub async fn start(run: &Arc<Run>, api: &ApiServer, kubectl: &Kubectl) -> Result<Self> {
        let program = products::under_test("kcp-webhook")?;
        let folder = api.folder().join("kcp-webhook");
        let others = kustomized(kubectl, "manifests/base").await?;
        ensure!(
            !others
                .iter()
                .any(|object| kind(object).ends_with("WebhookConfiguration")),
            "manifests/base alone must not make the API server call a server that is not ready"
        );
        let configurations = kustomized(kubectl, "manifests/registration").await?;
        ensure!(
            configurations.len() == PATHS.len(),
            "manifests/registration has {} objects",
            configurations.len()
        );
        let volumes = folder.join("volumes");
        fs::create_dir_all(volumes.join(CONFIGURATION_VOLUME))
            .with_context(|| format!("creating {}", volumes.display()))?;
        apply(kubectl, &folder.join("objects.json"), &others).await?;

        let ports = Ports {
            secure: free_port()?,
            health: free_port()?,
        };
        let mut arguments = Container::of_deployment(&others)?.arguments(&volumes, ports)?;
        arguments.extend(outside_a_pod(api, &folder, &volumes).await?);
        let log = format!("{}-kcp-webhook", api.name());
        let mut process = Process::start(run, &log, &program, arguments, NO_ENVIRONMENT)?;
        let health = kubeconfig::plain_client(&format!("http://127.0.0.1:{}", ports.health))?;
        wait::until_served("kcp-webhook is ready", &mut process, || ready(&health)).await?;

        let mut redirected = Vec::new();
        let version = served_version(api).await?;
        for configuration in configurations {
            let configuration = configuration
                .to_string()
                .replace("\"v1beta2\"", &format!("\"{version}\""));
            let configuration: Value = serde_json::from_str(&configuration)?;
            let mut configuration: DynamicObject = serde_json::from_value(configuration)?;
            manifests::redirect_webhooks(&mut configuration, |path| {
                manifests::local_client_config(ports.secure, path, api.authority().certificate())
            })?;
            redirected.push(serde_json::to_value(configuration)?);
        }
        apply(kubectl, &folder.join("webhooks.json"), &redirected).await?;
        let admission = Self {
            process,
            health,
            volumes,
        };
        admission.asked(kubectl).await?;
        Ok(admission)
    }

    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// The server's metrics in the Prometheus text format.
    pub async fn metrics(&self) -> Result<String> {
        let metrics = Request::get("/metrics").body(Vec::new())?;
        self.health.request_text(metrics).await.context("GET /metrics")
    }

    /// The server's readiness with its details.
    pub async fn readiness(&self) -> Result<String> {
        let ready = Request::get("/readyz?verbose").body(Vec::new())?;
        self.health.request_text(ready).await.context("GET /readyz")
    }

    /// The server's `ConfigMap` as a kubelet mounts it. It is empty until a test writes it.
    pub fn configuration(&self) -> Volume {
        Volume::at(self.volumes.join(CONFIGURATION_VOLUME))
    }

    /// Waits until the API server calls both webhooks, according to the server's request counters.
    async fn asked(&self, kubectl: &Kubectl) -> Result<()> {
        let sample = products::workspace().join("manifests/samples/good/clusterpool.yaml");
        let sample = sample.display().to_string();
        wait::until("the API server asks kcp-webhook", || async {
            kubectl
                .succeed(["create", "--dry-run=server", "-f", &sample])
                .await?;
            let metrics = self.metrics().await?;
            for path in PATHS {
                let label = format!("webhook=\"{path}\"");
                let counted = |line: &str| {
                    line.starts_with("controller_runtime_webhook_requests_total{")
                        && line.contains(&label)
                        && !line.ends_with(" 0")
                };
                ensure!(metrics.lines().any(counted), "{path} was not called yet");
            }
            Ok(())
        })
        .await
    }
}

/// The version that a person writes into manifests/registration: v1beta1 if Cluster API is so old that it does not serve v1beta2.
async fn served_version(api: &ApiServer) -> Result<&'static str> {
    let newest = api
        .client()
        .list_api_group_resources("controlplane.cluster.x-k8s.io/v1beta2");
    match newest.await {
        Ok(_) => Ok("v1beta2"),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok("v1beta1"),
        Err(error) => Err(error).context("discovering the versions of Cluster API"),
    }
}

/// What a pod would have: a certificate for its address, a service account, and an address.
async fn outside_a_pod(api: &ApiServer, folder: &Path, volumes: &Path) -> Result<[String; 2]> {
    let addresses = [Ipv4Addr::LOCALHOST.into()];
    let subject = Subject {
        common_name: SERVICE_ACCOUNT,
        addresses: &addresses,
        ..Subject::default()
    };
    // The keys of a certificate's Secret are tls.crt and tls.key.
    api.authority()
        .issue(&volumes.join(TLS_VOLUME), "tls", &subject)?;
    let kubeconfig = folder.join("kubeconfig");
    api.write_token_kubeconfig(&kubeconfig, &token(api, SERVICE_ACCOUNT).await?)?;
    Ok([
        "--bind-address=127.0.0.1".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
    ])
}

pub(crate) async fn token(api: &ApiServer, account: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(api.client().clone(), NAMESPACE);
    let spec = TokenRequestSpec {
        expiration_seconds: Some(TOKEN_SECONDS),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest {
        spec: Some(spec),
        ..TokenRequest::default()
    };
    let issued = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await;
    let status = issued
        .with_context(|| format!("requesting a token for {account}"))?
        .status;
    status
        .and_then(|status| status.token)
        .context("the API server issued no token")
}

/// The objects of a folder with a kustomization.
pub(crate) async fn kustomized(kubectl: &Kubectl, folder: &str) -> Result<Vec<Value>> {
    let path = products::workspace().join(folder);
    let built = kubectl
        .succeed(["kustomize", &path.display().to_string()])
        .await?;
    manifests::parse(&built.stdout).with_context(|| format!("parsing {folder}"))
}

pub(crate) async fn apply(kubectl: &Kubectl, file: &Path, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(file, serde_json::to_vec(&list)?)
        .with_context(|| format!("writing {}", file.display()))?;
    kubectl
        .succeed(["apply", "-f", &file.display().to_string()])
        .await?;
    Ok(())
}

pub(crate) fn kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}
