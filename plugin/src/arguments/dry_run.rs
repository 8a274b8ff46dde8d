//! `--dry-run`, as in kubectl.

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Send nothing
    Client,
    /// The server checks the change but does not store it
    Server,
}

impl DryRun {
    /// kubectl's suffix for results of a dry run.
    pub const fn mark(dry_run: Option<Self>) -> &'static str {
        match dry_run {
            None => "",
            Some(Self::Client) => " (dry run)",
            Some(Self::Server) => " (server dry run)",
        }
    }
}
