//! Arguments of `kubectl kcp lint`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Put manifests to the admission rules, or with `--cluster` the objects of a cluster.
#[derive(Debug, Default, Args)]
#[command(after_help = CLUSTER)]
pub struct LintArguments {
    /// Manifests to judge: files, folders, or - for stdin
    #[arg(short, long = "filename", value_name = "FILE", num_args = 1..,
          required_unless_present = "cluster", conflicts_with = "cluster")]
    pub files: Vec<PathBuf>,

    /// Manifests of the objects as they are: one that is in both is judged as an update
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "cluster")]
    pub old: Vec<PathBuf>,

    /// Read the folders in the folders too
    #[arg(short = 'R', long, conflicts_with = "cluster")]
    pub recursive: bool,

    /// Judge the objects of all namespaces, with --cluster
    #[arg(short = 'A', long, conflicts_with = "files")]
    pub all_namespaces: bool,

    /// What follows from each rule: the server's own AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    pub output: LintOutput,
}

/// The flag itself is kubectl's, with a name; this command takes it without one too.
const CLUSTER: &str = "\
With --cluster in place of files, the objects that a cluster has are judged as if they were created now: what they \
would fail once the webhook is installed. --cluster=NAME chooses the cluster, as elsewhere.

Files need no cluster: rules look at the other documents given. An object that names no namespace is in that of -n, \
or in default.";

/// Output formats of `lint`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LintOutput {
    /// A line per finding
    #[default]
    Text,
    /// A JSON document
    Json,
    /// Annotations on the lines of a change, for GitHub Actions
    Github,
}

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
    fn files_or_a_cluster() {
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
