//! Arguments of `kubectl kcp pool repair`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use jiff::SignedDuration;

use super::proof::GRACE;
use crate::{
    arguments::{parse_cluster_pool, parse_duration, parse_object_name},
    pool::install_config::InstallConfigSource,
};

/// Arguments of `pool repair`.
#[derive(Debug, Args)]
pub struct RepairArguments {
    /// Cluster pool to repair; all of the namespace when absent
    #[arg(value_parser = parse_cluster_pool, conflicts_with = "all_namespaces")]
    pub pool: Option<String>,

    /// Repair the pools of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// How long a holder's cluster may be missing, from when it got its customization [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    grace: Option<Duration>,

    /// Do what is printed without it
    #[arg(long)]
    pub yes: bool,

    /// Make the cluster deployment that is gone anew, with the customization that it had, where no Hive runs; within the
    /// pool's maxSize and maxConcurrent
    #[arg(long, requires_all = ["pool", "install_config"], conflicts_with = "all_namespaces")]
    pub recreate: bool,

    /// What such a cluster is made from: a file, - for stdin, or secret/NAME, key install-config.yaml
    #[arg(long, value_name = "FILE|secret/NAME", requires = "recreate")]
    pub install_config: Option<InstallConfigSource>,

    /// Mend this customization too, although nothing proves that its holder is gone: free it, or with --recreate make its
    /// cluster; may be given again
    #[arg(
        long,
        value_name = "CUSTOMIZATION",
        value_parser = parse_customization,
        conflicts_with = "all_namespaces"
    )]
    pub force: Vec<String>,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<RepairOutput>,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}

impl RepairArguments {
    /// How long a holder's cluster may be missing.
    pub(super) fn grace(&self) -> SignedDuration {
        self.grace.map_or(GRACE, |grace| {
            SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX)
        })
    }
}

/// Output formats of `pool repair`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RepairOutput {
    /// A JSON document: `PoolRepair`
    Json,
    /// The same in YAML
    Yaml,
    /// Each object as RESOURCE/NAME
    Name,
}

/// `NAME`, or `cdc/NAME` as the output has it.
fn parse_customization(text: &str) -> Result<String, String> {
    parse_object_name(text.strip_prefix("cdc/").unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};
    use jiff::SignedDuration;

    use super::{GRACE, InstallConfigSource, RepairArguments};
    use crate::arguments::format_duration;

    fn parse(words: &str) -> Result<RepairArguments, clap::Error> {
        let command = <RepairArguments as clap::Args>::augment_args(Command::new("repair"));
        let words = std::iter::once("repair").chain(words.split_whitespace());
        RepairArguments::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn the_help_names_the_default() {
        let command = <RepairArguments as clap::Args>::augment_args(Command::new("repair"));
        let grace = command
            .get_arguments()
            .find(|argument| argument.get_id() == "grace");
        let help = grace.unwrap().get_help().unwrap().to_string();
        let default = format_duration(GRACE.try_into().unwrap());
        assert!(help.ends_with(&format!(" [default: {default}]")), "{help}");
    }

    #[test]
    fn what_is_freed_by_name_is_named() {
        let arguments = parse("clusterpool/p --yes --force cdc/a --force b").unwrap();
        assert_eq!(arguments.pool.as_deref(), Some("p"));
        assert_eq!(arguments.force, ["a", "b"]);
        assert_eq!(arguments.grace(), GRACE);
        let recreating = parse("p --recreate --install-config secret/a").unwrap();
        assert!(recreating.recreate);
        assert_eq!(
            recreating.install_config,
            Some(InstallConfigSource::Secret("a".to_owned()))
        );
        assert_eq!(
            parse("-A --grace 1m30s").unwrap().grace(),
            SignedDuration::from_secs(90)
        );
        for words in [
            "p -A",
            "-A --force a",
            "--force",
            "--force pod/a",
            "p q",
            "p --recreate",
            "p --install-config f",
            "--recreate --install-config f",
            "-A --recreate --install-config f",
            "--grace x",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
