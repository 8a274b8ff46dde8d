//! Arguments of `kubectl kcp plan`.

use std::path::PathBuf;

use clap::Args;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane},
    commands::scale::parse_replicas,
    fleet::ContextsArgument,
    output::OutputArguments,
};
use kcp_control_plane::{plan::options::PlanOptions, verbs::upgrade_path::parse_full_version};

/// The flags that select several control planes. They exclude the flags for a change, which need a NAME.
const LIST_FLAGS: [&str; 3] = ["all_namespaces", "selector", "contexts"];

/// Show the steps that the controller will take, and what blocks the first one.
#[derive(Debug, Args)]
#[command(
    after_help = "Without NAME, the command prints one line for each control plane. It then reads only the management \
                  cluster, not etcd.

With --filename, NAME is optional. Without NAME, the file may contain a ClusterPool instead of a KubeadmControlPlane. The file \
                  replaces a pool as a whole, as with `kubectl replace`. For a pool, the command shows which clusters become \
                  stale or are deleted, and exits with 1 if there are any.

Examples:
  kubectl kcp plan
  kubectl kcp plan edge
  kubectl kcp plan edge --replicas 5
  kubectl kcp plan -f control-plane.yaml
  kubectl kcp plan -f pool.yaml
  kubectl kcp plan -A --contexts east,west"
)]
pub struct PlanArguments {
    /// Control plane to plan for, as NAME, kcp/NAME or cluster/NAME [default: all in the namespace]
    #[arg(value_parser = parse_control_plane, conflicts_with = "all_namespaces")]
    pub name: Option<ControlPlaneName>,

    /// Plan for the control planes of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Plan for the control planes that match this label selector, such as team=edge,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "name")]
    pub selector: Option<String>,

    #[command(flatten)]
    pub contexts: ContextsArgument,

    /// Plan a change to this number of Machines
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_replicas, requires = "name",
          conflicts_with_all = LIST_FLAGS)]
    pub replicas: Option<i64>,

    /// Plan a change to this Kubernetes version
    #[arg(long, value_name = "VERSION", value_parser = parse_full_version, requires = "name", conflicts_with_all = LIST_FLAGS)]
    pub to: Option<String>,

    /// Plan the replacement of every Machine, as with rollout start
    #[arg(long, requires = "name", conflicts_with_all = LIST_FLAGS)]
    pub restart: bool,

    /// Plan the change that kubectl apply of this manifest would make; - means stdin
    #[arg(short, long = "filename", value_name = "FILE",
          conflicts_with_all = ["replicas", "to", "restart", "all_namespaces", "selector", "contexts"])]
    pub file: Option<PathBuf>,

    /// The webhook's AdmissionConfiguration, which sets the action of each rule
    #[arg(long, value_name = "FILE", requires = "name", conflicts_with_all = LIST_FLAGS)]
    pub configuration: Option<PathBuf>,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

impl PlanArguments {
    pub(super) fn plan_options(&self) -> PlanOptions {
        PlanOptions {
            replicas: self.replicas,
            version: self.to.clone(),
            restart: self.restart,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};

    use super::PlanArguments;

    fn parse(words: &str) -> Result<PlanArguments, clap::Error> {
        let command = <PlanArguments as clap::Args>::augment_args(Command::new("plan"));
        let words = std::iter::once("plan").chain(words.split_whitespace());
        PlanArguments::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn a_change_is_planned_for_one_control_plane_alone() {
        for (words, is_accepted) in [
            ("", true),
            ("-A", true),
            ("-A --contexts a,b -l team=x -o json", true),
            ("edge --replicas 5", true),
            ("edge --restart", true),
            ("edge --to v1.36.3", true),
            ("edge -A", false),
            ("edge -l team=x", false),
            ("edge --contexts a", false),
            ("--replicas 5", false),
            ("--to v1.35.0", false),
            ("-A --restart", false),
            ("-l team=x --replicas 5", false),
            ("--contexts a --to v1.35.0", false),
            ("-A -f control-plane.yaml", false),
            ("-A --configuration admission.yaml", false),
            ("-f control-plane.yaml", true),
            ("edge -f control-plane.yaml", true),
        ] {
            assert_eq!(parse(words).is_ok(), is_accepted, "{words}");
        }
    }
}
