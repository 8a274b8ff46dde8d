//! What `manage`, `anchor` and `api-proxy` have in common: they connect to the API server, and make passes until they are stopped.

use std::{io, process::ExitCode};

use kube::Client;
use thiserror::Error;
use tokio::runtime;
use tracing::warn;

use crate::{
    arguments::ReconcilerArguments,
    cluster::{self, AccessError},
    shutdown::Stop,
};

/// Why a reconciler cannot start.
#[derive(Debug, Error)]
pub enum ReconcilerError {
    #[error("{0}")]
    Access(#[from] AccessError),
    #[error("no API server: run kcp-webhook {0} in a pod with a service account, or pass --kubeconfig")]
    NoAccess(&'static str),
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Runs `reconcile` with a client until it ends. `command` is the subcommand of `kcp-webhook`.
pub(crate) fn run(
    command: &'static str,
    arguments: &ReconcilerArguments,
    reconcile: impl AsyncFnOnce(Client, Stop),
) -> Result<ExitCode, ReconcilerError> {
    arguments.log.init();
    // Install the default provider of the process, which the Kubernetes client uses.
    _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = Stop::on_signals()?;
        let client = cluster::connect(arguments.kubeconfig.as_deref())
            .await?
            .ok_or(ReconcilerError::NoAccess(command))?;
        reconcile(client, stop).await;
        Ok(ExitCode::SUCCESS)
    })
}

/// The last problem in the log, which is not logged again while it lasts.
#[derive(Default)]
pub(crate) struct LastProblem(Option<String>);

impl LastProblem {
    /// Logs a problem unless it is the last one. `None`: there is no problem any more.
    pub(crate) fn report(&mut self, problem: Option<String>) {
        if let Some(problem) = problem
            .as_ref()
            .filter(|problem| Some(*problem) != self.0.as_ref())
        {
            warn!("{problem}");
        }
        self.0 = problem;
    }

    pub(crate) fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }
}
