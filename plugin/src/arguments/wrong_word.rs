//! What was meant by an error of usage, such as a word or flag that people know from kubectl, clusterctl, etcdctl or boskos.

use std::ffi::OsString;

use clap::{
    Command,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};
use kcp_rules::topics::misspelled;

use crate::arguments::parse_duration;

/// The words where they are often used, and the arguments that were meant: the subcommands before the words (empty for the first
/// word), the words, and what to write instead.
const WRONG_WORDS: &[(&str, &[&str], &str)] = &[
    (
        "",
        &[
            "get", "list", "ls", "show", "describe", "health", "check", "doctor", "top",
        ],
        "kubectl kcp status",
    ),
    ("", &["debug"], "kubectl kcp why"),
    ("", &["diagnose"], "kubectl kcp machine diagnose MACHINE"),
    ("", &["events", "history"], "kubectl kcp timeline NAME"),
    ("", &["diff", "dry-run"], "kubectl kcp plan NAME"),
    ("", &["restart"], "kubectl kcp rollout start NAME"),
    ("", &["undo", "rollback"], "kubectl kcp rollout undo NAME"),
    ("", &["members", "member"], "kubectl kcp etcd members NAME"),
    (
        "",
        &["snapshot", "backup"],
        "kubectl kcp etcd snapshot NAME --output-file FILE",
    ),
    (
        "",
        &["restore"],
        "kubectl kcp etcd restore NAME --from FILE --output-file SCRIPT",
    ),
    ("", &["recover"], "kubectl kcp etcd recover NAME"),
    ("", &["replace"], "kubectl kcp machine replace MACHINE"),
    ("", &["join"], "kubectl kcp node join-script"),
    ("", &["remove"], "kubectl kcp node remove NODE"),
    (
        "",
        &["lease", "acquire", "claim"],
        "kubectl kcp pool lease POOL --cluster-deployment NAME",
    ),
    (
        "",
        &["release"],
        "kubectl kcp pool release POOL --cluster-deployment NAME",
    ),
    ("", &["exec", "run"], "kubectl kcp pool exec POOL -- COMMAND"),
    ("", &["pools"], "kubectl kcp pool status"),
    ("", &["certs", "cert"], "kubectl kcp certificates NAME"),
    ("", &["metrics"], "kubectl kcp exporter"),
    ("", &["machines"], "kubectl kcp status NAME"),
    ("", &["apply", "create"], "kubectl apply -f FILE"),
    ("", &["edit", "patch"], "kubectl edit kubeadmcontrolplane NAME"),
    ("", &["pause"], "kubectl kcp rollout pause NAME"),
    ("", &["resume", "unpause"], "kubectl kcp rollout resume NAME"),
    ("", &["cancel", "abort"], "kubectl kcp rollout cancel NAME"),
    ("", &["wait"], "kubectl kcp rollout status NAME"),
    ("", &["defrag"], "kubectl kcp etcd defrag NAME"),
    ("", &["cordon"], "kubectl kcp kubectl NAME -- cordon NODE"),
    ("", &["uncordon"], "kubectl kcp kubectl NAME -- uncordon NODE"),
    ("", &["drain"], "kubectl kcp kubectl NAME -- drain NODE"),
    (
        "",
        &["disable"],
        "kubectl kcp webhook disable --for=1h --reason REASON",
    ),
    ("", &["enable"], "kubectl kcp webhook enable"),
    (
        "etcd",
        &["status", "list", "get", "health", "endpoint", "member"],
        "kubectl kcp etcd members NAME",
    ),
    (
        "etcd",
        &["backup", "save"],
        "kubectl kcp etcd snapshot NAME --output-file FILE",
    ),
    ("etcd", &["alarm", "alarms"], "kubectl kcp etcd disarm NAME"),
    (
        "pool",
        &["list", "ls", "get", "show", "describe", "queue"],
        "kubectl kcp pool status",
    ),
    (
        "pool",
        &["acquire", "claim", "checkout"],
        "kubectl kcp pool lease POOL --cluster-deployment NAME",
    ),
    (
        "pool",
        &["return", "free", "checkin"],
        "kubectl kcp pool release POOL --cluster-deployment NAME",
    ),
    ("pool", &["run"], "kubectl kcp pool exec POOL -- COMMAND"),
    (
        "pool",
        &["heartbeat", "extend"],
        "kubectl kcp pool renew POOL --cluster-deployment NAME",
    ),
    ("pool", &["reset"], "kubectl kcp pool repair POOL"),
    (
        "rollout",
        &["rollback", "revert"],
        "kubectl kcp rollout undo NAME",
    ),
    ("rollout", &["stop", "abort"], "kubectl kcp rollout cancel NAME"),
    ("rollout", &["wait", "watch"], "kubectl kcp rollout status NAME"),
    (
        "webhook",
        &["off", "stop"],
        "kubectl kcp webhook disable --for=1h --reason REASON",
    ),
    ("webhook", &["on", "start"], "kubectl kcp webhook enable"),
    ("plan", &["--version", "--kubernetes-version"], "--to VERSION"),
    ("upgrade", &["--version", "--kubernetes-version"], "--to VERSION"),
    (
        "machine",
        &["list", "ls", "get", "show", "describe"],
        "kubectl kcp status NAME",
    ),
    ("node", &["drain"], "kubectl kcp kubectl NAME -- drain NODE"),
    ("node", &["cordon"], "kubectl kcp kubectl NAME -- cordon NODE"),
    (
        "generate",
        &["join-script", "join"],
        "kubectl kcp node join-script",
    ),
    (
        "generate",
        &["policies", "policy"],
        "kubectl kcp rules export --format vap",
    ),
    (
        "rollout undo",
        &["--to-revision", "--revision"],
        "kubectl kcp rollout undo NAME",
    ),
    (
        "rollout history",
        &["--revision"],
        "kubectl kcp rollout history NAME",
    ),
    ("logs", &["-c", "--container"], "--component COMPONENT"),
    (
        "lint",
        &["-k", "--kustomize"],
        "kustomize build FOLDER | kubectl kcp lint -f -",
    ),
    (
        "pool lease",
        &["--owner", "--holder", "--name"],
        "--cluster-deployment NAME",
    ),
    (
        "pool renew",
        &["--owner", "--holder", "--name"],
        "--cluster-deployment NAME",
    ),
    (
        "pool release",
        &["--owner", "--holder", "--name"],
        "--cluster-deployment NAME",
    ),
    (
        "pool release",
        &["--all"],
        "kubectl kcp pool release POOL --cluster-deployment NAME",
    ),
    ("pool repair", &["--dry-run"], "kubectl kcp pool repair POOL"),
];

