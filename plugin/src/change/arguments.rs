//! Arguments of the commands that change a control plane or a Machine.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use kcp_client::update::WriteMode;
use kcp_rules::Configuration;

use crate::{arguments::DryRun, configuration, output::OutputArguments};

/// How a change is written and reported.
#[derive(Clone, Debug, Args)]
pub struct WriteArguments {
    /// Change nothing: check here (client), or let the server check as well (server)
    #[arg(long, value_name = "WHERE", value_enum)]
    pub dry_run: Option<DryRun>,

    /// How the object is printed; other messages then go to stderr.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}

impl WriteArguments {
    pub(crate) const fn mode(&self) -> WriteMode {
        match self.dry_run {
            None => WriteMode::Store,
            Some(DryRun::Server) => WriteMode::ServerDryRun,
            Some(DryRun::Client) => WriteMode::ClientDryRun,
        }
    }
}

/// The server's configuration of the admission rules.
#[derive(Clone, Debug, Args)]
pub struct ReviewArguments {
    /// The action of each admission rule: the server's own AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,
}

impl ReviewArguments {
    /// # Errors
    /// When the file cannot be read or used.
    pub(crate) fn read(&self) -> Result<Option<Configuration>> {
        let file = self.configuration.as_deref();
        file.map(configuration::read).transpose().map_err(Into::into)
    }
}
