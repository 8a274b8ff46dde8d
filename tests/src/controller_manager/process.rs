//! A running controller manager, or what is left of it.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use kube::Client;

use crate::process::Process;
use crate::wait;

/// A check of `/healthz` that is not a controller.
const ELECTION: &str = "leaderElection";

/// A controller manager. Dropping it ends it.
pub struct ControllerManager {
    process: Process,
    client: Client,
}

/// How a controller manager ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The exit code, or 128 plus the signal.
    pub code: i32,
    /// Its log.
    pub log: String,
}

impl ControllerManager {
    pub(super) fn new(process: Process, client: Client) -> Self {
        Self { process, client }
    }

    /// The controllers that it has started, by canonical name. Fails unless it is healthy.
    pub async fn controllers(&self) -> Result<BTreeSet<String>> {
        controllers(&self.client).await
    }

    /// Waits until it runs exactly these controllers.
    pub async fn runs(&mut self, expected: &BTreeSet<String>) -> Result<()> {
        let client = self.client.clone();
        let what = format!("it runs {}", listed(expected));
        wait::until_served(&what, &mut self.process, || async {
            let running = controllers(&client).await?;
            ensure!(running == *expected, "it runs {}", listed(&running));
            Ok(())
        })
        .await
    }

    /// Waits until its log contains a text.
    pub async fn logged(&mut self, text: &str) -> Result<()> {
        let log = self.process.log().to_owned();
        let what = format!("{} contains {text:?}", log.display());
        wait::until_served(&what, &mut self.process, || async {
            let text_of_log = fs::read_to_string(&log)?;
            ensure!(text_of_log.contains(text), "it does not");
            Ok(())
        })
        .await
    }

    /// Waits until it ends by itself.
    pub async fn end(&mut self) -> Result<End> {
        let code = tokio::time::timeout(wait::LIMIT, self.process.exit_code()).await;
        let code = code.with_context(|| format!("it still runs; see {}", self.process.log().display()))??;
        let log = fs::read(self.process.log()).context("reading its log")?;
        Ok(End {
            code,
            log: String::from_utf8_lossy(&log).into_owned(),
        })
    }

    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Kills it with SIGKILL. It releases no Lease.
    pub async fn kill(&mut self) -> Result<()> {
        self.process.kill().await
    }
}

impl End {
    /// The errors that it printed, oldest first, without time and source.
    pub fn errors(&self) -> Vec<&str> {
        let is_error = |line: &&str| {
            let is_logged = line.starts_with(['E', 'F']) && line.contains("] ");
            is_logged || line.starts_with("Error: ") || line.starts_with("panic: ")
        };
        let errors = self.log.lines().filter(is_error);
        errors
            .map(|line| line.split_once("] ").map_or(line, |(_, message)| message))
            .collect()
    }
}

async fn controllers(client: &Client) -> Result<BTreeSet<String>> {
    let request = Request::get("/healthz?verbose").body(Vec::new())?;
    let answer = client.request_text(request).await.context("GET /healthz")?;
    let checks = answer.lines().filter_map(|line| line.strip_prefix("[+]"));
    let checks = checks.filter_map(|check| check.strip_suffix(" ok"));
    Ok(checks
        .filter(|check| *check != ELECTION)
        .map(str::to_owned)
        .collect())
}

fn listed(controllers: &BTreeSet<String>) -> String {
    let controllers: Vec<_> = controllers.iter().map(String::as_str).collect();
    format!("[{}]", controllers.join(", "))
}
