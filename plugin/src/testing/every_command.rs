//! The output formats of every command.

use clap::{CommandFactory as _, Parser as _, error::ErrorKind};

use crate::command::Arguments;

const COMMON: &[&str] = &[
    "json",
    "yaml",
    "name",
    "wide",
    "jsonpath={.metadata.name}",
    "jsonpath-as-json={.metadata.name}",
];

/// A command line of each command that prints a result, and the additional formats of that command.
const COMMANDS: &[(&str, &[&str])] = &[
    ("status", &[]),
    ("why edge", &[]),
    ("why -A -l team=a", &[]),
    ("timeline edge", &[]),
    ("plan edge", &[]),
    ("plan -A", &[]),
    ("scale edge --replicas 3", &[]),
    ("rollout start edge", &[]),
    ("rollout cancel edge", &[]),
    ("rollout undo edge", &[]),
    ("rollout pause edge", &[]),
    ("rollout resume edge", &[]),
    ("rollout status edge", &[]),
    ("rollout history edge", &[]),
    ("upgrade edge --to v1.35.0", &[]),
    ("upgrade edge --to v1.36.0 --via v1.35.0", &[]),
    ("machine diagnose m", &[]),
    ("machine replace m", &[]),
    ("machine prefer-delete m", &[]),
    ("machine remediate m", &[]),
    ("reconcile edge", &[]),
    ("node labels set a b=c", &[]),
    ("node join-script", &["script", "cloud-init", "ignition"]),
    ("node remove a", &[]),
    ("certificates", &[]),
    ("certificates rotate edge --ca etcd", &[]),
    ("audit edge", &[]),
    ("validate edge", &[]),
    ("bundle edge --output-file f", &[]),
    ("etcd check edge", &[]),
    ("etcd snapshot edge --output-file f", &[]),
    ("etcd snapshot -A --output-file s3://b/ --list", &[]),
    ("etcd snapshot edge --output-file s3://b/ --verify", &[]),
    ("etcd members edge", &[]),
    ("etcd defrag edge", &[]),
    ("etcd defrag -A --compact --disarm", &[]),
    ("etcd compact edge", &[]),
    ("etcd disarm edge", &[]),
    ("etcd move-leader edge", &[]),
    ("etcd remove-member edge m", &[]),
    ("etcd promote edge m", &[]),
    ("etcd recover edge", &[]),
    ("etcd recover edge --continue", &[]),
    ("etcd recover edge --drill", &[]),
    ("etcd restore edge --from f --output-file s", &[]),
    ("leader-migration check edge", &[]),
    ("leader-migration status edge", &[]),
    ("pool lease p --cluster-deployment a", &["env"]),
    (
        "pool lease p --cluster-deployment a --install-config f",
        &["env", "install-config"],
    ),
    ("pool renew p --cluster-deployment a", &[]),
    ("pool release p --cluster-deployment a", &[]),
    ("pool repair", &[]),
    ("pool status", &[]),
    ("plan -f f", &[]),
    ("lint -f f", &["text", "github", "sarif"]),
    ("rules", &["text"]),
    ("explain --all", &[]),
    ("webhook status", &[]),
    ("version", &[]),
];

fn parse<'w>(line: &'w str, more: &[&'w str]) -> Result<Arguments, clap::Error> {
    let words = ["kubectl-kcp"].into_iter().chain(line.split(' '));
    Arguments::try_parse_from(words.chain(more.iter().copied()))
}

/// The commands without a result: what they print is a text or a stream that has only one format.
const WITHOUT_OUTPUT: &[&str] = &[
    "machine delete",
    "logs",
    "kubectl",
    "exporter",
    "leader-migration generate",
    "pool cordon",
    "pool uncordon",
    "pool exec",
    "rules export",
    "webhook disable",
    "webhook enable",
    "generate anchor",
    "generate api-proxy",
    "generate join-report",
    "completion",
    "man",
    "options",
];

/// The names of the commands without subcommands, each preceded by the names of its parents.
fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, bool)>) {
    let mut children = command.get_subcommands().peekable();
    if children.peek().is_none() {
        let has_output = command
            .get_arguments()
            .any(|argument| argument.get_id() == "output");
        found.push((path.to_owned(), has_output));
    }
    for child in children {
        leaves(child, format!("{path} {}", child.get_name()).trim(), found);
    }
}

