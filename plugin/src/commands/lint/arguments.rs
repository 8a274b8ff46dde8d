//! Arguments of `kubectl kcp lint`.

use std::path::PathBuf;

use clap::Args;

use crate::output::{OutputArguments, OutputFormats};

/// Check manifests, or with `--cluster` the objects of a cluster, against the admission rules.
#[derive(Debug, Default, Args)]
#[command(after_help = LINT_HELP, mut_arg("output", |output| output.value_parser(OutputFormats::LINT).hide_possible_values(false)))]
pub struct LintArguments {
    /// Manifests to check: files, folders, or - for stdin
    #[arg(short, long = "filename", value_name = "FILE", num_args = 1..,
          required_unless_present = "cluster", conflicts_with = "cluster")]
    pub files: Vec<PathBuf>,

    /// Manifests of existing objects; if an object is also in the manifests to check, lint checks it as an update
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "cluster")]
    pub old: Vec<PathBuf>,

    /// Also read subfolders
    #[arg(short = 'R', long, conflicts_with = "cluster")]
    pub recursive: bool,

    /// Fill the variables of clusterctl templates, such as ${NAME} or ${NAME:=default}, from the environment
    #[arg(long, conflicts_with = "cluster")]
    pub substitute: bool,

    /// With --cluster: check the objects of all namespaces
    #[arg(short = 'A', long, conflicts_with = "files")]
    pub all_namespaces: bool,

    /// The webhook's AdmissionConfiguration, which sets the action of each rule
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// The end of the help of `lint`. In `lint`, `--cluster` has no value, or the name of a kubeconfig cluster as in
/// kubectl.
const LINT_HELP: &str = "\
Examples:
  kubectl kcp lint -f manifests/ -R
  kubectl kcp lint -f new.yaml --old old.yaml
  kubectl kcp lint -f cluster-template.yaml --substitute
  kubectl kcp lint --cluster -A
  kubectl kcp lint -f manifests/ -R -o sarif

With --cluster instead of files, lint checks the objects that are in a cluster, to find what fails a rule before the webhook is installed. Rules that apply only to creation are left out. --cluster=NAME selects the cluster, as in other commands.

To check files, lint needs no cluster: if a rule needs other objects, lint looks for them in the files that you pass. \
Objects without a namespace get the namespace of -n, or the namespace default.";

#[cfg(test)]
mod tests {
    use clap::{Parser as _, error::ErrorKind};

    use crate::command::{Arguments, Command};

    fn parse(line: &str) -> Result<(Option<String>, usize), ErrorKind> {
        let arguments = Arguments::try_parse_from(["kubectl-kcp", "lint"].into_iter().chain(line.split(' ')));
        let arguments = arguments.map_err(|error| error.kind())?;
        let Command::Lint(given) = arguments.command else {
            panic!("another command")
        };
        Ok((arguments.global.cluster, given.files.len()))
    }

    #[test]
    fn checks_either_files_or_a_cluster() {
        for (line, parsed) in [
            ("-f a.yaml b/ --old c", Ok((None, 2))),
            ("--cluster", Ok((Some(String::new()), 0))),
            ("--cluster -A", Ok((Some(String::new()), 0))),
            ("--cluster prod -n x", Ok((Some("prod".to_owned()), 0))),
            ("-A", Err(ErrorKind::MissingRequiredArgument)),
            ("-f a.yaml --cluster", Err(ErrorKind::ArgumentConflict)),
            ("-f a.yaml -A", Err(ErrorKind::ArgumentConflict)),
            ("--cluster --old a.yaml", Err(ErrorKind::ArgumentConflict)),
            ("--old a.yaml", Err(ErrorKind::MissingRequiredArgument)),
        ] {
            assert_eq!(parse(line), parsed, "{line}");
        }
    }
}
