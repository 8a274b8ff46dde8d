//! Arguments of `kubectl kcp lint`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Put manifests to the admission rules, without a cluster.
#[derive(Debug, Args)]
pub struct LintArguments {
    /// Manifests to read: files, folders, or - for stdin
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    pub files: Vec<PathBuf>,

    /// Read the folders in the folders too
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// What follows from each rule: the server's own AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    pub output: LintOutput,
}

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
