//! Chooses the candidates for the last word of a command line, and prints them as kubectl expects.

use std::fmt;

use clap::{Arg, ArgAction, Command};

use super::{
    line::{CommandLine, Word},
    meaning::Meaning,
    names::{Candidate, Names},
};
use crate::{arguments::name::NamedKind, commands::explain::Explained};

/// What the shell does with the candidates. The numbers are `ShellCompDirective` of github.com/spf13/cobra.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum Directive {
    /// Completes files if there is no candidate.
    Files = 0,
    /// Does not add a space after the only candidate, and completes no files.
    #[default]
    NoFiles = 4,
    NoSpaceNoFiles = 6,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    candidates: Vec<Candidate>,
    directive: Directive,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Candidate { value, help } in &self.candidates {
            let help = help.lines().next().unwrap_or_default().replace('\t', " ");
            match help.as_str() {
                "" => writeln!(f, "{value}")?,
                help => writeln!(f, "{value}\t{help}")?,
            }
        }
        writeln!(f, ":{}", self.directive as u8)
    }
}

/// The candidates for the last word of a line.
pub(super) fn answer(line: &CommandLine<'_>, names: &impl Names) -> Answer {
    match &line.word {
        Word::Flag { text } => flags(line, text),
        Word::Value {
            flag,
            text,
            positional,
        } => {
            let mut answer = values(flag, text, names);
            if let Some(positional) = positional {
                answer
                    .candidates
                    .extend(values(positional, text, names).candidates);
            }
            answer
        }
        Word::Argument {
            text,
            accepts_subcommand,
            positional,
        } => {
            let mut answer = match positional {
                Some(positional) => values(positional, text, names),
                None => Answer::default(),
            };
            if *accepts_subcommand {
                let subcommands = subcommands(line.command, text);
                answer.candidates.splice(0..0, subcommands);
            }
            answer
        }
    }
}

fn subcommands<'c>(command: &'c Command, text: &'c str) -> impl Iterator<Item = Candidate> + 'c {
    let shown = command.get_subcommands().filter(|child| !child.is_hide_set());
    shown
        .filter(move |child| child.get_name().starts_with(text))
        .map(|child| {
            let description = child.get_about().map(ToString::to_string);
            Candidate::new(child.get_name(), description.unwrap_or_default())
        })
}

/// The flags of the command that the line does not contain yet. Global flags are candidates although help hides them.
fn flags(line: &CommandLine<'_>, text: &str) -> Answer {
    let is_repeatable = |flag: &Arg| matches!(flag.get_action(), ArgAction::Append | ArgAction::Count);
    let offered = line.command.get_arguments().filter(|flag| {
        let is_shown = !flag.is_hide_set() || flag.is_global_set();
        is_shown && (is_repeatable(flag) || !line.given.contains(flag.get_id().as_str()))
    });
    let candidates = offered.filter_map(|flag| {
        let long = format!("--{}", flag.get_long()?);
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        long.starts_with(text).then(|| Candidate::new(long, help))
    });
    Answer {
        candidates: candidates.collect(),
        directive: Directive::NoFiles,
    }
}

/// The values of an argument that begin with the text.
fn values(argument: &Arg, text: &str, names: &impl Names) -> Answer {
    // The shell replaces the whole word, so the values before the last comma are part of each candidate.
    let (before, text) = match (argument.get_value_delimiter(), text.rfind(',')) {
        (Some(','), Some(comma)) => text.split_at(comma + 1),
        _ => ("", text),
    };
    let found = match Meaning::of(argument) {
        Meaning::File => {
            return Answer {
                directive: Directive::Files,
                ..Answer::default()
            };
        }
        Meaning::Unknown => Vec::new(),
        Meaning::Words(words) => words
            .iter()
            .map(|word| {
                let help = word.get_help().map(ToString::to_string).unwrap_or_default();
                // `jsonpath=TEMPLATE` stands for any text after the sign.
                let name = word.get_name().split_inclusive('=').next();
                Candidate::new(name.unwrap_or_default(), help)
            })
            .collect(),
        Meaning::Objects(kinds) => objects(&kinds, text, names),
        Meaning::Namespace => names.namespaces(),
        Meaning::Context => names.contexts(),
        Meaning::KubeconfigCluster => names.clusters(),
        Meaning::KubeconfigUser => names.users(),
        Meaning::Version => names.versions(),
        Meaning::Explained => Explained::all()
            .map(|explained| Candidate::new(explained.id(), explained.summary()))
            .collect(),
    };
    let candidates: Vec<Candidate> = found
        .into_iter()
        .filter(|candidate| candidate.value.starts_with(text) && is_safe(&candidate.value))
        .map(|candidate| Candidate {
            value: format!("{before}{}", candidate.value),
            ..candidate
        })
        .collect();
    let is_incomplete = |candidate: &Candidate| candidate.value.ends_with('=');
    let directive = match candidates.as_slice() {
        [only] if is_incomplete(only) => Directive::NoSpaceNoFiles,
        _ => Directive::NoFiles,
    };
    Answer {
        candidates,
        directive,
    }
}

/// Whether a value cannot break the protocol or the user's terminal. A kubeconfig may name a context with any text.
fn is_safe(value: &str) -> bool {
    !value.is_empty() && !value.chars().any(char::is_control)
}