/// The commands that pass arguments after `--` to another program.
const RUNNERS: [&str; 2] = ["pool exec", "kubectl"];

/// Adds to an error of usage what was probably meant, and drops suggestions of clap that are not close to what was written. `path`
/// are the subcommands.
pub fn add_tip(error: &mut clap::Error, command: &Command, path: &[&str], arguments: &[OsString]) {
    // Each verb of `machine` changes a Machine, so clap must not suggest a verb that only looks similar.
    if path.first() == Some(&"machine") {
        error.remove(ContextKind::SuggestedSubcommand);
    }
    for kind in [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ] {
        keep_near(error, kind);
    }
    let joined = path.join(" ");
    let tips = match tip(error, command, path, arguments) {
        Some(tip) => {
            error.remove(ContextKind::SuggestedSubcommand);
            error.remove(ContextKind::SuggestedArg);
            vec![StyledStr::from(tip)]
        }
        None => match error.remove(ContextKind::Suggested) {
            // Without this, clap suggests `--` before any flag that a command with an argument does not know.
            Some(ContextValue::StyledStrs(mut tips)) => {
                tips.retain(|tip| RUNNERS.contains(&&*joined) || !tip.to_string().starts_with("to pass "));
                tips
            }
            _ => Vec::new(),
        },
    };
    error.remove(ContextKind::Suggested);
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// The texts of a part of an error.
fn texts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

/// The word that the command does not accept.
fn wrong_word(error: &clap::Error) -> Option<String> {
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidValue => ContextKind::InvalidValue,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return None,
    };
    texts(error, kind).into_iter().next()
}

