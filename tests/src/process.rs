//! Programs that run as long as the test process does, and not a moment longer.

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

/// Go's collector runs when a heap has grown by as many per cent. The default, 100, costs a program that starts, which
/// kube-apiserver does thirty times in a run, a third of its time; this costs it 100 MB.
const GARBAGE: (&str, &str) = ("GOGC", "400");

/// How much of a log an error shows.
const TAIL_LINES: usize = 15;

/// A command that runs under `supervise`, marked with the run's id and cut off from the caller's clusters.
///
/// Its standard input must be kept open: closing it ends the program.
pub fn supervised(run: &Run, program: &Path) -> Result<Command> {
    let mut command = Command::new(products::folder()?.join("supervise"));
    command
        .arg("--")
        .arg(program)
        .current_dir(run.folder())
        .env(MARKER, run.id())
        // Caches and settings of whoever runs the tests must not matter.
        .env("HOME", run.folder())
        .env_remove("KUBECONFIG")
        // On kube-apiserver a memory limit makes the garbage collector spin.
        .env_remove("GOMEMLIMIT")
        .stdin(Stdio::piped())
        .process_group(0);
    Ok(command)
}

/// A program in the background, with its output in the run's logs. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    run: Arc<Run>,
    name: String,
    log: PathBuf,
    /// None once it was handed over to the run.
    supervisor: Option<Child>,
    lifeline: Option<ChildStdin>,
}

impl Process {
    /// Starts `program`; `name` names its log file, to which a later process of that name appends.
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
        let log = run.logs().join(format!("{name}.log"));
        let output = File::options().append(true).create(true).open(&log);
        let output = output.with_context(|| format!("opening {}", log.display()))?;
        let mut supervisor = supervised(run, program)?
            .args(arguments)
            .env(GARBAGE.0, GARBAGE.1)
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

    /// Where the program writes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The program's process id.
    pub fn id(&self) -> Result<u32> {
        let supervisor = self.supervisor.as_ref().and_then(Child::id);
        let supervisor = supervisor.with_context(|| format!("{} has ended", self.name))?;
        let file = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
        let child = children.split_whitespace().next().and_then(|id| id.parse().ok());
        child.with_context(|| format!("{} has not started", self.name))
    }

    /// Whether the program still runs.
    pub fn is_running(&mut self) -> bool {
        self.supervisor
            .as_mut()
            .is_some_and(|supervisor| matches!(supervisor.try_wait(), Ok(None)))
    }

    /// Resolves when the program ends, which it was not meant to: an error with the end of its log.
    pub async fn ended(&mut self) -> Error {
        let how = self.wait().await.unwrap_or_else(|error| format!("{error:#}"));
        anyhow!(
            "{} ended ({how}); the end of {}:\n{}",
            self.name,
            self.log.display(),
            tail(&self.log)
        )
    }

    /// Pulls the plug: the program gets no chance to say goodbye.
    pub async fn kill(&mut self) -> Result<()> {
        self.tell("KILL").await;
        self.wait().await.map(drop)
    }

    /// Asks the program to end, and waits for as long as it takes: how it ended.
    pub async fn terminate(&mut self) -> Result<String> {
        self.tell("TERM").await;
        self.wait().await
    }

    /// Lets the program stand still: its connections stay open, and nothing comes of them.
    pub async fn freeze(&mut self) {
        self.tell("STOP").await;
    }

    /// Lets a program go on that was frozen.
    pub async fn thaw(&mut self) {
        self.tell("CONT").await;
    }

    /// Has the supervisor send a signal.
    async fn tell(&mut self, signal: &str) {
        if let Some(lifeline) = &mut self.lifeline {
            // A program that ended by itself has closed the pipe, and there is nothing left to signal.
            let _ = lifeline.write_all(format!("{signal}\n").as_bytes()).await;
        }
    }

    /// Asks the program to end and waits until it and its children have; see `supervise` for how long.
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
