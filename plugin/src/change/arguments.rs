//! The arguments that are common to all commands that change a control plane or a Machine.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use kcp_client::update::WriteMode;
use kcp_rules::Configuration;

use crate::{arguments::DryRun, configuration, output::OutputArguments};

/// The name under which the server records the changes of this program, unless the user sets another name.
pub(crate) const FIELD_MANAGER: &str = "kubectl-kcp";

/// The flags that say how to write a change and how to report it.
#[derive(Clone, Debug, Args)]
pub struct WriteArguments {
    /// Check the change without writing it: only locally (client), or also on the server (server)
    #[arg(long, value_name = "WHERE", value_enum)]
    pub dry_run: Option<DryRun>,

    /// The output format. If it is set, messages go to stderr.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = FIELD_MANAGER)]
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

/// The flag for the webhook's configuration, so that a command applies the same actions as the webhook.
#[derive(Clone, Debug, Args)]
pub struct ReviewArguments {
    /// The webhook's AdmissionConfiguration, which sets the action of each rule
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,
}

impl ReviewArguments {
    /// Reads the file that `--configuration` names; `None` without the flag.
    pub(crate) fn read(&self) -> Result<Option<Configuration>> {
        let file = self.configuration.as_deref();
        file.map(configuration::read).transpose().map_err(Into::into)
    }
}