/// Keeps the suggestions of clap that are close to the wrong word: the same but for a typo, or one is the beginning of the other.
fn keep_near(error: &mut clap::Error, kind: ContextKind) {
    let (Some(written), mut suggested) = (wrong_word(error), texts(error, kind)) else {
        return;
    };
    let written = written.trim_start_matches('-');
    let is_beginning =
        |name: &str| written.len() > 2 && (name.starts_with(written) || written.starts_with(name));
    suggested.retain(|suggested| {
        let name = suggested.trim_start_matches('-');
        is_beginning(name) || misspelled(written, [name]).is_some()
    });
    error.remove(kind);
    if !suggested.is_empty() {
        error.insert(kind, ContextValue::Strings(suggested));
    }
}

fn tip(error: &clap::Error, command: &Command, path: &[&str], arguments: &[OsString]) -> Option<String> {
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
            let word = wrong_word(error)?;
            let index = arguments.iter().position(|argument| *argument == *word);
            let previous = index.and_then(|index| arguments.get(index.checked_sub(1)?)?.to_str());
            let meant = meant(&path.join(" "), previous, &word)?;
            Some(format!("to do this, write: {meant}"))
        }
        // kubectl accepts a value after each of its flags.
        ErrorKind::TooManyValues if texts(error, ContextKind::InvalidValue) == ["true"] => {
            let flag = texts(error, ContextKind::InvalidArg).into_iter().next()?;
            Some(format!("to do this, write: {flag}"))
        }
        ErrorKind::ArgumentConflict => {
            let all = [ContextKind::InvalidArg, ContextKind::PriorArg].map(|kind| texts(error, kind));
            let all: Vec<&str> = all.iter().flatten().map(String::as_str).collect();
            let is_name = |argument: &&str| argument.starts_with(['[', '<']);
            let is_conflict = all.contains(&"--all-namespaces") && all.iter().any(is_name);
            is_conflict.then(|| {
                "a name is unique only in its namespace: write -n NAMESPACE instead of --all-namespaces"
                    .to_owned()
            })
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = texts(error, ContextKind::InvalidArg);
            if path == ["lint"] {
                return Some(
                    "to check the objects of a cluster, write: kubectl kcp lint --cluster".to_owned(),
                );
            }
            let command = path
                .iter()
                .try_fold(command, |command, name| command.find_subcommand(name))?;
            missing.iter().find_map(|missing| choices(command, missing))
        }
        _ => None,
    }
}

/// The values of a missing argument, if it accepts only certain ones.
fn choices(command: &Command, missing: &str) -> Option<String> {
    let name = missing.split(' ').next()?.trim_matches(['<', '>', '[', ']']);
    let is_missing = |argument: &&clap::Arg| match argument.get_long() {
        Some(long) => name.strip_prefix("--") == Some(long),
        None => argument
            .get_value_names()
            .into_iter()
            .flatten()
            .any(|value| value == name),
    };
    let argument = command.get_arguments().find(is_missing)?;
    // clap lists true and false for a flag, which takes no value.
    if !argument.get_action().takes_values() {
        return None;
    }
    let values = argument.get_possible_values();
    let values: Vec<&str> = values
        .iter()
        .map(clap::builder::PossibleValue::get_name)
        .collect();
    (!values.is_empty()).then(|| format!("{name} is one of: {}", values.join(", ")))
}

