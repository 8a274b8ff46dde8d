//! What the commands that change a control plane take.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::DryRun;
use crate::change::output::ChangeOutput;

/// How a change is written.
#[derive(Debug, Args)]
pub struct WriteArguments {
    /// Change nothing: judge here (client), or also let the server judge (server)
    #[arg(long, value_name = "WHERE", value_enum)]
    pub dry_run: Option<DryRun>,

    /// Output format; what is said otherwise goes to stderr [default: text for people]
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<ChangeOutput>,

    /// What follows from each rule: the server's own AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}
