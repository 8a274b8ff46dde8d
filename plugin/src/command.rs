//! The command line: its commands.

use clap::{Parser, Subcommand};

use crate::{
    arguments::Global,
    commands::{
        lint::LintArguments,
        machine::MachineArguments,
        plan::PlanArguments,
        pool::{PoolArguments, PoolCommand},
        rollout::RolloutArguments,
        rules::RulesArguments,
        scale::ScaleArguments,
        status::StatusArguments,
        upgrade::UpgradeArguments,
    },
};

/// Health, scale and rollout of Cluster API control planes, leases on cluster pools.
#[derive(Debug, Parser)]
#[command(name = "kubectl-kcp", version, max_term_width = 110, after_help = EXIT_CODES)]
pub struct Arguments {
    /// Flags that every command takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes:
  0    success
  1    negative result: unhealthy, denied, blocked, exhausted, timed out
  2    no result: usage, input and output, the API, permissions
  130  interrupted
A command under `pool exec` keeps its own exit code; see its help.";

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show control planes, their Machines and what is wrong with them
    Status(StatusArguments),
    /// Show what the controller will do to a control plane, and what blocks it
    Plan(PlanArguments),
    /// Change the number of Machines of a control plane
    Scale(ScaleArguments),
    /// Replace all Machines of a control plane, now or later, and watch the rollout
    Rollout(RolloutArguments),
    /// Upgrade a control plane to another Kubernetes version
    Upgrade(UpgradeArguments),
    /// Replace or remediate one Machine of a control plane, or mark it to be deleted first
    Machine(MachineArguments),
    /// Lease and release the customizations of a cluster pool
    Pool(PoolArguments),
    /// Check manifests, or the objects of a cluster, against the admission rules
    Lint(LintArguments),
    /// List the admission rules, or explain one
    Rules(RulesArguments),
}

impl Command {
    /// Whether the command handles signals itself.
    pub(crate) fn handles_signals(&self) -> bool {
        matches!(self, Self::Pool(pool) if matches!(pool.command, PoolCommand::Exec(_)))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Arguments;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_argument_has_help() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} {}",
                    command.get_name(),
                    argument.get_id()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Arguments::command());
    }
}
