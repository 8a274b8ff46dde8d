//! The real kubectl, which finds our plugin on its PATH, and the real clusterctl.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use crate::assets::Assets;
use crate::process::supervised;
use crate::products;
use crate::run::Run;
use crate::wait::{self, LIMIT};

/// kubectl with a user's environment.
#[derive(Debug, Clone)]
pub struct Kubectl {
    run: Arc<Run>,
    program: PathBuf,
    clusterctl: PathBuf,
    kubeconfig: PathBuf,
    path: OsString,
}

/// The result of a command.
#[derive(Debug, Clone)]
pub struct CommandOutput {
    /// The command line, for messages.
    pub command: String,
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Kubectl {
    /// kubectl for the cluster that `kubeconfig` names. Its PATH starts with its own folder and the folder of our
    /// programs.
    pub fn new(run: &Arc<Run>, assets: &Assets, kubeconfig: PathBuf) -> Result<Self> {
        let theirs = env::var_os("PATH").unwrap_or_default();
        let ours = [assets.kubectl_folder().to_owned(), products::folder()?];
        let path = env::join_paths(ours.into_iter().chain(env::split_paths(&theirs))).context("PATH")?;
        Ok(Self {
            run: run.clone(),
            program: assets.program("kubectl"),
            clusterctl: assets.program("clusterctl"),
            kubeconfig,
            path,
        })
    }

    /// The PATH with which a person can run the same commands.
    pub fn path(&self) -> &OsString {
        &self.path
    }

    /// The kubeconfig with which a person can run the same commands.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The path of a file that a command can read.
    pub fn scratch_file(&self, name: &str) -> PathBuf {
        self.run.folder().join(name)
    }

    /// Runs a command until it ends, with any exit code.
    pub async fn run<A: AsRef<str>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<CommandOutput> {
        self.run_to(Stdio::piped, &self.program, arguments).await
    }

    /// Runs a clusterctl command that must succeed.
    pub async fn clusterctl<A: AsRef<str>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<CommandOutput> {
        let ended = self.run_clusterctl(arguments).await?;
        ensure!(ended.code == 0, "{ended}");
        Ok(ended)
    }

    /// Runs a clusterctl command until it ends, with any exit code.
    pub async fn run_clusterctl<A: AsRef<str>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<CommandOutput> {
        self.run_to(Stdio::piped, &self.clusterctl, arguments).await
    }

    /// Runs a shell script with a user's environment until it ends, with any exit code. `shell` is the shell's program;
    /// `arguments` are its arguments.
    pub async fn script<A: AsRef<str>>(
        &self,
        shell: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<CommandOutput> {
        self.run_to(Stdio::piped, Path::new(shell), arguments).await
    }

    /// Runs a command that writes to our own standard output and error.
    pub async fn show<A: AsRef<str>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<CommandOutput> {
        self.run_to(Stdio::inherit, &self.program, arguments).await
    }

    /// Starts a command and returns its standard output line by line. Its standard error is ours.
    pub fn spawn<A: AsRef<str>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<RunningCommand> {
        let output = [Stdio::piped(), Stdio::inherit()];
        let (command, mut child) = self.start(output, &self.program, arguments)?;
        let lines = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        Ok(RunningCommand {
            command,
            child,
            lines,
        })
    }

    fn start<A: AsRef<str>>(
        &self,
        [stdout, stderr]: [Stdio; 2],
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<(String, Child)> {
        let arguments: Vec<String> = arguments
            .into_iter()
            .map(|argument| argument.as_ref().to_owned())
            .collect();
        let name = program.file_name().unwrap_or_default().display();
        let command = format!("{name} {}", arguments.join(" "));
        let child = supervised(&self.run, program)?
            .args(&arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("PATH", &self.path)
            // Otherwise clusterctl would look for a newer version on the network.
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("starting {command}"))?;
        Ok((command, child))
    }

    async fn run_to<A: AsRef<str>>(
        &self,
        output: fn() -> Stdio,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<CommandOutput> {
        let (command, child) = self.start([output(), output()], program, arguments)?;
        CommandOutput::of(command, child).await
    }

    /// Runs a command that must succeed.
    pub async fn succeed<A: AsRef<str>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<CommandOutput> {
        let ended = self.run(arguments).await?;
        ensure!(ended.code == 0, "{ended}");
        Ok(ended)
    }

    /// Runs our plugin in a namespace until it ends, with any exit code.
    pub async fn kcp(&self, namespace: &str, arguments: &[&str]) -> Result<CommandOutput> {
        let place = ["-n", namespace];
        self.run(["kcp"].iter().chain(arguments).chain(&place)).await
    }

    /// Runs our plugin again and again until it ends with this exit code and prints all these texts, with any line breaks.
    pub async fn kcp_says(
        &self,
        namespace: &str,
        arguments: &[&str],
        code: i32,
        texts: &[&str],
    ) -> Result<CommandOutput> {
        let what = format!("kubectl kcp {} prints what it must", arguments.join(" "));
        wait::until(&what, || async {
            let output = self.kcp(namespace, arguments).await?;
            let words = output.words();
            ensure!(output.code == code, "exit code {code} expected: {output}");
            for text in texts {
                ensure!(words.contains(text), "{text:?} expected: {output}");
            }
            Ok(output)
        })
        .await
    }

    /// The version of the API server, such as `v1.36.3`.
    pub async fn server_version(&self) -> Result<String> {
        let versions = self.succeed(["version", "-o", "json"]).await?;
        let versions: Value = serde_json::from_str(&versions.stdout)?;
        let version = versions
            .pointer("/serverVersion/gitVersion")
            .and_then(Value::as_str);
        Ok(version
            .context("kubectl prints no version of the server")?
            .to_owned())
    }

    /// Applies a kustomization of this repository, such as `manifests/anchor`. Tries again if another test creates the same objects at
    /// the same time.
    pub async fn apply_kustomization(&self, folder: &str) -> Result<()> {
        let path = products::workspace().join(folder).display().to_string();
        let applied = wait::until(&format!("{folder} is applied"), || async {
            let output = self.run(["apply", "-k", &path]).await?;
            ensure!(!output.stderr.contains("(AlreadyExists)"), "{output}");
            Ok(output)
        })
        .await?;
        ensure!(applied.code == 0, "{applied}");
        Ok(())
    }
}

/// A running command. Dropping it ends it.
#[derive(Debug)]
pub struct RunningCommand {
    command: String,
    child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl RunningCommand {
    /// Waits for the next line of output.
    pub async fn line(&mut self) -> Result<String> {
        let lines = self.lines.as_mut().context("its output is closed")?;
        let line = tokio::time::timeout(LIMIT, lines.next_line()).await;
        let line =
            line.with_context(|| format!("{} printed nothing for {} s", self.command, LIMIT.as_secs()))?;
        line?.with_context(|| format!("{} closed its output", self.command))
    }

    /// Closes the reading end of its output.
    pub fn close_output(&mut self) {
        self.lines = None;
    }

    /// Kills it with SIGKILL, and waits until it has ended.
    pub async fn kill(mut self) -> Result<()> {
        let mut lifeline = self.child.stdin.take().context("its standard input is closed")?;
        lifeline.write_all(b"KILL\n").await.context("killing it")?;
        let status = self.child.wait().await;
        drop(lifeline);
        status.with_context(|| format!("waiting for {}", self.command))?;
        Ok(())
    }

    /// Sends SIGTERM, waits until it ends, and returns its exit code.
    pub async fn terminate(mut self) -> Result<i32> {
        let lifeline = self.child.stdin.as_mut();
        let lifeline = lifeline.context("its standard input is closed")?;
        lifeline.write_all(b"TERM\n").await.context("ending it")?;
        self.exit_code().await
    }

    /// Waits until it ends by itself, and returns its exit code.
    pub async fn exit_code(mut self) -> Result<i32> {
        // Waiting for a child closes its standard input, which would end this one.
        let lifeline = self.child.stdin.take();
        let status = tokio::time::timeout(LIMIT, self.child.wait()).await;
        drop(lifeline);
        let status =
            status.with_context(|| format!("{} did not end in {} s", self.command, LIMIT.as_secs()))??;
        status
            .code()
            .with_context(|| format!("{}: {status}", self.command))
    }
}

impl CommandOutput {
    /// Waits until a child of [`supervised`] ends, with any exit code. `command` names it in messages.
    pub(crate) async fn of(command: String, mut child: Child) -> Result<Self> {
        // The pipe stays open until the command ends. A timeout closes it, and that ends the command.
        let lifeline = child.stdin.take();
        let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await;
        drop(lifeline);
        let output = output.with_context(|| format!("{command} did not end in {} s", LIMIT.as_secs()))?;
        Self::new(command, output?)
    }

    /// All that the command printed, without line breaks.
    pub fn words(&self) -> String {
        let words = [&self.stdout, &self.stderr].map(|text| text.split_whitespace());
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    fn new(command: String, output: Output) -> Result<Self> {
        let code = output
            .status
            .code()
            .with_context(|| format!("{command}: {}", output.status))?;
        let stdout = String::from_utf8(output.stdout).with_context(|| format!("{command}: its output"))?;
        let stderr = String::from_utf8(output.stderr).with_context(|| format!("{command}: its errors"))?;
        Ok(Self {
            command,
            code,
            stdout,
            stderr,
        })
    }
}

impl std::fmt::Display for CommandOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "$ {}\n{}{}(exit code {})",
            self.command, self.stdout, self.stderr, self.code
        )
    }
}