#[test]
fn each_command_has_output_formats_unless_it_is_listed() {
    let mut found = Vec::new();
    leaves(&Arguments::command(), "", &mut found);
    let plain = found.iter().filter(|(_, has_output)| !has_output);
    let plain: Vec<&str> = plain.map(|(path, _)| path.as_str()).collect();
    assert_eq!(plain, WITHOUT_OUTPUT);
}

/// The name of a command, preceded by the names of its parents.
fn with_output(command: &clap::Command, path: &str, found: &mut Vec<String>) {
    if command
        .get_arguments()
        .any(|argument| argument.get_id() == "output")
    {
        found.push(path.to_owned());
    }
    for child in command.get_subcommands() {
        with_output(child, format!("{path} {}", child.get_name()).trim(), found);
    }
}

#[test]
fn each_command_with_a_result_is_listed() {
    let mut found = Vec::new();
    with_output(&Arguments::command(), "", &mut found);
    for path in &found {
        let is_listed = COMMANDS
            .iter()
            .any(|(line, _)| line == path || line.starts_with(&format!("{path} ")));
        assert!(is_listed, "{path}");
    }
    let listed: std::collections::BTreeSet<_> = COMMANDS
        .iter()
        .filter_map(|(line, _)| {
            let is_prefix = |path: &&String| *line == **path || line.starts_with(&format!("{path} "));
            found.iter().filter(is_prefix).max_by_key(|path| path.len())
        })
        .collect();
    assert_eq!(listed.len(), found.len(), "{found:?}");
}

#[test]
fn each_command_accepts_its_formats() {
    for (line, own) in COMMANDS {
        for format in COMMON.iter().chain(*own) {
            for more in [&["-o", format][..], &["-o", format, "--no-headers"]] {
                let parsed = parse(line, more);
                assert!(parsed.is_ok(), "{line} {more:?}: {}", parsed.unwrap_err());
            }
        }
    }
}

#[test]
fn each_command_refuses_other_formats_and_lists_its_own() {
    for (line, own) in COMMANDS {
        for format in [
            "xml",
            "text",
            "github",
            "sarif",
            "env",
            "install-config",
            "go-template={{.a}}",
            "JSON",
        ] {
            if own.contains(&format) || (format == "install-config" && own.contains(&"env")) {
                continue;
            }
            let error = parse(line, &["-o", format]).expect_err(line);
            assert_eq!((error.kind(), error.exit_code()), (ErrorKind::ValueValidation, 2));
            let text = error.to_string();
            let expected = format!(
                "unable to match a printer suitable for the output format \"{format}\", allowed formats are: "
            );
            let (_, allowed) = text.split_once(&expected).expect(&text);
            let allowed: Vec<_> = allowed.lines().next().unwrap_or_default().split(',').collect();
            for format in COMMON.iter().chain(*own) {
                let name = format.split('=').next().unwrap_or_default();
                assert!(allowed.contains(&name), "{line} {name}: {text}");
            }
        }
    }
}

#[test]
fn a_template_that_cannot_be_read_is_an_error_of_usage() {
    for (format, message) in [
        ("jsonpath={.a", "error parsing jsonpath {.a, unclosed action"),
        ("jsonpath=", "template format specified but no template given"),
    ] {
        for (line, _) in COMMANDS {
            let error = parse(line, &["-o", format]).expect_err(line);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(message), "{line}: {error}");
        }
    }
}

/// Commands that list Kubernetes objects accept a label selector. Commands that take a name do not.
#[test]
fn lists_take_a_selector() {
    for line in [
        "status",
        "status -A",
        "why",
        "certificates",
        "pool status",
        "pool status -A",
    ] {
        assert!(parse(line, &["-l", "team=a"]).is_ok(), "{line}");
    }
    for line in ["status edge", "why edge", "certificates edge", "pool status p"] {
        let error = parse(line, &["-l", "team=a"]).expect_err(line);
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{line}");
    }
}
