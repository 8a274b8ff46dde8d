//! The etcd and the kube-apiserver of the management cluster, with envtest's flags.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Map, Value};
use tokio::process::Command;

use crate::addresses::free_port;
use crate::assets::Assets;
use crate::audit::AuditLog;
use crate::kubeconfig::{self, User};
use crate::pki::{self, Authority, KeyPairFiles, Subject};
use crate::process::Process;
use crate::run::Run;
use crate::wait;

/// One etcd for all API servers of a run. It does not sync to disk: durability is not under test here.
#[derive(Debug)]
pub struct Etcd {
    url: String,
    _process: Process,
}

impl Etcd {
    /// Starts etcd. It does not wait until etcd serves, because an API server waits for its etcd. `name` names the data
    /// folder and the log.
    pub fn start(run: &Arc<Run>, assets: &Assets, name: &str) -> Result<Self> {
        let url = format!("http://127.0.0.1:{}", free_port()?);
        let peer = format!("http://127.0.0.1:{}", free_port()?);
        let data = run.folder().join(name);
        let arguments = [
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            format!("--data-dir={}", data.display()),
            "--unsafe-no-fsync=true".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        let process = Process::start(run, name, &assets.program("etcd"), arguments, NO_ENVIRONMENT)?;
        Ok(Self {
            url,
            _process: process,
        })
    }

    /// The client URL. It needs no certificate.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// For programs that need no environment variables beyond those of every process of a run.
pub const NO_ENVIRONMENT: &[(&str, &str)] = &[];

/// A kube-apiserver of the management cluster.
pub struct ApiServer {
    name: String,
    client: Client,
    url: String,
    folder: PathBuf,
    authority: Authority,
    administrator: KeyPairFiles,
    audit: AuditLog,
    run: Arc<Run>,
    program: PathBuf,
    arguments: Vec<String>,
    process: Process,
}

impl ApiServer {
    /// Starts an API server and waits until it serves. `name` is also its etcd prefix, which separates its objects from
    /// those of other API servers on the same etcd.
    pub async fn start(run: &Arc<Run>, assets: &Assets, etcd: &Etcd, name: &str) -> Result<Self> {
        Self::start_with(run, assets, etcd, name, &[]).await
    }

    /// [`Self::start`] with more flags.
    pub async fn start_with(
        run: &Arc<Run>,
        assets: &Assets,
        etcd: &Etcd,
        name: &str,
        flags: &[&str],
    ) -> Result<Self> {
        let folder = run.subfolder(name)?;
        let authority = Authority::new(&format!("{name}-ca"))?;
        let ca = authority.write(&folder, "ca")?;
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let serving = authority.issue(
            &folder,
            "apiserver",
            &Subject {
                common_name: "kube-apiserver",
                names: &["localhost", "kubernetes"],
                addresses: &[loopback],
                ..Subject::default()
            },
        )?;
        let administrator = authority.issue(
            &folder,
            "admin",
            &Subject {
                common_name: "admin",
                organization: Some("system:masters"),
                ..Subject::default()
            },
        )?;
        let (signing_key, verification_key) = (folder.join("sa.key"), folder.join("sa.pub"));
        pki::write_signing_keys(&signing_key, &verification_key)?;

        let audit = AuditLog::prepare(&folder)?;
        let port = free_port()?;
        let url = format!("https://127.0.0.1:{port}");
        let mut arguments = vec![
            format!("--etcd-servers={}", etcd.url),
            format!("--etcd-prefix=/{name}"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--tls-cert-file={}", serving.certificate.display()),
            format!("--tls-private-key-file={}", serving.key.display()),
            format!("--client-ca-file={}", ca.certificate.display()),
            // Controller managers read the settings of the front proxy from the API server, and complain without end if they
            // are missing.
            format!("--requestheader-client-ca-file={}", ca.certificate.display()),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            // It needs default service accounts, which only kube-controller-manager creates.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--service-account-issuer={url}/"),
            format!("--service-account-key-file={}", verification_key.display()),
            format!("--service-account-signing-key-file={}", signing_key.display()),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ];
        arguments.extend(audit.arguments());
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let log = format!("{name}-apiserver");
        let program = assets.program("kube-apiserver");
        let mut process = Process::start(run, &log, &program, &arguments, NO_ENVIRONMENT)?;

        let kubeconfig = folder.join("kubeconfig");
        let user = User::Certificate(&administrator);
        kubeconfig::write(&kubeconfig, &url, &ca.certificate, &user)?;
        let client = kubeconfig::client(&url, &ca.certificate, &user).await?;
        wait::until_served(&format!("{log} is ready"), &mut process, || ready(&client)).await?;
        Ok(Self {
            name: name.to_owned(),
            client,
            url,
            folder,
            authority,
            administrator,
            audit,
            run: run.clone(),
            program,
            arguments,
            process,
        })
    }

    /// Kills the process. The objects remain in etcd.
    pub async fn kill(&mut self) -> Result<()> {
        self.process.kill().await
    }

    /// Starts the API server again with the same arguments, and waits until it serves.
    pub async fn start_again(&mut self) -> Result<()> {
        let log = format!("{}-apiserver", self.name);
        self.process = Process::start(&self.run, &log, &self.program, &self.arguments, NO_ENVIRONMENT)?;
        let client = &self.client;
        wait::until_served(&format!("{log} is ready"), &mut self.process, || ready(client)).await
    }

    /// The name that separates its objects and logs from those of others.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// A program that reaches this server as its administrator. Dropping its process kills it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", self.kubeconfig())
            .env("HOME", self.folder())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs such a program until it succeeds, and returns what it prints.
    pub async fn succeed(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Result<String> {
        let output = self.command(program).args(arguments).output().await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{arguments:?}: {}: {errors}",
            output.status
        );
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// The folder for certificates and kubeconfigs of this server.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The CA that signs for the API server and for each webhook that it calls.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The audit annotations of webhooks on each such write of an object that they review, oldest first.
    pub fn audit_annotations(
        &self,
        verb: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<Map<String, Value>>> {
        self.audit.annotations(verb, namespace, name)
    }

    /// When each refused dry run of a write of an object arrived, oldest first, according to the audit log.
    pub fn refused_dry_runs(&self, namespace: &str, name: &str) -> Result<Vec<Timestamp>> {
        self.audit.refused_dry_runs(namespace, name)
    }

    /// The number of status writes of a resource in a namespace, including refused ones, according to the audit log.
    pub fn status_writes(&self, namespace: &str, resource: &str) -> Result<usize> {
        self.audit.status_writes(namespace, resource)
    }

    /// The User-Agent of each write of a resource in a namespace, including refused ones, according to the audit log.
    pub fn user_agents(&self, namespace: &str, resource: &str) -> Result<Vec<String>> {
        self.audit.user_agents(namespace, resource)
    }

    pub fn write_token_kubeconfig(&self, path: &Path, token: &str) -> Result<()> {
        self.write_kubeconfig(path, &User::Token(token))
    }

    pub fn administrator(&self) -> &KeyPairFiles {
        &self.administrator
    }

    pub fn write_kubeconfig(&self, path: &Path, user: &User<'_>) -> Result<()> {
        kubeconfig::write(path, &self.url, &self.folder.join("ca.crt"), user)
    }
}

/// Succeeds when the server behind `client` is ready.
pub async fn ready(client: &Client) -> Result<()> {
    let answer = client
        .request_text(Request::get("/readyz").body(Vec::new())?)
        .await
        .context("GET /readyz")?;
    ensure!(answer.trim() == "ok", "/readyz answered {answer}");
    Ok(())
}
