//! Arguments of `kubectl kcp status`.

use std::time::Duration;

use clap::Args;

use crate::{
    arguments::{ControlPlaneName, Global, parse_control_plane, parse_timeout},
    fleet::ContextsArgument,
    output::OutputArguments,
};

/// Show control planes, their Machines and etcd members, and their problems.
#[derive(Debug, Default, Args)]
#[command(after_help = "Examples:
  kubectl kcp status
  kubectl kcp status edge
  kubectl kcp status edge -w
  kubectl kcp status -A --deep -o json
  kubectl kcp status -A --deep -w
  kubectl kcp status -A --contexts east,west")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct StatusArguments {
    /// Control plane to show, as NAME, kcp/NAME or cluster/NAME [default: all in the namespace]
    #[arg(value_parser = parse_control_plane, conflicts_with = "all_namespaces")]
    pub name: Option<ControlPlaneName>,

    /// Show the control planes of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Watch for changes: redraw on a terminal, otherwise print a line for each change
    #[arg(short, long)]
    pub watch: bool,

    /// Show the control planes that match this label selector, such as team=edge,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "name")]
    pub selector: Option<String>,

    #[command(flatten)]
    pub contexts: ContextsArgument,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Do not query etcd; the verdict is then based on conditions
    #[arg(long)]
    pub no_etcd: bool,

    /// Do not query the workload cluster or its etcd; the verdict is then based on conditions
    #[arg(long)]
    pub no_workload: bool,

    /// Query the workload cluster and etcd of each control plane, even if there are more than 32 control planes
    #[arg(long, conflicts_with_all = ["name", "no_workload"])]
    pub deep: bool,

    /// Time limit for all reads, such as 30s or 2m; in a list, for the reads of each control plane
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}

impl StatusArguments {
    /// The error message, if two of the flags contradict each other.
    pub fn contradiction(&self, global: &Global) -> Option<String> {
        let is_contradiction = self.watch && !self.output.is_text();
        is_contradiction
            .then(|| "--watch prints text only: omit --output, or set it to wide".to_owned())
            .or_else(|| self.contexts.contradiction(global))
    }

    /// Whether the command prints one table row for each control plane of all namespaces, so that it needs nothing else in
    /// memory.
    pub fn needs_only_rows(&self) -> bool {
        self.all_namespaces
            && self.contexts.contexts.is_empty()
            && !self.deep
            && !self.watch
            && self.output.is_text()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{Command, FromArgMatches as _};

    use super::StatusArguments;
    use crate::{
        arguments::{ControlPlaneName, Global},
        output::OutputFormat,
    };

    fn parse(words: &str) -> Result<StatusArguments, clap::Error> {
        let command = <StatusArguments as clap::Args>::augment_args(Command::new("status"));
        let matches =
            command.try_get_matches_from(std::iter::once("status").chain(words.split_whitespace()))?;
        StatusArguments::from_arg_matches(&matches)
    }

    #[test]
    fn accepts_a_control_plane_by_its_name_or_its_cluster() {
        for (words, name) in [
            ("edge", ControlPlaneName::Own("edge".to_owned())),
            ("kcp/edge", ControlPlaneName::Own("edge".to_owned())),
            ("cluster/edge", ControlPlaneName::OfCluster("edge".to_owned())),
        ] {
            let arguments = parse(words).expect("parses");
            assert_eq!(
                (arguments.name, arguments.timeout),
                (Some(name), Duration::from_secs(10))
            );
        }
        let arguments = parse("-A --deep -o yaml --no-etcd --timeout 3s").expect("parses");
        assert_eq!(arguments.output.format(), OutputFormat::Yaml);
        assert_eq!(arguments.timeout, Duration::from_secs(3));
    }

    #[test]
    fn rejects_arguments_that_contradict_each_other() {
        for words in [
            "edge -A",
            "edge --deep",
            "-A --deep --no-workload",
            "pod/edge",
            "-o xml",
            "edge -l team=a",
            "--timeout 0",
            "edge --contexts a,b",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
        for (words, is_so) in [
            ("-w", false),
            ("-w -o wide", false),
            ("-w -o json", true),
            ("-w -o yaml", true),
            ("-w -o name", true),
            ("-w -o jsonpath={.items}", true),
            ("-o json", false),
            ("-A --deep -w", false),
            ("-w --contexts a,b", false),
        ] {
            assert_eq!(
                parse(words)
                    .expect("parses")
                    .contradiction(&Global::default())
                    .is_some(),
                is_so,
                "{words}"
            );
        }
    }
}
