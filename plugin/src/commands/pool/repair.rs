//! Runs `kubectl kcp pool repair`.

mod printer;

use std::{collections::BTreeSet, time::Duration};

use clap::Args;
use jiff::SignedDuration;
use kcp_pool::{
    lease::rule::DEFAULT_GRACE,
    repair::{
        RepairRequest, list_namespaces,
        options::RepairOptions,
        repair,
        report::{FindingResult, NamespaceFailure, RepairReport},
    },
    store::Store,
};

use crate::{
    arguments::{parse_cluster_pool, parse_customization, parse_duration},
    commands::pool::{HiveArgument, InstallConfigSource},
    output::{OutputArguments, print},
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
};

/// Arguments of `pool repair`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp pool repair hosts
  kubectl kcp pool repair -A --yes
  kubectl kcp pool repair hosts --yes --force host-a
  kubectl kcp pool repair hosts --yes --recreate --install-config secret/install-config")]
pub struct RepairArguments {
    /// Cluster pool to repair; all pools of the namespace if omitted
    #[arg(value_parser = parse_cluster_pool, conflicts_with = "all_namespaces")]
    pub pool: Option<String>,

    /// Repair the pools of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Minimum time that a customization stays reserved after a command has found that its lease has ended or that its cluster
    /// no longer exists [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    grace: Option<Duration>,

    /// Repair the problems; without --yes, the command only lists them
    #[arg(long)]
    pub yes: bool,

    /// Create missing cluster deployments again, with their customizations, within the pool's maxSize and
    /// maxConcurrent; only in pools that Hive does not manage
    #[arg(long, requires_all = ["pool", "install_config"], conflicts_with = "all_namespaces")]
    pub recreate: bool,

    /// The install-config for --recreate: a file, - for stdin, or secret/NAME with the key install-config.yaml
    #[arg(long, value_name = "FILE|secret/NAME", requires = "recreate")]
    pub install_config: Option<InstallConfigSource>,

    /// Free this customization even if its holder is unknown or its lease never ends, unless a cluster uses it; may be
    /// repeated
    #[arg(
        long,
        value_name = "CUSTOMIZATION",
        value_parser = parse_customization,
        conflicts_with = "all_namespaces"
    )]
    pub force: Vec<String>,

    /// Whether Hive manages the pools
    #[arg(long, value_enum, default_value = "auto")]
    pub hive: HiveArgument,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}

impl RepairArguments {
    pub(crate) fn grace(&self) -> SignedDuration {
        self.grace.map_or(DEFAULT_GRACE, |grace| {
            SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX)
        })
    }
}

pub(crate) async fn run(arguments: RepairArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let mut report = RepairReport {
        namespace: (!arguments.all_namespaces).then(|| connection.namespace.clone()),
        pool: arguments.pool.clone(),
        is_confirmed: arguments.yes,
        results: Vec::new(),
        failures: Vec::new(),
        refusal: None,
        cluster_list_error: None,
    };
    if arguments.yes {
        let again = "interrupted: completed repairs stay; run the same command to continue";
        session.terminal.set_interrupt_note(again);
    }
    let namespaces = match &report.namespace {
        Some(namespace) => BTreeSet::from([namespace.clone()]),
        None => list_namespaces(&connection, &arguments.field_manager).await?,
    };
    let install_config = match &arguments.install_config {
        Some(source) => Some(source.read(&connection).await?),
        None => None,
    };
    let request = RepairRequest {
        options: RepairOptions {
            pool: arguments.pool.as_deref(),
            grace: arguments.grace(),
            forced: &arguments.force,
            recreate: arguments.recreate,
        },
        install_config: install_config.as_ref(),
        is_confirmed: arguments.yes,
        hive: arguments.hive.into(),
    };
    for namespace in namespaces {
        let mut connection = connection.clone();
        connection.namespace = namespace;
        let store = Store::new(&connection, &arguments.field_manager);
        match Box::pin(repair(&store, request, &mut report.results)).await {
            Ok(left) => {
                report.refusal = left.refusal;
                report.cluster_list_error = left.cluster_list_error;
            }
            Err(error) if report.results.is_empty() && !arguments.all_namespaces => return Err(error.into()),
            Err(error) => report.failures.push(NamespaceFailure {
                namespace: store.namespace().to_owned(),
                error,
            }),
        }
    }
    print(&report, &arguments.output, &session.terminal)?;
    show_errors(&report, &session.terminal);
    Ok(verdict(&report))
}

/// The command's verdict, which is positive if no problem remains.
fn verdict(report: &RepairReport) -> Verdict {
    let verdict = |found: &FindingResult| match found {
        found if found.error().is_some() => Verdict::Undecided,
        found if found.is_repaired() => Verdict::Met,
        _ => Verdict::Negative,
    };
    let of_failures = report.failures.iter().map(|_| Verdict::Undecided);
    let of_refusal = report.refusal.iter().map(|_| Verdict::Negative);
    let of_findings = report.results.iter().map(verdict);
    // If the clusters could not be listed, some problems may not have been found.
    let of_unread = report.cluster_list_error.iter().map(|_| Verdict::Undecided);
    Verdict::worst(of_findings.chain(of_failures).chain(of_refusal).chain(of_unread))
}

/// Prints to stderr which namespaces were not repaired completely, and the warnings.
fn show_errors(report: &RepairReport, terminal: &Terminal) {
    for found in &report.results {
        if let Some(error) = found.error() {
            let hint = error.hint();
            let error = anyhow::anyhow!("{error}");
            terminal.error(&error, hint.as_deref());
        }
        if let Some(why) = found.obstacle() {
            terminal.note(&format!("blocked: {}: {why}", found.finding.subject.short_name()));
        }
    }
    for NamespaceFailure { namespace, error } in &report.failures {
        let hint = error.hint();
        let error = anyhow::anyhow!("could not finish the repair of namespace {namespace}: {error}");
        terminal.error(&error, hint.as_deref());
    }
    if let Some(error) = &report.cluster_list_error {
        let hint = error.hint();
        let error =
            anyhow::anyhow!("nothing was freed, because clusters may still use the customizations: {error}");
        terminal.error(&error, hint.as_deref());
    }
    if let Some(refusal) = &report.refusal {
        terminal.note(&format!("{}: {refusal}", refusal.reason()));
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};
    use jiff::SignedDuration;
    use kcp_pool::testing::reports::reports;

    use super::{DEFAULT_GRACE, InstallConfigSource, RepairArguments, verdict};
    use crate::{arguments::format_duration, verdict::Verdict};

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
        let default = format_duration(DEFAULT_GRACE.try_into().unwrap());
        assert!(help.ends_with(&format!(" [default: {default}]")), "{help}");
    }

    #[test]
    fn force_requires_names() {
        let arguments = parse("clusterpool/p --yes --force cdc/a --force b").unwrap();
        assert_eq!(arguments.pool.as_deref(), Some("p"));
        assert_eq!(arguments.force, ["a", "b"]);
        assert_eq!(arguments.grace(), DEFAULT_GRACE);
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

    #[test]
    fn the_verdict_of_each_report() {
        for (name, report) in reports() {
            let expected = match name {
                "nothing" => Verdict::Met,
                // Either a single write is forbidden, or all requests to a namespace are.
                "what came of it" | "one namespace failed" => Verdict::Undecided,
                _ => Verdict::Negative,
            };
            assert_eq!(verdict(&report), expected, "{name}");
        }
    }
}
