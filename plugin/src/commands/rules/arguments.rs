//! Arguments of `kubectl kcp rules`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::output::{Formats, OutputArguments};

/// List the admission rules, or explain one.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(mut_arg("output", |output| output.value_parser(Formats::RULES)))]
pub struct RulesArguments {
    /// What to do instead of listing them
    #[command(subcommand)]
    pub command: Option<RulesCommand>,

    /// How they are printed.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Commands below `rules`.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Say why a rule is there, what it accepts and rejects, and how to live with it
    Explain(ExplainArguments),
    /// Write the rules as objects that an API server applies itself, webhook or not
    Export(ExportArguments),
}

/// Arguments of `rules explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp rules explain replicas-even")]
pub struct ExplainArguments {
    /// The rule's id, as it stands at the end of each message
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub id: Option<String>,

    /// Explain every rule
    #[arg(long, conflicts_with = "id")]
    pub all: bool,

    /// How it is printed.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Arguments of `rules export`.
#[derive(Debug, Args)]
#[command(after_help = EXPORT)]
pub struct ExportArguments {
    /// What to write them as
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: ExportFormat,

    /// What follows from each rule: the server's own AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,
}

const EXPORT: &str = "\
Examples:
  kubectl kcp rules export --format vap

A second layer beside the webhook, for Kubernetes 1.35 or newer. Pipe it into: kubectl apply -f -

The first lines name the rules that are not in it, each with the reason. A policy has no clock: it takes an override \
for valid whenever it ends. It does not warn of what was at fault before.";

/// Formats of `rules export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Validating admission policies and their bindings, as YAML
    Vap,
}
