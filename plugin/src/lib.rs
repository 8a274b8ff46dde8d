//! `kubectl kcp`: inspects and changes Cluster API control planes, and leases clusters from cluster pools.
//!
//! A command passes through: arguments -> reads -> decision -> report -> exit code. Reading, deciding and printing
//! never share a function.
//!
//! Each module uses only modules below it in this list, which a test checks.
//!
//! - [`completion`]: completes command lines for kubectl
//! - [`command`]: the command line
//! - [`commands`]: the commands
//! - [`fleet`]: reads several control planes, in one or several contexts
//! - [`watch`]: polls for `-w`
//! - `signal`: the signals that end a process
//! - [`wait`]: waits until a change is complete
//! - [`change`]: changes a control plane or a Machine
//! - [`session`]: the global flags and the terminal, which every command receives
//! - [`verdict`]: results of commands and their exit codes
//! - [`document`]: shared parts of JSON documents
//! - [`configuration`], [`file`]: the webhook's configuration, and files that the user names
//! - [`output`], [`printer`]: output formats, and printing of reports
//! - [`terminal`]: prints results and errors
//! - [`arguments`]: arguments that commands share

#![allow(
    missing_docs,
    reason = "fields and variants are documented only where the name does not say enough, such as the unit, \
        what an absent value means, or the source"
)]

use std::{ffi::OsString, iter::successors, process::ExitCode};

use anyhow::Context as _;
use clap::FromArgMatches as _;

pub mod arguments;
pub mod change;
pub mod command;
pub mod commands;
pub mod completion;
pub mod configuration;
pub mod document;
pub mod file;
pub mod fleet;
pub mod output;
pub mod printer;
pub mod session;
mod signal;
pub mod terminal;
#[cfg(test)]
mod testing;
pub mod verdict;
pub mod wait;
pub mod watch;

pub(crate) use kcp_client as cluster;

use arguments::{invocation, wrong_word::add_tip};
use change::confirmation::NotConfirmed;
use cluster::reads::{etcd::MemberError, machine::NoSuchMachine};
use command::{Arguments, Command};
use commands::{
    audit, bundle, certificates, completion as completion_command, etcd, explain, exporter, generate,
    kubectl, leader_migration, lint, logs, machine, man, node, plan, pool, reconcile, rollout, rules, scale,
    status, timeline, upgrade, validate, version, webhook, why,
};
use kcp_storage::StorageError;
use session::Session;
use terminal::Terminal;
use verdict::Verdict;

/// Parses the arguments, runs the command, and returns the exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if invocation::is_completion(arguments.first().map(OsString::as_os_str)) {
        return completion::main(command::command(), arguments.into_iter().skip(1));
    }
    let command = command::command().bin_name(invocation::name(arguments.first().map(OsString::as_os_str)));
    let Arguments { global, command } = match parse(&command, &arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            // clap returns help and version as errors with exit code 0. Ignore the error of printing them, such as a closed
            // pipe.
            let _ = error.print();
            let verdict = match error.exit_code() {
                0 => Verdict::Met,
                // `pool exec` exits with 125 instead, because the command that it runs may exit with 2.
                _ if subcommands(command, &arguments) == ["pool", "exec"] => {
                    Verdict::Command(pool::EXIT_OWN_FAILURE)
                }
                _ => Verdict::Undecided,
            };
            return verdict.into();
        }
    };
    let terminal = Terminal::new(global.color);
    // Ignore the error: it means that a provider is already installed, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            terminal.error(&anyhow::Error::new(error).context("cannot start"), None);
            return Verdict::Undecided.into();
        }
    };
    let session = Session { global, terminal };
    let verdict = runtime.block_on(run(command, &session));
    // Do not drop the runtime, because the drop would wait for DNS lookups that do not return.
    runtime.shutdown_background();
    verdict.into()
}

/// Parses the command-line arguments. Fails if the arguments are invalid, or ask for the help or the version.
fn parse(command: &clap::Command, arguments: &[OsString]) -> Result<Arguments, clap::Error> {
    let parsed = command
        .clone()
        .try_get_matches_from(arguments)
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    parsed.map_err(|mut error| {
        let path = subcommands(command.clone(), arguments);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        add_tip(&mut error, command, &path, arguments);
        error
    })
}

/// The subcommands that the arguments contain, each nested in the one before, even if flags stand between them or an argument is
/// invalid.
fn subcommands(command: clap::Command, arguments: &[OsString]) -> Vec<String> {
    let matches = command.ignore_errors(true).try_get_matches_from(arguments);
    let first = matches.ok().and_then(|mut matches| matches.remove_subcommand());
    let nested = successors(first, |(_, matches)| matches.clone().remove_subcommand());
    nested.map(|(name, _)| name).collect()
}

