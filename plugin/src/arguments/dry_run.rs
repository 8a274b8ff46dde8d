//! The flag `--dry-run`, with kubectl's values.

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Check the change without sending it to the server
    Client,
    /// Let the server check the change without storing it
    Server,
}

impl DryRun {
    /// The suffix that kubectl prints after the result of a dry run; empty without a dry run.
    pub const fn suffix(dry_run: Option<Self>) -> &'static str {
        match dry_run {
            None => "",
            Some(Self::Client) => " (dry run)",
            Some(Self::Server) => " (server dry run)",
        }
    }
}
