//! Our own webhook server, installed from the manifests that we ship.
//!
//! It runs as a process beside the API server instead of in a pod, so its Service becomes a URL; nothing else
//! of the manifests is changed. It reads with the permissions of the shipped `ClusterRole` and no others.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::addresses::free_port;
use crate::api_server::{ApiServer, NO_ENVIRONMENT, ready};
use crate::kubectl::Kubectl;
use crate::pki::Subject;
use crate::process::Process;
use crate::run::Run;
use crate::{kubeconfig, manifests, products, wait};

/// The server starts in milliseconds.
const START: Duration = Duration::from_secs(20);

/// An API server sees a new webhook configuration within a second or two.
const REGISTRATION: Duration = Duration::from_secs(30);

/// Longer than any run.
const TOKEN_SECONDS: i64 = 24 * 60 * 60;

/// Where the manifests put the server.
const NAMESPACE: &str = "kcp-webhook-system";
const SERVICE_ACCOUNT: &str = "kcp-webhook";

/// What a denial by our webhooks says who it is from.
pub const DOMAIN: &str = "kubectl-kcp.dev";

/// Where the server answers; an API server learns of the two configurations separately.
const PATHS: [&str; 2] = ["/mutate", "/validate"];

/// The running server.
pub struct Admission {
    _process: Process,
}

impl Admission {
    /// Applies the manifests, starts the server and waits until the API server asks it.
    pub async fn start(run: &Arc<Run>, api: &ApiServer, kubectl: &Kubectl, program: &Path) -> Result<Self> {
        let folder = run.subfolder("admission")?;
        let base = products::workspace().join("manifests/base");
        let base = kubectl
            .succeed(["kustomize", &base.display().to_string()])
            .await?;
        let objects = manifests::parse(&base.stdout).context("parsing manifests/base")?;
        let (configurations, others): (Vec<_>, Vec<_>) = objects
            .into_iter()
            .partition(|object| kind(object).ends_with("WebhookConfiguration"));
        ensure!(
            !configurations.is_empty(),
            "manifests/base has no webhook configuration"
        );
        apply(kubectl, &folder.join("objects.json"), &others).await?;

        let port = free_port()?;
        let (process, health) = serve(run, api, program, &folder, port).await?;
        let mut redirected = Vec::new();
        for configuration in configurations {
            let mut configuration: DynamicObject = serde_json::from_value(configuration)?;
            manifests::redirect_webhooks(&mut configuration, |path| {
                manifests::local_client_config(port, path, api.authority().certificate())
            })?;
            redirected.push(serde_json::to_value(configuration)?);
        }
        apply(kubectl, &folder.join("webhooks.json"), &redirected).await?;
        asked(kubectl, &health).await?;
        Ok(Self { _process: process })
    }
}

/// Starts the server. Returns it and a client for its health port.
async fn serve(
    run: &Arc<Run>,
    api: &ApiServer,
    program: &Path,
    folder: &Path,
    port: u16,
) -> Result<(Process, Client)> {
    let addresses = [Ipv4Addr::LOCALHOST.into()];
    let subject = Subject {
        common_name: SERVICE_ACCOUNT,
        addresses: &addresses,
        ..Subject::default()
    };
    let serving = api.authority().issue(folder, "tls", &subject)?;
    let kubeconfig = folder.join("kubeconfig");
    api.write_token_kubeconfig(&kubeconfig, &token(api).await?)?;
    let health_port = free_port()?;
    let arguments = [
        "serve".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--health-port={health_port}"),
        format!("--tls-cert-file={}", serving.certificate.display()),
        format!("--tls-private-key-file={}", serving.key.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
    ];
    let mut process = Process::start(run, "kcp-webhook", program, arguments, NO_ENVIRONMENT)?;
    let health = kubeconfig::plain_client(&format!("http://127.0.0.1:{health_port}"))?;
    wait::until_served("kcp-webhook is ready", START, &mut process, || ready(&health)).await?;
    Ok((process, health))
}

async fn token(api: &ApiServer) -> Result<String> {
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
        .create_token_request(SERVICE_ACCOUNT, &PostParams::default(), &request)
        .await;
    let status = issued.context("requesting a token for kcp-webhook")?.status;
    status
        .and_then(|status| status.token)
        .context("the API server issued no token")
}

async fn apply(kubectl: &Kubectl, file: &Path, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(file, serde_json::to_vec(&list)?)
        .with_context(|| format!("writing {}", file.display()))?;
    kubectl
        .succeed(["apply", "-f", &file.display().to_string()])
        .await?;
    Ok(())
}

/// Waits until the API server asks both webhooks, by the server's own count of requests.
async fn asked(kubectl: &Kubectl, health: &Client) -> Result<()> {
    let sample = products::workspace().join("manifests/samples/good/kubeadmcontrolplane-defaults.yaml");
    let sample = sample.display().to_string();
    wait::until("the API server asks kcp-webhook", REGISTRATION, || async {
        kubectl
            .succeed(["create", "--dry-run=server", "-f", &sample])
            .await?;
        let metrics = health
            .request_text(Request::get("/metrics").body(Vec::new())?)
            .await?;
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

fn kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}