/// Runs a command until it ends or the user interrupts it.
async fn run(command: Command, session: &Session) -> Verdict {
    let is_interruptible = !command.handles_signals();
    let outcome = tokio::select! {
        outcome = dispatch(command, session) => outcome,
        Ok(()) = tokio::signal::ctrl_c(), if is_interruptible => {
            session.terminal.print_interrupt_note();
            return Verdict::Interrupted;
        }
    };
    outcome.unwrap_or_else(|error| report_error(session, &error))
}

/// Prints an error with its hint.
pub(crate) fn report_error(session: &Session, error: &anyhow::Error) -> Verdict {
    let impersonation = session.global.connection().impersonation_flags();
    let hint = hint(error).map(|hint| with_impersonation(hint, &impersonation));
    session.terminal.error(error, hint.as_deref());
    Verdict::Undecided
}

async fn dispatch(command: Command, session: &Session) -> anyhow::Result<Verdict> {
    match command {
        Command::Status(arguments) => Box::pin(status::run(arguments, session)).await,
        Command::Why(arguments) => Box::pin(why::run(arguments, session)).await,
        Command::Timeline(arguments) => Box::pin(timeline::run(arguments, session)).await,
        Command::Explain(arguments) => explain::run(&arguments, session),
        Command::Plan(arguments) => plan::run(arguments, session).await,
        Command::Scale(arguments) => Box::pin(scale::run(arguments, session)).await,
        Command::Rollout(arguments) => Box::pin(rollout::run(arguments, session)).await,
        Command::Upgrade(arguments) => Box::pin(upgrade::run(arguments, session)).await,
        Command::Machine(arguments) => Box::pin(machine::run(arguments, session)).await,
        Command::Reconcile(arguments) => Box::pin(reconcile::run(arguments, session)).await,
        Command::Logs(arguments) => Box::pin(logs::run(arguments, session)).await,
        Command::Kubectl(arguments) => Box::pin(kubectl::run(arguments, session)).await,
        Command::Node(arguments) => Box::pin(node::run(arguments, session)).await,
        Command::Certificates(arguments) => Box::pin(certificates::run(arguments, session)).await,
        Command::Audit(arguments) => Box::pin(audit::run(&arguments, session)).await,
        Command::Validate(arguments) => Box::pin(validate::run(&arguments, session)).await,
        Command::Bundle(arguments) => Box::pin(bundle::run(&arguments, session)).await,
        Command::Exporter(arguments) => Box::pin(exporter::run(arguments, session)).await,
        Command::Etcd(arguments) => etcd::run(arguments, session).await,
        Command::LeaderMigration(arguments) => Box::pin(leader_migration::run(arguments, session)).await,
        Command::Pool(arguments) => pool::run(arguments, session).await,
        Command::Lint(arguments) => lint::run(arguments, session).await,
        Command::Rules(arguments) => rules::run(&arguments, session),
        Command::Webhook(arguments) => Box::pin(webhook::run(arguments, session)).await,
        Command::Generate(arguments) => Box::pin(generate::run(arguments, session)).await,
        Command::Completion(arguments) => completion_command::run(&arguments, command::command(), session),
        Command::Man(arguments) => man::run(&arguments, command::program()),
        Command::Version(arguments) => version::run(arguments, session).await,
        Command::Options => {
            let written = session.terminal.print(&command::options());
            written.context("cannot write to stdout")?;
            Ok(Verdict::Met)
        }
    }
}

/// The hint of the first error in the chain that has a hint.
fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        let of_machine = cause.downcast_ref::<NoSuchMachine>().map(NoSuchMachine::hint);
        let of_member = || cause.downcast_ref::<MemberError>()?.hint().map(str::to_owned);
        let of_question = || {
            let missing = cause.downcast_ref::<NotConfirmed>();
            missing.map(|_| NotConfirmed::HINT.to_owned())
        };
        of_machine
            .or_else(of_member)
            .or_else(of_question)
            .or_else(|| cause.downcast_ref::<StorageError>()?.hint())
            .or_else(|| cause.downcast_ref::<cluster::Error>()?.hint())
    })
}