/// The objects of a kind: as `KIND/NAME` if the user typed the kind, in the user's spelling, otherwise by name.
fn objects(kinds: &[&'static NamedKind], text: &str, names: &impl Names) -> Vec<Candidate> {
    let (typed, kind) = match text.split_once('/') {
        Some((typed, _)) => (Some(typed), kinds.iter().find(|kind| kind.is_named(typed))),
        None => (None, kinds.first()),
    };
    let Some(kind) = kind else { return Vec::new() };
    let mut found = names.objects(kind);
    if let Some(typed) = typed {
        for candidate in &mut found {
            candidate.value = format!("{typed}/{}", candidate.value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Candidate, CommandLine, Names, answer};
    use crate::{arguments::name::NamedKind, command::command};

    struct Given;

    fn named(names: &[&str]) -> Vec<Candidate> {
        names.iter().map(|name| Candidate::new(*name, "h")).collect()
    }

    impl Names for Given {
        fn objects(&self, kind: &NamedKind) -> Vec<Candidate> {
            let short = kind.short_name();
            named(&[&format!("{short}-1"), &format!("{short}-2"), "edge"])
        }

        fn namespaces(&self) -> Vec<Candidate> {
            named(&["default", "team-a"])
        }

        fn contexts(&self) -> Vec<Candidate> {
            named(&["a", "b\u{1b}[31m", "c\td"])
        }

        fn clusters(&self) -> Vec<Candidate> {
            named(&["cluster"])
        }

        fn users(&self) -> Vec<Candidate> {
            named(&["user"])
        }

        fn versions(&self) -> Vec<Candidate> {
            named(&["v1.35.2", "v1.34.9"])
        }
    }

    fn complete(line: &str) -> Vec<String> {
        let mut command = command();
        command.build();
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let last = words.pop().unwrap_or_default();
        let line = CommandLine::read(&command, &words, &last);
        let text = answer(&line, &Given).to_string();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn values_are_completed_by_what_they_mean() {
        for (line, expected) in [
            ("status ", &["kcp-1\th", "kcp-2\th", "edge\th", ":4"][..]),
            ("status ed", &["edge\th", ":4"]),
            ("status kcp/e", &["kcp/edge\th", ":4"]),
            (
                "status kubeadmcontrolplane/kcp-1",
                &["kubeadmcontrolplane/kcp-1\th", ":4"],
            ),
            ("status cluster/cl-1", &["cluster/cl-1\th", ":4"]),
            ("status pod/", &[":4"]),
            ("status edge ", &[":4"]),
            ("pool release c", &["cp-1\th", "cp-2\th", ":4"]),
            ("pool release cdc/e", &["cdc/edge\th", ":4"]),
            ("status -n ", &["default\th", "team-a\th", ":4"]),
            ("status --namespace=te", &["team-a\th", ":4"]),
            ("status --context ", &["a\th", ":4"]),
            ("status --contexts x,", &["x,a\th", ":4"]),
            (
                "upgrade edge --to v1.36.1 --via v1.34.9,",
                &["v1.34.9,v1.35.2\th", "v1.34.9,v1.34.9\th", ":4"],
            ),
            ("lint -f ", &[":0"]),
            ("pool exec hosts -- ", &[":0"]),
            ("scale edge --replicas ", &[":4"]),
            ("no-such-command ", &[":4"]),
            ("pool no-such-verb ", &[":4"]),
            (
                "status -o jsonpath=",
                &[
                    "jsonpath=\tFields of the document, such as '{.metadata.name}'",
                    ":6",
                ],
            ),
            (
                "explain replicas-even",
                &[
                    "replicas-even\twith stacked etcd, the number of Machines must be odd",
                    ":4",
                ],
            ),
            (
                "explain etcd-no-q",
                &[
                    "etcd-no-quorum\tetcd has lost its quorum, so it accepts no writes.",
                    ":4",
                ],
            ),
            (
                "pool cordon host-a --rea",
                &["--reason\tReason to show in pool status", ":4"],
            ),
        ] {
            assert_eq!(complete(line), expected, "{line:?}");
        }
    }

    #[test]
    fn subcommands_come_from_the_command_line_itself() {
        let found = complete("");
        assert!(found.contains(
            &"status\tShow the health of control planes, their Machines and etcd members".to_owned()
        ));
        assert!(found.iter().any(|line| line.starts_with("options\t")));
        assert!(!complete("machine ").iter().any(|line| line.starts_with("delete")));
        let shown = command()
            .get_subcommands()
            .filter(|child| !child.is_hide_set())
            .count();
        // clap adds `help`.
        assert_eq!(found.len(), shown + 2);
    }

    #[test]
    fn flags_are_offered_once() {
        let names = |line: &str| -> Vec<String> {
            let found = complete(line);
            found
                .iter()
                .filter_map(|line| Some(line.split_once('\t')?.0.to_owned()))
                .collect()
        };
        assert!(names("status --").contains(&"--kubeconfig".to_owned()));
        assert!(names("status -").contains(&"--watch".to_owned()));
        assert!(!names("status -w --").contains(&"--watch".to_owned()));
        assert_eq!(names("status --as-group=a --as-g"), ["--as-group"]);
        assert_eq!(names("status --kubec"), ["--kubeconfig"]);
    }
}
