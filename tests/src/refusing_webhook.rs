//! A stand-in for an admission webhook that denies every request.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::api_server::ApiServer;
use crate::manifests;
use crate::pki::Subject;
use crate::wait::LIMIT;

/// The name of every such webhook ends with this. Logs of controllers may then contain its denials.
pub(crate) const SUFFIX: &str = ".refusing.test";

/// The API server sends objects of a few kilobytes.
const BODY_BYTES: u64 = 1024 * 1024;

/// The server, and its configuration. Dropping it closes all its connections; [`Self::remove`] also removes the
/// configuration.
pub struct RefusingWebhook {
    api: Api<ValidatingWebhookConfiguration>,
    name: String,
    task: JoinHandle<()>,
}

impl RefusingWebhook {
    /// Denies each request that creates a Machine in a namespace, for this reason. The webhook's name is the namespace
    /// and [`SUFFIX`].
    pub async fn of_machines(api: &ApiServer, namespace: &str, reason: &str) -> Result<Self> {
        let name = format!("{namespace}{SUFFIX}");
        let folder = api.folder().join(&name);
        let subject = Subject {
            common_name: "refusing-webhook",
            addresses: &[Ipv4Addr::LOCALHOST.into()],
            ..Subject::default()
        };
        let pair = api.authority().issue(&folder, "tls", &subject)?;
        let acceptor = pair.acceptor()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(accept(listener, acceptor, reason.to_owned()));
        let configuration = serde_json::from_value(json!({
            "metadata": {"name": name},
            "webhooks": [{
                "name": name,
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": manifests::local_client_config(port, "/", api.authority().certificate())?,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [{"apiGroups": ["cluster.x-k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"],
                    "resources": ["machines"]}],
            }],
        }))?;
        let configurations = Api::all(api.client().clone());
        configurations
            .create(&PostParams::default(), &configuration)
            .await
            .context("creating the configuration of the refusing webhook")?;
        Ok(Self {
            api: configurations,
            name,
            task,
        })
    }

    pub async fn remove(self) -> Result<()> {
        self.api.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }
}

impl Drop for RefusingWebhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, reason: String) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (acceptor, reason) = (acceptor.clone(), reason.clone());
        connections.spawn(async move {
            // A client that gave up closes the connection.
            let _ = timeout(LIMIT, serve(stream, acceptor, &reason)).await;
        });
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, reason: &str) -> Result<()> {
    let mut stream = BufReader::new(acceptor.accept(stream).await?);
    let mut length = 0_u64;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    let mut body = Vec::new();
    (&mut stream)
        .take(length.min(BODY_BYTES))
        .read_to_end(&mut body)
        .await?;
    let review: Value = serde_json::from_slice(&body)?;
    let uid = review.pointer("/request/uid").context("the review has no uid")?;
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": uid, "allowed": false, "status": {"code": 403, "message": reason}},
    })
    .to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
}
