//! Runs `kubectl-kcp` behind a proxy per command.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio_rustls::TlsAcceptor;

use super::fault::FaultPlan;
use super::fault_proxy::{FaultProxy, Traffic};
use super::shifted_clock::ShiftedClock;
use crate::api_server::ApiServer;
use crate::kubeconfig::{self, User};
use crate::pki::{KeyPairFiles, Subject};
use crate::products;
use crate::run::MARKER;
use crate::wait::LIMIT;

const KILL: i32 = 9;

/// Runs `kubectl-kcp` against one API server.
pub struct Plugin {
    program: PathBuf,
    run: String,
    folder: PathBuf,
    authority: PathBuf,
    user: KeyPairFiles,
    clock: ShiftedClock,
    acceptor: TlsAcceptor,
    server: Client,
    commands: AtomicU64,
}

/// The result of a command and its traffic.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// The command line, for messages.
    pub command: String,
    /// None if it was killed.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub traffic: Traffic,
}

impl Plugin {
    pub fn new(api: &ApiServer, run: &str) -> Result<Self> {
        let serving = Subject {
            common_name: "fault-proxy",
            addresses: &[std::net::Ipv4Addr::LOCALHOST.into()],
            ..Subject::default()
        };
        let serving = api.authority().issue(api.folder(), "fault-proxy", &serving)?;
        let folder = api.folder().join("commands");
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        Ok(Self {
            program: products::under_test("kubectl-kcp")?,
            run: run.to_owned(),
            clock: ShiftedClock::compile(&folder)?,
            folder,
            authority: api.folder().join("ca.crt"),
            user: api.administrator().clone(),
            acceptor: serving.acceptor()?,
            server: api.client().clone(),
            commands: AtomicU64::new(0),
        })
    }

    /// Runs a command until it ends, with a fault in its traffic, and with a wall clock that is ahead by this much.
    pub async fn run(
        &self,
        arguments: &[&str],
        plan: Option<FaultPlan>,
        ahead: SignedDuration,
    ) -> Result<CommandOutput> {
        let command = format!("kubectl-kcp {}", arguments.join(" "));
        let proxy = FaultProxy::start(self.acceptor.clone(), self.server.clone(), plan).await?;
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let kubeconfig = self.folder.join(format!("{number}.kubeconfig"));
        let user = User::Certificate(&self.user);
        kubeconfig::write(&kubeconfig, &proxy.url(), &self.authority, &user)?;
        let mut child = Command::new(&self.program);
        child.args(arguments).env("KUBECONFIG", &kubeconfig);
        if !ahead.is_zero() {
            child.envs(self.clock.environment(ahead));
        }
        let ended = tokio::time::timeout(LIMIT, self.run_to_end(child, proxy)).await;
        // Whatever remains is removed with the run's folder.
        let _ = fs::remove_file(&kubeconfig);
        let (status, [stdout, stderr], traffic) = ended
            .with_context(|| format!("{command} did not end in {} s", LIMIT.as_secs()))?
            .with_context(|| command.clone())?;
        if status.code().is_none() && status.signal() != Some(KILL) {
            bail!("{command}: {status}");
        }
        Ok(CommandOutput {
            command,
            code: status.code(),
            stdout,
            stderr,
            traffic,
        })
    }

    async fn run_to_end(
        &self,
        mut command: Command,
        mut proxy: FaultProxy,
    ) -> Result<(ExitStatus, [String; 2], Traffic)> {
        let mut child = command
            .env("HOME", &self.folder)
            .env(MARKER, &self.run)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (status, stdout, stderr) =
            tokio::try_join!(until_dead(&mut child, &mut proxy), text(stdout), text(stderr))?;
        Ok((status, [stdout, stderr], proxy.close().await?))
    }
}

/// Waits until the command ends, and kills it if the proxy requests that.
async fn until_dead(child: &mut Child, proxy: &mut FaultProxy) -> Result<ExitStatus> {
    let death = tokio::select! {
        status = child.wait() => return Ok(status?),
        death = proxy.death() => death,
    };
    child.start_kill()?;
    let status = child.wait().await?;
    // Ignored: nobody waits for it any more.
    let _ = death.send(());
    Ok(status)
}

async fn text(output: Option<impl AsyncRead + Unpin>) -> Result<String> {
    let mut text = String::new();
    if let Some(mut output) = output {
        output.read_to_string(&mut text).await?;
    }
    Ok(text)
}

impl CommandOutput {
    pub fn was_killed(&self) -> bool {
        self.code.is_none()
    }

    pub fn answer(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("no JSON: {self}"))
    }

    /// The customization of the lease in its JSON.
    pub fn customization(&self) -> Result<String> {
        self.text("/customization/name")
    }

    /// The customizations of the leases in its JSON, and when each lease ends.
    pub fn leases(&self) -> Result<Vec<(String, Timestamp)>> {
        let answer = self.answer()?;
        let Some(leases) = answer.get("leases").and_then(Value::as_array) else {
            return Ok(vec![(self.customization()?, self.time("/ends")?)]);
        };
        let numbers = 0..leases.len();
        numbers
            .map(|number| {
                let name = self.text(&format!("/leases/{number}/customization/name"))?;
                Ok((name, self.time(&format!("/leases/{number}/ends"))?))
            })
            .collect()
    }

    /// A string in its JSON.
    pub fn text(&self, pointer: &str) -> Result<String> {
        let answer = self.answer()?;
        let text = answer.pointer(pointer).and_then(Value::as_str);
        Ok(text.with_context(|| format!("no {pointer}: {self}"))?.to_owned())
    }

    /// A time in its JSON. The latest time if it is absent: a lease without an end never ends.
    pub fn time(&self, pointer: &str) -> Result<Timestamp> {
        let answer = self.answer()?;
        let time = answer.pointer(pointer).and_then(Value::as_str);
        time.map_or(Ok(Timestamp::MAX), |time| Ok(time.parse()?))
    }
}

impl std::fmt::Display for CommandOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = self
            .code
            .map_or("killed".to_owned(), |code| format!("exit code {code}"));
        write!(f, "$ {}\n{}{}({end})", self.command, self.stdout, self.stderr)
    }
}
