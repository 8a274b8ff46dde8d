//! Arguments of `kubectl kcp rules`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::output::{OutputArguments, OutputFormats};

/// List the admission rules, or export them as policies.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  kubectl kcp rules
  kubectl kcp rules -o name"
)]
#[command(mut_arg("output", |output| output.value_parser(OutputFormats::RULES).hide_possible_values(false)))]
pub struct RulesArguments {
    /// A subcommand; without one, the command lists the rules
    #[command(subcommand)]
    pub command: Option<RulesCommand>,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Export the rules or the defaults as admission policies, which the API server applies without the webhook
    Export(ExportArguments),
}

/// Arguments of `rules export`.
#[derive(Debug, Args)]
#[command(after_help = EXPORT_HELP)]
pub struct ExportArguments {
    /// The export format
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: ExportFormat,

    /// The webhook's AdmissionConfiguration, which sets the action of each rule; only with --format vap
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,
}

const EXPORT_HELP: &str = "\
Examples:
  kubectl kcp rules export --format vap
  kubectl kcp rules export --format vap --configuration configuration.yaml
  kubectl kcp rules export --format map

The policies are a second line of defense in addition to the webhook. Validating policies need Kubernetes 1.35 or newer, mutating \
policies 1.36. To install them, pipe the output into: kubectl apply -f -

With mutating policies, an update that omits replicas keeps the number of replicas, even while the webhook is disabled. Without \
mutating policies, Cluster API sets 1 while the webhook is disabled.

The first lines of the validating policies list the rules that cannot be exported, each with the reason. Policies have no clock, \
    so they accept expired overrides. They do not warn about problems that existed before a change.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// The rules, as validating admission policies and their bindings in YAML
    Vap,
    /// The defaults, as mutating admission policies and their bindings in YAML
    Map,
}
