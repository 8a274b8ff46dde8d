//! Programs that end with the test process at the latest.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Error, Result, anyhow};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};

use crate::products;
use crate::run::{MARKER, Run};

/// Go's garbage collector runs when the heap has grown by this percentage. The default of 100 takes a third of the
/// processor time in which kube-apiserver starts, and a fifth of that of each kubectl, of which a run starts more than
/// a thousand. With this value, kube-apiserver takes 100 MB more memory, and 20 GB more with tens of thousands of
/// objects: there, the caller sets the variable.
const GARBAGE: (&str, &str) = ("GOGC", "400");

/// The lines of a log that an error shows.
const TAIL_LINES: usize = 15;

/// A command that runs under `supervise` with the run's id in its environment and without access to the caller's
/// clusters.
///
/// Keep its standard input open: closing it ends the program.
pub fn supervised(run: &Run, program: &Path) -> Result<Command> {
    supervised_with_cleanup(run, program, &[])
}

/// [`supervised`], but `cleanup`, a command, runs when the program has ended, however that happened.
fn supervised_with_cleanup(run: &Run, program: &Path, cleanup: &[&OsStr]) -> Result<Command> {
    let mut command = Command::new(products::folder()?.join("supervise"));
    if !cleanup.is_empty() {
        command.arg("--finally").args(cleanup);
    }
    command
        .arg("--")
        .arg(program)
        .current_dir(run.folder())
        .env(MARKER, run.id())
        // The tests must not depend on the user's caches and settings.
        .env("HOME", run.folder())
        .env_remove("KUBECONFIG")
        .env(
            GARBAGE.0,
            env::var_os(GARBAGE.0).unwrap_or_else(|| GARBAGE.1.into()),
        )
        // With a memory limit, kube-apiserver's garbage collector never rests.
        .env_remove("GOMEMLIMIT")
        .stdin(Stdio::piped())
        .process_group(0);
    Ok(command)
}

/// A program in the background that writes to the run's logs. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    run: Arc<Run>,
    name: String,
    log: PathBuf,
    /// None after it was passed to the run.
    supervisor: Option<Child>,
    lifeline: Option<ChildStdin>,
}

impl Process {
    /// Starts `program`. `name` names its log file. A second process of the same name appends to it.
    pub fn start<A, V>(
        run: &Arc<Run>,
        name: &str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        environment: &[(&str, V)],
    ) -> Result<Self>
    where
        A: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        Self::start_with_cleanup(run, name, program, arguments, environment, &[])
    }

    /// [`Self::start`], but `cleanup`, a command, runs when the program has ended, also if this process was killed. The
    /// program has not ended before its cleanup.
    pub(crate) fn start_with_cleanup<A, V>(
        run: &Arc<Run>,
        name: &str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        environment: &[(&str, V)],
        cleanup: &[&OsStr],
    ) -> Result<Self>
    where
        A: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let log = run.logs().join(format!("{name}.log"));
        let output = File::options().append(true).create(true).open(&log);
        let output = output.with_context(|| format!("opening {}", log.display()))?;
        let mut supervisor = supervised_with_cleanup(run, program, cleanup)?
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdout(
                output
                    .try_clone()
                    .context("sharing the log between both outputs")?,
            )
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {name} ({})", program.display()))?;
        run.started(name);
        let lifeline = supervisor.stdin.take();
        Ok(Self {
            run: run.clone(),
            name: name.to_owned(),
            log,
            supervisor: Some(supervisor),
            lifeline,
        })
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    pub fn id(&self) -> Result<u32> {
        let supervisor = self.supervisor.as_ref().and_then(Child::id);
        let supervisor = supervisor.with_context(|| format!("{} has ended", self.name))?;
        let file = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
        let child = children.split_whitespace().next().and_then(|id| id.parse().ok());
        child.with_context(|| format!("{} has not started", self.name))
    }

    pub fn is_running(&mut self) -> bool {
        self.supervisor
            .as_mut()
            .is_some_and(|supervisor| matches!(supervisor.try_wait(), Ok(None)))
    }

    /// Resolves when the program ends unexpectedly. Returns an error with the end of its log.
    pub async fn ended(&mut self) -> Error {
        let how = self.wait().await.unwrap_or_else(|error| format!("{error:#}"));
        anyhow!(
            "{} ended ({how}); the end of {}:\n{}",
            self.name,
            self.log.display(),
            tail(&self.log)
        )
    }

    /// Waits until the program ends, and returns its exit code: 128 plus the signal if a signal ended it.
    pub async fn exit_code(&mut self) -> Result<i32> {
        let supervisor = self.supervisor.as_mut();
        let supervisor = supervisor.with_context(|| format!("{} has ended", self.name))?;
        let status = supervisor
            .wait()
            .await
            .with_context(|| format!("waiting for {}", self.name))?;
        status.code().with_context(|| format!("{}: {status}", self.name))
    }

    /// Kills the program with SIGKILL.
    pub async fn kill(&mut self) -> Result<()> {
        self.signal("KILL").await;
        self.wait().await.map(drop)
    }

    /// Sends SIGTERM, waits until the program ends, and returns its exit status.
    pub async fn terminate(&mut self) -> Result<String> {
        self.signal("TERM").await;
        self.wait().await
    }

    /// Stops the program with SIGSTOP. Its connections stay open, but it answers nothing.
    pub async fn freeze(&mut self) {
        self.signal("STOP").await;
    }

    /// Continues a stopped program.
    pub async fn thaw(&mut self) {
        self.signal("CONT").await;
    }

    /// Makes the supervisor send a signal.
    async fn signal(&mut self, signal: &str) {
        if let Some(lifeline) = &mut self.lifeline {
            // The pipe is closed if the program has ended by itself. Then no signal is needed.
            let _ = lifeline.write_all(format!("{signal}\n").as_bytes()).await;
        }
    }

    /// Ends the program and waits until it and its children have ended; see `supervise` for how long that takes.
    pub async fn stop(mut self) -> Result<()> {
        drop(self.lifeline.take());
        self.wait().await.map(drop)
    }

    async fn wait(&mut self) -> Result<String> {
        let Some(supervisor) = &mut self.supervisor else {
            return Ok("before".to_owned());
        };
        let status = supervisor
            .wait()
            .await
            .with_context(|| format!("waiting for {}", self.name))?;
        Ok(status.to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        if let Some(supervisor) = self.supervisor.take() {
            self.run.ends(&self.name, supervisor);
        }
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read(log)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let surplus = lines.len().saturating_sub(TAIL_LINES);
    lines.get(surplus..).unwrap_or_default().join("\n")
}
