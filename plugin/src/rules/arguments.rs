//! Arguments of `kubectl kcp rules`.

use clap::{Args, Subcommand, ValueEnum};

/// List the admission rules, or explain one.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RulesArguments {
    /// What to do instead of listing them
    #[command(subcommand)]
    pub command: Option<RulesCommand>,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    pub output: RulesOutput,
}

/// Commands below `rules`.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Say why a rule is there, what it accepts and rejects, and how to live with it
    Explain(ExplainArguments),
}

/// Arguments of `rules explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// The rule's id, as it stands at the end of each message
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub id: Option<String>,

    /// Explain every rule
    #[arg(long, conflicts_with = "id")]
    pub all: bool,
}

/// Output formats of `rules`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RulesOutput {
    /// A line per rule
    #[default]
    Text,
    /// A JSON document
    Json,
}