/// Adds the flags for the impersonated user to a hint that tells the user to check a permission with kubectl.
fn with_impersonation(hint: String, flags: &[String]) -> String {
    if !hint.contains("kubectl auth can-i") || flags.is_empty() {
        return hint;
    }
    format!("{hint} {}", flags.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_of_a_permission_is_for_the_impersonated_user() {
        let flags = ["--as=jane", "--as-group=ops"].map(str::to_owned);
        for (hint, expected) in [
            (
                "check with: kubectl auth can-i list machines -n d",
                "check with: kubectl auth can-i list machines -n d --as=jane --as-group=ops",
            ),
            ("run the command again", "run the command again"),
        ] {
            assert_eq!(with_impersonation(hint.to_owned(), &flags), expected);
        }
    }

    #[test]
    fn an_error_of_usage_says_what_was_meant() {
        for (arguments, expected) in [
            ("lint x.yaml", "to do this, write: kubectl kcp lint -f x.yaml"),
            ("lint --recursiv -f x", "a similar argument exists: '--recursive'"),
            (
                "pool exec hosts --wiat -- ls",
                "a similar argument exists: '--wait'",
            ),
            (
                "scale edge --replicas 3 --dry-run client",
                "to do this, write: --dry-run=client",
            ),
            ("rules -o foo", ""),
            ("stauts edge", "a similar subcommand exists: 'status'"),
            ("stat", "a similar subcommand exists: 'status'"),
            ("pause edge", "to do this, write: kubectl kcp rollout pause NAME"),
            ("foo --help", ""),
            (
                "upgrade edge --version v1.35.0",
                "to do this, write: --to VERSION",
            ),
            (
                "rollout undo edge --to-revision=2",
                "to do this, write: kubectl kcp rollout undo NAME",
            ),
            ("exporter --once", ""),
            ("pool renew hosts --hive no", ""),
            (
                "pool exec hosts --foo",
                "to pass '--foo' as a value, use '-- --foo'",
            ),
            (
                "pool lease hosts paris",
                "to do this, write: --cluster-deployment paris",
            ),
            ("logs edge --component kubelet", ""),
            (
                "logs edge",
                "--component is one of: kube-apiserver, kube-controller-manager, kube-scheduler, etcd",
            ),
            (
                "completion",
                "SHELL is one of: bash, elvish, fish, powershell, zsh",
            ),
            ("rollout pause", ""),
            ("pool lease hosts --cluster-deployment a --lifetime 4h", ""),
            (
                "lint",
                "to check the objects of a cluster, write: kubectl kcp lint --cluster",
            ),
            ("status --watch=true", "to do this, write: --watch"),
            (
                "status edge -A",
                "a name is unique only in its namespace: write -n NAMESPACE instead of --all-namespaces",
            ),
            ("pool lease hosts --cluster-deployment a --generate-name b", ""),
            ("machine remediat m1", ""),
        ] {
            let words = ["kubectl-kcp"].into_iter().chain(arguments.split(' '));
            let words: Vec<OsString> = words.map(OsString::from).collect();
            let error = parse(&command::command(), &words).unwrap_err().to_string();
            let tip = error.lines().find_map(|line| line.trim().strip_prefix("tip: "));
            assert_eq!(tip.unwrap_or_default(), expected, "{arguments}: {error}");
        }
    }

    #[test]
    fn a_usage_error_of_exec_is_known_by_its_subcommand() {
        for (arguments, expected) in [
            ("pool exec", true),
            ("pool -n x exec", true),
            ("-n x pool --context=c exec", true),
            ("pool -n x exec --no-such-flag p -- true", true),
            ("pool exec p --ttl soon -- true", true),
            ("pool -n exec status --no-such-flag", false),
            ("pool status exec --no-such-flag", false),
            ("status pool exec --no-such-flag", false),
            ("pool", false),
        ] {
            let words = ["kubectl-kcp"].into_iter().chain(arguments.split(' '));
            let words: Vec<OsString> = words.map(OsString::from).collect();
            let is_exec = subcommands(command::command(), &words) == ["pool", "exec"];
            assert_eq!(is_exec, expected, "{arguments}");
        }
    }

    #[test]
    fn a_similar_verb_is_suggested_unless_it_changes_a_machine() {
        for (arguments, suggestion) in [
            ("machine remediat m1", None),
            ("machine remove m1", None),
            ("machine -n x replac m1", None),
            ("machine delet m1", None),
            ("statsu", Some("'status'")),
            ("pool leas p", Some("'lease'")),
        ] {
            let words = ["kubectl-kcp"].into_iter().chain(arguments.split(' '));
            let words: Vec<OsString> = words.map(OsString::from).collect();
            let error = parse(&command::command(), &words)
                .expect_err(arguments)
                .to_string();
            match suggestion {
                None => assert!(!error.contains("similar"), "{error}"),
                Some(verb) => assert!(error.contains("similar") && error.contains(verb), "{error}"),
            }
        }
    }

    #[test]
    fn a_usage_error_of_exec_exits_with_125() {
        let exits = |arguments: &[&str]| {
            let code = main(["kubectl-kcp"].iter().chain(arguments).map(OsString::from));
            format!("{code:?}")
        };
        let expected = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(exits(&["pool", "-n", "x", "exec"]), expected(125));
        assert_eq!(
            exits(&["pool", "-n", "x", "status", "--no-such-flag"]),
            expected(2)
        );
    }
}