/// What was probably meant by a word that a command does not accept; `None` if nothing is known. `path` are the subcommands before
/// the word, separated by spaces, and `previous` is the argument before it.
fn meant(path: &str, previous: Option<&str>, word: &str) -> Option<String> {
    let known = WRONG_WORDS
        .iter()
        .find(|(after, words, _)| *after == path && words.contains(&word));
    if let Some((.., meant)) = known {
        return Some((*meant).to_owned());
    }
    if word.starts_with('-') {
        return None;
    }
    match previous {
        Some("--wait") if parse_duration(word).is_ok() => return Some(format!("--wait={word}")),
        Some("--dry-run") if matches!(word, "client" | "server") => return Some(format!("--dry-run={word}")),
        Some(kind @ ("cluster" | "kcp" | "machine")) if path.split(' ').next_back() != Some(kind) => {
            return Some(format!("{kind}/{word}"));
        }
        Some("plan") if path == "upgrade" => return Some(format!("kubectl kcp plan {word} --to VERSION")),
        Some("list") if path == "etcd snapshot" => {
            return Some("kubectl kcp etcd snapshot NAME --output-file FOLDER --list".to_owned());
        }
        Some("verify") if path == "etcd snapshot" => {
            return Some("kubectl kcp etcd snapshot NAME --output-file FOLDER --verify".to_owned());
        }
        Some("save") if path == "etcd snapshot" => {
            return Some(format!("kubectl kcp etcd snapshot {word} --output-file FILE"));
        }
        _ => {}
    }
    let is_version = word
        .trim_start_matches('v')
        .starts_with(|c: char| c.is_ascii_digit())
        && word.contains('.');
    match path {
        "upgrade" if is_version => {
            let version = word;
            Some(format!("kubectl kcp upgrade NAME --to {version}"))
        }
        "scale" if word.parse::<u32>().is_ok() => Some(format!("kubectl kcp scale NAME --replicas={word}")),
        "etcd snapshot" => Some(format!("--output-file {word}")),
        "pool exec" | "kubectl" => Some(format!("-- {word}")),
        "pool lease" | "pool renew" | "pool release" if !matches!(word, "true" | "false") => {
            Some(format!("--cluster-deployment {word}"))
        }
        "lint" => Some(format!("kubectl kcp lint -f {word}")),
        "rules" => Some(format!("kubectl kcp explain {word}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{WRONG_WORDS, meant};
    use crate::command::command;

    #[test]
    fn a_wrong_word_leads_to_the_command_that_was_meant() {
        for (path, words, expected) in [
            ("", "get", Some("kubectl kcp status")),
            ("", "statsu", None),
            ("etcd", "status", Some("kubectl kcp etcd members NAME")),
            ("upgrade", "1.34.2", Some("kubectl kcp upgrade NAME --to 1.34.2")),
            (
                "upgrade",
                "v1.34.2",
                Some("kubectl kcp upgrade NAME --to v1.34.2"),
            ),
            ("upgrade", "edge2", None),
            ("upgrade", "plan edge", Some("kubectl kcp plan edge --to VERSION")),
            ("upgrade", "edge --version", Some("--to VERSION")),
            ("status", "kcp --version", None),
            ("status", "cluster edge", Some("cluster/edge")),
            ("machine", "machine m1", None),
            ("scale", "--wait 5m", Some("--wait=5m")),
            ("etcd snapshot", "edge x.db", Some("--output-file x.db")),
            (
                "etcd snapshot",
                "verify x.db",
                Some("kubectl kcp etcd snapshot NAME --output-file FOLDER --verify"),
            ),
            (
                "etcd snapshot",
                "save edge",
                Some("kubectl kcp etcd snapshot edge --output-file FILE"),
            ),
            ("pool exec", "hosts ls", Some("-- ls")),
            ("kubectl", "edge get", Some("-- get")),
            ("pool lease", "hosts paris", Some("--cluster-deployment paris")),
            ("scale", "3", Some("kubectl kcp scale NAME --replicas=3")),
            ("lint", "x.yaml", Some("kubectl kcp lint -f x.yaml")),
            (
                "rules",
                "replicas-even",
                Some("kubectl kcp explain replicas-even"),
            ),
        ] {
            let (previous, word) = match words.split_once(' ') {
                Some((previous, word)) => (Some(previous), word),
                None => (None, words),
            };
            assert_eq!(meant(path, previous, word).as_deref(), expected, "{path} {words}");
        }
    }

    /// `tests/commands_in_messages.rs` parses the commands that are meant.
    #[test]
    fn the_wrong_words_are_no_commands() {
        for (after, wrong, _) in WRONG_WORDS {
            let words = after.split(' ').filter(|word| !word.is_empty());
            let parent = words.fold(command(), |command, word| {
                command.find_subcommand(word).cloned().expect(word)
            });
            let flags: Vec<String> = parent
                .get_arguments()
                .filter_map(|argument| argument.get_long().map(|long| format!("--{long}")))
                .collect();
            for word in *wrong {
                assert!(parent.find_subcommand(word).is_none(), "{after} {word}");
                assert!(!flags.iter().any(|flag| flag == word), "{after} {word}");
            }
        }
    }
}
