//! `--dry-run`, as kubectl has it.

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Nothing is sent
    Client,
    /// The server judges and does not store
    Server,
}

impl DryRun {
    /// What a result is marked with: kubectl's words.
    pub const fn mark(dry_run: Option<Self>) -> &'static str {
        match dry_run {
            None => "",
            Some(Self::Client) => " (dry run)",
            Some(Self::Server) => " (server dry run)",
        }
    }
}
