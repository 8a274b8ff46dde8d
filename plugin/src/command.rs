//! Defines the command line: the subcommands, and their help.

use std::collections::BTreeSet;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::{
    arguments::Global,
    commands::{
        audit::AuditArguments,
        bundle::BundleArguments,
        certificates::CertificatesArguments,
        completion::CompletionArguments,
        etcd::{EtcdArguments, EtcdCommand},
        explain::ExplainArguments,
        exporter::ExporterArguments,
        generate::GenerateArguments,
        kubectl::KubectlArguments,
        leader_migration::LeaderMigrationArguments,
        lint::LintArguments,
        logs::LogsArguments,
        machine::MachineArguments,
        man::ManArguments,
        node::NodeArguments,
        plan::PlanArguments,
        pool::{PoolArguments, PoolCommand},
        reconcile::ReconcileArguments,
        rollout::RolloutArguments,
        rules::RulesArguments,
        scale::ScaleArguments,
        status::StatusArguments,
        timeline::TimelineArguments,
        upgrade::UpgradeArguments,
        validate::ValidateArguments,
        version::VersionArguments,
        webhook::WebhookArguments,
        why::WhyArguments,
    },
    output::OutputFormats,
};

/// Inspect and change Cluster API control planes, and lease clusters from cluster pools.
#[derive(Debug, Parser)]
#[command(name = "kubectl-kcp", version, max_term_width = MAX_HELP_WIDTH, after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// The maximum width of help texts, in terminal cells.
const MAX_HELP_WIDTH: usize = 110;

const EXIT_CODES: &str = "Exit codes:
  0    success
  1    negative result: unhealthy, denied, blocked, exhausted, timed out
  2    no result, because of an error: usage, input or output, the API, permissions
  130  interrupted
The command `kubectl` exits with the exit code of kubectl, and `pool exec` with that of the command that it runs; see the help of
`pool exec`.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the health of control planes, their Machines and etcd members
    Status(StatusArguments),
    /// Show why nothing happens on control planes: who acts next, since when, and what to do
    Why(WhyArguments),
    /// Show what happened to a control plane and its Machines, in the order of time, and who did it
    Timeline(TimelineArguments),
    /// Explain the id at the end of a message: a rule, or a check of status, audit or lint
    Explain(ExplainArguments),
    /// Show what the controller will do to a control plane, and what blocks the first step; or what a change does to a pool
    Plan(PlanArguments),
    /// Change the number of Machines of a control plane
    Scale(ScaleArguments),
    /// Replace all Machines of a control plane, now or later, watch the rollout, and undo a change
    Rollout(RolloutArguments),
    /// Upgrade a control plane to another Kubernetes version
    Upgrade(UpgradeArguments),
    /// Replace or remediate one Machine of a control plane, or mark it to be deleted first
    Machine(MachineArguments),
    /// Make the controller of a control plane or Machine try again now
    Reconcile(ReconcileArguments),
    /// Show the logs of a component of a control plane on all its Machines, in the order of their times
    Logs(LogsArguments),
    /// Run kubectl against the workload cluster of a control plane
    Kubectl(KubectlArguments),
    /// Join hosts to the cluster that the kubeconfig selects, and remove or label its Nodes
    Node(NodeArguments),
    /// Show when the certificates of control planes expire, and what renews them; replace CAs
    Certificates(CertificatesArguments),
    /// Check whether a cluster survives the loss of a Node, and comes back by itself after a power failure
    Audit(AuditArguments),
    /// Check that a cluster works, with a Pod on each Node
    Validate(ValidateArguments),
    /// Write the state of a control plane to an archive without secrets, for a person who helps you
    Bundle(BundleArguments),
    /// Serve the health of control planes as metrics for Prometheus
    Exporter(ExporterArguments),
    /// Save a snapshot of a control plane's etcd, or maintain its members
    Etcd(EtcdArguments),
    /// Check and prepare the handover of controllers between controller managers (KEP-2436)
    LeaderMigration(LeaderMigrationArguments),
    /// Lease and release the inventory entries of a Hive ClusterPool
    Pool(PoolArguments),
    /// Check manifests, or the objects of a cluster, against the admission rules
    Lint(LintArguments),
    /// List the admission rules, or export them as policies
    Rules(RulesArguments),
    /// Show whether the API server calls kcp-webhook, and disable or enable the webhook
    Webhook(WebhookArguments),
    /// Print fields for manifests that run kcp-webhook as a static Pod, or a proxy instead of a load balancer
    Generate(GenerateArguments),
    /// Print a completion script, or install the completion of `kubectl kcp`
    Completion(CompletionArguments),
    /// Create manual pages
    Man(ManArguments),
    /// List the global flags of all commands
    Options,
    /// Show the versions of the plugin, the API server, Cluster API, Hive and the webhook
    Version(VersionArguments),
}

