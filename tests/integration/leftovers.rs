//! No program outlives its caller, not even if the caller is killed.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::products;
use kcp_tests::run::{MARKER, random};
use kcp_tests::wait;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::shared::alone;

/// The programs end within two seconds on an idle machine. Without their supervisor they would run for ten minutes.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn killed_demo_leaves_no_process() {
    alone(async {
        let id = format!("killed-{:08x}", random());
        // etcd and an API server, which end slowly when they receive SIGTERM.
        let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
        let (mut demo, line) = start(demo.arg("--api-server-only"), &id).await.unwrap();
        assert!(line.starts_with("export KUBECONFIG="), "{line}");
        assert!(left_of(&id).await.unwrap().contains("kube-apiserver"));
        demo.kill().await.unwrap();
        gone(&id).await.unwrap();
    });
}

#[test]
fn killed_supervisor_ends_its_program() {
    alone(async {
        let id = format!("killed-{:08x}", random());
        let mut supervise = Command::new(env!("CARGO_BIN_EXE_supervise"));
        let supervise = supervise.args(["--", "sh", "-c", "echo started; exec sleep 600"]);
        let (mut killed, _) = start(supervise, &id).await.unwrap();
        assert!(left_of(&id).await.unwrap().contains("sleep 600"));
        killed.kill().await.unwrap();
        gone(&id).await.unwrap();
    });
}

#[test]
fn closed_pipe_ends_the_whole_group() {
    alone(async {
        let id = format!("closed-{:08x}", random());
        let script = "trap '' TERM; sleep 600 & echo started; wait";
        let mut supervise = Command::new(env!("CARGO_BIN_EXE_supervise"));
        let (mut asker, _) = start(supervise.args(["--", "sh", "-c", script]), &id)
            .await
            .unwrap();
        assert!(left_of(&id).await.unwrap().contains("sleep 600"));
        drop(asker.stdin.take());
        gone(&id).await.unwrap();
        assert_eq!(asker.wait().await.unwrap().code(), Some(128 + 9));
    });
}

#[test]
fn supervise_forwards_the_exit_code() {
    alone(async {
        let mut supervise = Command::new(env!("CARGO_BIN_EXE_supervise"));
        let supervise = supervise.args(["--", "sh", "-c", "exit 7"]).stdin(Stdio::piped());
        let mut child = supervise.spawn().unwrap();
        let _lifeline = child.stdin.take();
        assert_eq!(child.wait().await.unwrap().code(), Some(7));
    });
}

/// Starts a command with `id` in its environment, and waits for its first line.
pub(crate) async fn start(command: &mut Command, id: &str) -> Result<(Child, String)> {
    let command = command
        .env(MARKER, id)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().context("starting the command")?;
    let output = child.stdout.take().context("its output is not a pipe")?;
    let mut lines = BufReader::new(output).lines();
    let line = tokio::time::timeout(wait::LIMIT, lines.next_line()).await;
    let line = line
        .context("the command prints nothing")??
        .context("the command ended")?;
    Ok((child, line))
}

pub(crate) async fn gone(id: &str) -> Result<()> {
    wait::until_within("nothing is left of the run", LIMIT, || async {
        let left = left_of(id).await?;
        if left.is_empty() {
            Ok(())
        } else {
            bail!("still there:\n{left}")
        }
    })
    .await
}

/// What `tests/leftovers` lists. Its exit code must match.
pub(crate) async fn left_of(id: &str) -> Result<String> {
    let script: &Path = &products::workspace().join("tests/leftovers");
    let output = Command::new(script)
        .arg(id)
        .output()
        .await
        .context("running tests/leftovers")?;
    let listed = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success() == listed.is_empty(),
        "{}: {listed}",
        output.status
    );
    Ok(listed)
}
