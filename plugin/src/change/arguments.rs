//! The arguments that are common to all commands that change a control plane or a Machine.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::Args;
use kcp_client::update::WriteMode;
use kcp_rules::Configuration;

use crate::{
    arguments::{DryRun, parse_duration},
    configuration,
    output::OutputArguments,
};

/// The name under which the server records the changes of this program, unless the user sets another name.
pub(crate) const FIELD_MANAGER: &str = "kubectl-kcp";

/// The flags that say how to write a change and how to report it.
#[derive(Clone, Debug, Args)]
pub struct WriteArguments {
    /// Check the change without writing it: only locally (client, the default), or also on the server (server)
    #[arg(long, value_name = "WHERE", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "client")]
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

/// The flags that say whether to wait for the end of a change.
#[derive(Clone, Copy, Debug, Args)]
pub struct WaitArguments {
    /// Wait until the change is complete, for at most this long [default without a value: 1h]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1,
          require_equals = true, default_missing_value = "1h", conflicts_with_all = ["dry_run", "output"])]
    wait: Option<Duration>,

    /// Wait for at most this long, instead of the time of --wait
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "wait")]
    timeout: Option<Duration>,
}

impl WaitArguments {
    /// How long to wait; `None` without `--wait`.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.wait.map(|limit| self.timeout.unwrap_or(limit))
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