/// The commands under headings, as in kubectl's help.
pub const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Inspect",
        &[
            "status",
            "why",
            "timeline",
            "explain",
            "plan",
            "certificates",
            "audit",
            "validate",
            "logs",
            "bundle",
            "exporter",
        ],
    ),
    (
        "Change",
        &[
            "scale",
            "rollout",
            "upgrade",
            "machine",
            "reconcile",
            "etcd",
            "leader-migration",
        ],
    ),
    ("Hosts and workload clusters", &["node", "generate", "kubectl"]),
    ("Pools", &["pool"]),
    ("Admission rules", &["lint", "rules", "webhook"]),
    ("Other", &["completion", "man", "options", "version", "help"]),
];

/// The line at the end of each command's help, as in kubectl.
const OPTIONS_HINT: &str = "List the global flags of all commands with: kubectl kcp options";

/// The maximum number of examples in the help of a command that has subcommands.
const MAX_EXAMPLES: usize = 4;

/// The beginning of a line with an example in the help of a command.
const EXAMPLE: &str = "  kubectl kcp";

/// The lines with examples in the help of a command.
fn examples(command: &clap::Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string);
    let help = help.unwrap_or_default();
    let lines = help.lines().filter(|line| line.starts_with(EXAMPLE));
    lines.map(str::to_owned).collect()
}

/// The command line with all subcommands. The help of a command that has subcommands shows their first examples.
pub fn program() -> clap::Command {
    fn with_examples(command: clap::Command) -> clap::Command {
        let command = command.mut_subcommands(with_examples);
        let children = command.get_subcommands().filter(|child| !child.is_hide_set());
        let lists: Vec<Vec<String>> = children.map(examples).collect();
        let of_each = if lists.len() > 1 { 1 } else { MAX_EXAMPLES };
        let mut seen = BTreeSet::new();
        // Commands that belong together have the same examples. Each example is shown once.
        let of_subcommands: Vec<String> = lists
            .into_iter()
            .flat_map(|examples| {
                let new = examples
                    .into_iter()
                    .filter(|example| seen.insert(example.clone()));
                new.take(of_each).collect::<Vec<_>>()
            })
            .take(MAX_EXAMPLES)
            .collect();
        if of_subcommands.is_empty() || !examples(&command).is_empty() {
            return command;
        }
        let own = command.get_after_help().map(ToString::to_string);
        let examples = format!("Examples:\n{}", of_subcommands.join("\n"));
        let after: Vec<String> = own.into_iter().chain([examples]).collect();
        command.after_help(after.join("\n\n"))
    }
    Arguments::command().mut_subcommands(with_examples)
}

/// The command line with all subcommands. The help of each refers to `options`.
pub fn command() -> clap::Command {
    fn see_options(command: clap::Command) -> clap::Command {
        let own = command.get_after_help().map(ToString::to_string);
        let after = own.into_iter().chain([OPTIONS_HINT.to_owned()]);
        let after = after.collect::<Vec<_>>().join("\n\n");
        command.after_help(after).mut_subcommands(see_options)
    }
    with_headings(see_options(program()))
}

/// Lists the commands under the headings of [`GROUPS`]. clap has one heading for all subcommands, so each group is rendered as a command
/// of its own.
fn with_headings(command: clap::Command) -> clap::Command {
    let mut all = command.clone();
    all.build();
    let part = || {
        clap::Command::new("part")
            .version("")
            .max_term_width(MAX_HELP_WIDTH)
            .disable_help_flag(true)
            .disable_version_flag(true)
            .disable_help_subcommand(true)
            .help_template("{all-args}")
    };
    let groups = GROUPS.map(|(heading, names)| {
        let commands = names.iter().filter_map(|name| {
            let description = all.find_subcommand(name)?.get_about()?.clone();
            Some(clap::Command::new(*name).about(description))
        });
        let mut group = part().subcommand_help_heading(heading).subcommands(commands);
        group.render_help().ansi().to_string()
    });
    let options = part()
        .args(all.get_arguments().cloned())
        .render_help()
        .ansi()
        .to_string();
    let parts: Vec<&str> = groups
        .iter()
        .chain([&options])
        .map(|part| part.trim_end())
        .collect();
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{{after-help}}",
        parts.join("\n\n")
    ))
}

