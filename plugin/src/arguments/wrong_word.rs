//! The command that was meant by a word which no command has, for words that people know from kubectl, etcdctl and boskos.

use crate::arguments::parse_duration;

/// A word where it is often used, and the arguments that were meant.
struct WrongWord {
    /// The subcommands before the word; empty for the first word.
    after: &'static str,
    words: &'static [&'static str],
    meant: &'static str,
}

const WRONG_WORDS: &[WrongWord] = &[
    WrongWord {
        after: "",
        words: &[
            "get", "list", "ls", "show", "describe", "health", "check", "doctor", "top",
        ],
        meant: "kubectl kcp status",
    },
    WrongWord {
        after: "",
        words: &["diagnose", "debug"],
        meant: "kubectl kcp why",
    },
    WrongWord {
        after: "",
        words: &["events", "history"],
        meant: "kubectl kcp timeline NAME",
    },
    WrongWord {
        after: "",
        words: &["diff", "dry-run"],
        meant: "kubectl kcp plan NAME",
    },
    WrongWord {
        after: "",
        words: &["restart"],
        meant: "kubectl kcp rollout start NAME",
    },
    WrongWord {
        after: "",
        words: &["undo", "rollback"],
        meant: "kubectl kcp rollout undo NAME",
    },
    WrongWord {
        after: "",
        words: &["members", "member"],
        meant: "kubectl kcp etcd members NAME",
    },
    WrongWord {
        after: "",
        words: &["snapshot", "backup"],
        meant: "kubectl kcp etcd snapshot NAME --output-file FILE",
    },
    WrongWord {
        after: "",
        words: &["restore"],
        meant: "kubectl kcp etcd restore NAME --from FILE --output-file SCRIPT",
    },
    WrongWord {
        after: "",
        words: &["recover"],
        meant: "kubectl kcp etcd recover NAME",
    },
    WrongWord {
        after: "",
        words: &["replace"],
        meant: "kubectl kcp machine replace MACHINE",
    },
    WrongWord {
        after: "",
        words: &["join"],
        meant: "kubectl kcp node join-script",
    },
    WrongWord {
        after: "",
        words: &["remove"],
        meant: "kubectl kcp node remove NODE",
    },
    WrongWord {
        after: "",
        words: &["lease", "acquire", "claim"],
        meant: "kubectl kcp pool lease POOL --cluster-deployment NAME",
    },
    WrongWord {
        after: "",
        words: &["release"],
        meant: "kubectl kcp pool release POOL --cluster-deployment NAME",
    },
    WrongWord {
        after: "",
        words: &["exec", "run"],
        meant: "kubectl kcp pool exec POOL -- COMMAND",
    },
    WrongWord {
        after: "",
        words: &["pools"],
        meant: "kubectl kcp pool status",
    },
    WrongWord {
        after: "",
        words: &["certs", "cert"],
        meant: "kubectl kcp certificates NAME",
    },
    WrongWord {
        after: "",
        words: &["metrics"],
        meant: "kubectl kcp exporter",
    },
    WrongWord {
        after: "etcd",
        words: &["status", "list", "get", "health", "endpoint", "member"],
        meant: "kubectl kcp etcd members NAME",
    },
    WrongWord {
        after: "etcd",
        words: &["backup", "save"],
        meant: "kubectl kcp etcd snapshot NAME --output-file FILE",
    },
    WrongWord {
        after: "etcd",
        words: &["alarm", "alarms"],
        meant: "kubectl kcp etcd disarm NAME",
    },
    WrongWord {
        after: "pool",
        words: &["list", "ls", "get", "show", "describe", "queue"],
        meant: "kubectl kcp pool status",
    },
    WrongWord {
        after: "pool",
        words: &["acquire", "claim", "checkout"],
        meant: "kubectl kcp pool lease POOL --cluster-deployment NAME",
    },
    WrongWord {
        after: "pool",
        words: &["return", "free", "checkin"],
        meant: "kubectl kcp pool release POOL --cluster-deployment NAME",
    },
    WrongWord {
        after: "pool",
        words: &["run"],
        meant: "kubectl kcp pool exec POOL -- COMMAND",
    },
    WrongWord {
        after: "pool",
        words: &["heartbeat", "extend"],
        meant: "kubectl kcp pool renew POOL --cluster-deployment NAME",
    },
    WrongWord {
        after: "rollout",
        words: &["rollback", "revert"],
        meant: "kubectl kcp rollout undo NAME",
    },
    WrongWord {
        after: "rollout",
        words: &["stop", "abort"],
        meant: "kubectl kcp rollout cancel NAME",
    },
    WrongWord {
        after: "webhook",
        words: &["off", "stop"],
        meant: "kubectl kcp webhook disable --for=1h --reason REASON",
    },
    WrongWord {
        after: "webhook",
        words: &["on", "start"],
        meant: "kubectl kcp webhook enable",
    },
];

/// What was probably meant by a word that a command does not accept; `None` if nothing is known. `path` are the subcommands before
/// the word, separated by spaces, and `previous` is the argument before it.
pub fn meant(path: &str, previous: Option<&str>, word: &str) -> Option<String> {
    match previous {
        Some("--wait") if parse_duration(word).is_ok() => return Some(format!("--wait={word}")),
        Some("--dry-run") if matches!(word, "client" | "server") => return Some(format!("--dry-run={word}")),
        Some(kind @ ("cluster" | "kcp" | "machine")) if path.split(' ').next_back() != Some(kind) => {
            return Some(format!("{kind}/{word}"));
        }
        _ => {}
    }
    let known = WRONG_WORDS
        .iter()
        .find(|known| known.after == path && known.words.contains(&word));
    if let Some(known) = known {
        return Some(known.meant.to_owned());
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
        "pool exec" => Some(format!("-- {word}")),
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
            ("status", "cluster edge", Some("cluster/edge")),
            ("machine", "machine m1", None),
            ("scale", "--wait 5m", Some("--wait=5m")),
            ("etcd snapshot", "edge x.db", Some("--output-file x.db")),
            ("pool exec", "hosts ls", Some("-- ls")),
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
        for known in WRONG_WORDS {
            let words = known.after.split(' ').filter(|word| !word.is_empty());
            let parent = words.fold(command(), |command, word| {
                command.find_subcommand(word).cloned().expect(word)
            });
            for word in known.words {
                assert!(parent.find_subcommand(word).is_none(), "{} {word}", known.after);
            }
        }
    }
}