/// The output of `kubectl kcp options`.
pub fn options() -> String {
    let arguments = Arguments::command();
    let global = arguments
        .get_arguments()
        .filter(|argument| argument.is_global_set());
    let global = global.map(|argument| argument.clone().hide(false));
    let flags = clap::Command::new("options")
        .max_term_width(MAX_HELP_WIDTH)
        .disable_help_flag(true)
        .help_template("The following flags can be passed to any command.\n\n{all-args}\n")
        .args(global)
        .render_help();
    let formats = OutputFormats::COMMON.list();
    format!("{flags}\nThe formats of -o. Some commands have more formats; see their help.\n\n{formats}")
}

impl Command {
    /// Whether the command handles signals itself. If it does, a signal must not end the program immediately.
    pub(crate) fn handles_signals(&self) -> bool {
        match self {
            Self::Pool(pool) => match &pool.command {
                PoolCommand::Exec(_) => true,
                PoolCommand::Lease(lease) => lease.is_queued(),
                _ => false,
            },
            Self::Etcd(etcd) => matches!(etcd.command, EtcdCommand::Snapshot(_) | EtcdCommand::Restore(_)),
            Self::Validate(_) | Self::Exporter(_) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{FromArgMatches as _, Parser as _};

    use super::{Arguments, command, options};

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn each_command_is_under_one_heading() {
        let mut listed: Vec<&str> = super::GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let mut all = command();
        all.build();
        let mut names: Vec<&str> = all
            .get_subcommands()
            .filter(|child| !child.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        listed.sort_unstable();
        names.sort_unstable();
        assert_eq!(listed, names);
    }

    #[test]
    fn every_command_has_two_examples_that_parse() {
        fn check(command: &clap::Command, examples: &mut Vec<String>) {
            command.get_subcommands().for_each(|child| check(child, examples));
            let of_command: Vec<String> = super::examples(command)
                .iter()
                .filter_map(|line| line.strip_prefix(super::EXAMPLE)?.split('#').next())
                .map(str::to_owned)
                .collect();
            let number = of_command.len();
            examples.extend(of_command);
            let needs_examples =
                !command.is_hide_set() && !["kubectl-kcp", "options"].contains(&command.get_name());
            assert!(
                !needs_examples || number >= 2,
                "{} has {number} examples, not two",
                command.get_name()
            );
        }
        let mut examples = Vec::new();
        check(&command(), &mut examples);
        for example in examples {
            let words = shlex::split(&example).expect("words");
            let words = ["kubectl-kcp".to_owned()].into_iter().chain(words);
            let parsed = command().try_get_matches_from(words);
            let parsed = parsed.and_then(|matches| Arguments::from_arg_matches(&matches));
            assert!(parsed.is_ok(), "{example}: {parsed:?}");
        }
    }

    /// The commands that change nothing in a cluster.
    const READERS: [&str; 29] = [
        "status",
        "why",
        "plan",
        "machine diagnose",
        "rollout status",
        "rollout history",
        "audit",
        "bundle",
        "exporter",
        "logs",
        "etcd members",
        "etcd check",
        "etcd restore",
        "leader-migration check",
        "leader-migration status",
        "leader-migration generate",
        "pool status",
        "lint",
        "timeline",
        "explain",
        "rules export",
        "webhook status",
        "generate anchor",
        "generate api-proxy",
        "generate join-report",
        "completion",
        "man",
        "options",
        "version",
    ];

    /// The flags that only commands have that write.
    const FLAGS_OF_WRITERS: [&str; 3] = ["dry_run", "yes", "field_manager"];

    fn leaves(command: &clap::Command, above: &str) -> Vec<(String, clap::Command)> {
        let children = command.get_subcommands().filter(|child| !child.is_hide_set());
        children
            .flat_map(|child| {
                let name = format!("{above} {}", child.get_name()).trim_start().to_owned();
                if child.has_subcommands() {
                    leaves(child, &name)
                } else {
                    vec![(name, child.clone())]
                }
            })
            .collect()
    }

    fn has_flag(command: &clap::Command, id: &str) -> bool {
        command.get_arguments().any(|argument| argument.get_id() == id)
    }

    #[test]
    fn the_book_says_which_commands_change_a_cluster_and_which_ask() {
        let page = include_str!("../../docs/src/commands/changes.md");
        let (_, table) = page
            .split_once("\n| command | what it changes | asks |\n|---|---|---|\n")
            .expect("a table");
        let described: Vec<(String, bool)> = table
            .lines()
            .map_while(|line| {
                let mut cells = line.split('|').map(str::trim).skip(1);
                let (command, asks) = (cells.next()?, cells.nth(1)?);
                Some((command.trim_matches('`').to_owned(), !asks.starts_with("no:")))
            })
            .collect();
        let has_yes: Vec<(String, bool)> = leaves(&command(), "")
            .into_iter()
            .filter(|(name, _)| !READERS.contains(&name.as_str()))
            .map(|(name, command)| (name, has_flag(&command, "yes")))
            .collect();
        let mut expected = has_yes.clone();
        let mut found = described;
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn readers_have_no_flag_of_writers() {
        let commands = leaves(&command(), "");
        let names: Vec<&str> = commands.iter().map(|(name, _)| name.as_str()).collect();
        for reader in READERS {
            assert!(names.contains(&reader), "{reader}");
        }
        for (name, command) in commands
            .iter()
            .filter(|(name, _)| READERS.contains(&name.as_str()))
        {
            let flags: Vec<&str> = FLAGS_OF_WRITERS
                .into_iter()
                .filter(|flag| has_flag(command, flag))
                .collect();
            assert_eq!(flags, Vec::<&str>::new(), "{name}");
        }
    }

    /// `pool repair` never asks: without `--yes`, it only lists problems.
    #[test]
    fn every_command_that_asks_has_the_same_flag() {
        let help = |command: &clap::Command| {
            let yes = command
                .get_arguments()
                .find(|argument| argument.get_id() == "yes");
            Some((yes?.get_help()?.to_string(), yes?.get_short()))
        };
        for (name, command) in leaves(&command(), "") {
            if let (Some(found), true) = (help(&command), name != "pool repair") {
                let expected =
                    "Do not ask for confirmation; without a terminal, a command that asks needs this flag";
                assert_eq!(found, (expected.to_owned(), Some('y')), "{name}");
            }
        }
    }

    #[test]
    fn a_duration_without_a_unit_is_an_error_everywhere() {
        let takes = |argument: &clap::Arg, value: &str| {
            let parser = argument.get_value_parser().clone();
            let only = clap::Arg::new("value").value_parser(parser).num_args(1);
            let command = clap::Command::new("value").no_binary_name(true).arg(only);
            command
                .try_get_matches_from([value])
                .map_err(|error| error.to_string())
        };
        let is_duration = |argument: &&clap::Arg| {
            let names = argument.get_value_names().unwrap_or_default();
            names.iter().any(|name| name.as_str() == "DURATION")
        };
        let mut flags = Vec::new();
        for (name, command) in leaves(&command(), "") {
            for argument in command.get_arguments().filter(is_duration) {
                let flag = format!("{name} --{}", argument.get_long().expect("a flag"));
                let error = takes(argument, "8").expect_err(&flag);
                assert!(
                    error.contains("the unit is missing: write 8s, 8m or 8h"),
                    "{flag}: {error}"
                );
                assert!(takes(argument, "8h").is_ok(), "{flag}");
                flags.push(flag);
            }
        }
        assert!(flags.len() > 30, "{flags:?}");
    }

    #[test]
    fn the_reference_describes_every_exit_code() {
        let page = include_str!("../../docs/src/reference/output.md");
        let lines = super::EXIT_CODES
            .lines()
            .filter_map(|line| line.strip_prefix("  "));
        let codes: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(codes, ["0", "1", "2", "130"]);
        let missing: Vec<&str> = codes
            .into_iter()
            .filter(|code| !page.contains(&format!("\n| {code} | ")))
            .collect();
        assert_eq!(missing, Vec::<&str>::new());
    }

    #[test]
    fn options_lists_the_flags_that_other_help_leaves_out() {
        let mut commands = command();
        commands.build();
        let scale = commands.find_subcommand_mut("scale").expect("scale");
        let help = scale.render_long_help().to_string();
        for flag in [
            "--kubeconfig",
            "--as-group",
            "--insecure-skip-tls-verify",
            "--color",
        ] {
            assert!(options().contains(flag) && !help.contains(flag), "{flag}");
        }
        assert!(help.ends_with(&format!("{}\n", super::OPTIONS_HINT)), "{help}");
        assert!(help.contains("--namespace") && options().contains("--namespace"));
    }

    #[test]
    fn restart_is_the_start_of_a_rollout() {
        let parsed = |verb| Arguments::try_parse_from(["kubectl-kcp", "rollout", verb, "edge", "--in", "8h"]);
        let [start, restart] =
            ["start", "restart"].map(|verb| format!("{:?}", parsed(verb).expect("parses")));
        assert_eq!(start, restart);
    }

    #[test]
    fn every_argument_has_help() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                assert!(
                    argument.get_help().is_some(),
                    "{} {}",
                    command.get_name(),
                    argument.get_id()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&command());
    }
}
