//! Finds what the last word of an incomplete command line is.
//!
//! clap's parser cannot: it stops at the first error, and an incomplete command line usually has one.

use std::collections::BTreeSet;

use clap::{Arg, Command};

/// A command line up to the word that the user is typing.
#[derive(Debug)]
pub(super) struct CommandLine<'c> {
    /// The command, or its subcommand that the words name.
    pub(super) command: &'c Command,
    pub(super) word: Word<'c>,
    /// The ids of the flags that the line already contains.
    pub(super) given: BTreeSet<&'c str>,
    /// The global flags that the line contains, as `--NAME=VALUE`.
    pub(super) global_flags: Vec<String>,
}

/// The word that the user is typing.
#[derive(Debug)]
pub(super) enum Word<'c> {
    /// The name of a flag, with its dashes.
    Flag { text: String },
    /// The value of a flag; if the flag may stand without a value, a positional argument is also possible.
    Value {
        flag: &'c Arg,
        text: String,
        positional: Option<&'c Arg>,
    },
    /// A subcommand, if there may be one, or a positional argument.
    Argument {
        text: String,
        accepts_subcommand: bool,
        positional: Option<&'c Arg>,
    },
}

/// A flag whose values come next, and how many of them the line contains.
struct OpenFlag<'c> {
    flag: &'c Arg,
    values: usize,
}

impl OpenFlag<'_> {
    fn accepts_more(&self) -> bool {
        self.values < self.flag.get_num_args().unwrap_or_default().max_values()
    }

    fn needs_more(&self) -> bool {
        self.values < self.flag.get_num_args().unwrap_or_default().min_values()
    }
}

/// The state after some words of the line.
struct Reading<'c> {
    command: &'c Command,
    open: Option<OpenFlag<'c>>,
    /// Whether a `--` has ended the flags.
    is_after_dashes: bool,
    positionals: usize,
    given: BTreeSet<&'c str>,
    global_flags: Vec<String>,
}

impl<'c> CommandLine<'c> {
    /// Reads the words before the last one, then the last one. The command must be built ([`Command::build`]).
    pub(super) fn read(command: &'c Command, before: &[String], last: &str) -> Self {
        let mut reading = Reading {
            command,
            open: None,
            is_after_dashes: false,
            positionals: 0,
            given: BTreeSet::new(),
            global_flags: Vec::new(),
        };
        for word in before {
            reading.accept(word);
        }
        let word = reading.last(last);
        Self {
            command: reading.command,
            word,
            given: reading.given,
            global_flags: reading.global_flags,
        }
    }
}

impl<'c> Reading<'c> {
    fn accept(&mut self, word: &str) {
        if self.is_after_dashes {
            self.positionals += 1;
        } else if word == "--" {
            self.is_after_dashes = true;
            self.open = None;
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            let flag = long_flag(self.command, name);
            self.accept_flag(flag, value);
        } else if word.len() > 1 && word.starts_with('-') {
            self.accept_short(word);
        } else if self.accept_value(word) {
        } else if let Some(subcommand) = self.subcommand(word) {
            self.command = subcommand;
            self.positionals = 0;
        } else {
            self.positionals += 1;
        }
    }

    /// Accepts `-w`, `-A -w` as `-Aw`, `-n NAME`, `-nNAME` and `-n=NAME`.
    fn accept_short(&mut self, word: &str) {
        for (offset, letter) in word.char_indices().skip(1) {
            let flag = self
                .command
                .get_arguments()
                .find(|argument| argument.get_short() == Some(letter));
            let rest = word.get(offset + letter.len_utf8()..).unwrap_or_default();
            if flag.is_some_and(|flag| flag.get_action().takes_values()) {
                let value = rest.strip_prefix('=').unwrap_or(rest);
                return self.accept_flag(flag, (!rest.is_empty()).then_some(value));
            }
            self.accept_flag(flag, None);
        }
    }

    fn accept_flag(&mut self, flag: Option<&'c Arg>, value: Option<&str>) {
        self.open = None;
        let Some(flag) = flag else { return };
        self.given.insert(flag.get_id().as_str());
        if let Some(value) = value {
            self.note_global(flag, Some(value));
        } else if flag.get_action().takes_values() && !flag.is_require_equals_set() {
            self.open = Some(OpenFlag { flag, values: 0 });
        } else {
            self.note_global(flag, None);
        }
    }

    /// Accepts the word as a value of the flag before it. Returns whether it is one.
    fn accept_value(&mut self, word: &str) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| open.accepts_more()) else {
            return false;
        };
        open.values += 1;
        let flag = open.flag;
        self.note_global(flag, Some(word));
        true
    }

    fn note_global(&mut self, flag: &Arg, value: Option<&str>) {
        if let Some(long) = flag.get_long().filter(|_| flag.is_global_set()) {
            self.global_flags.push(match value {
                Some(value) => format!("--{long}={value}"),
                None => format!("--{long}"),
            });
        }
    }

    /// The subcommand of this name. After a positional argument, there is none.
    fn subcommand(&self, name: &str) -> Option<&'c Command> {
        let accepts_subcommand = self.positionals == 0;
        accepts_subcommand
            .then(|| self.command.find_subcommand(name))
            .flatten()
    }

    fn last(&mut self, word: &str) -> Word<'c> {
        let text = word.to_owned();
        if !self.is_after_dashes {
            let with_value = word.strip_prefix("--").and_then(|long| long.split_once('='));
            if let Some((name, value)) = with_value {
                return match long_flag(self.command, name) {
                    // The shell keeps `--NAME=` and expects only the value.
                    Some(flag) => Word::Value {
                        flag,
                        text: value.to_owned(),
                        positional: None,
                    },
                    None => Word::Flag { text },
                };
            }
            if word.starts_with('-') {
                return Word::Flag { text };
            }
        }
        match self.open.take().filter(OpenFlag::accepts_more) {
            Some(open) => Word::Value {
                flag: open.flag,
                text,
                positional: self.positional().filter(|_| !open.needs_more()),
            },
            None => Word::Argument {
                text,
                accepts_subcommand: self.positionals == 0 && !self.is_after_dashes,
                positional: self.positional(),
            },
        }
    }

    /// The positional argument that comes next. The last one may take several values.
    fn positional(&self) -> Option<&'c Arg> {
        let mut positionals: Vec<&Arg> = self.command.get_positionals().collect();
        positionals.sort_by_key(|argument| argument.get_index());
        // This argument comes only after `--`, such as the command of `pool exec`.
        let after_dashes = positionals
            .iter()
            .find(|argument| argument.is_last_set() && self.is_after_dashes);
        after_dashes
            .or_else(|| {
                let next = positionals.get(self.positionals);
                next.filter(|argument| !argument.is_last_set())
            })
            .or_else(|| {
                let last = positionals.last();
                let is_list = |argument: &Arg| argument.get_num_args().unwrap_or_default().max_values() > 1;
                last.filter(|argument| is_list(argument) && !argument.is_last_set())
            })
            .copied()
    }
}

fn long_flag<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|argument| {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        argument.get_long() == Some(name) || aliases.contains(&name)
    })
}

#[cfg(test)]
mod tests {
    use super::{CommandLine, Word};
    use crate::command::command;

    /// The last word of a line, as `KIND ARGUMENT TEXT`.
    fn last(line: &str) -> String {
        let mut command = command();
        command.build();
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let last = words.pop().unwrap_or_default();
        let line = CommandLine::read(&command, &words, &last);
        let id = |argument: Option<&clap::Arg>| match argument {
            Some(argument) => argument.get_id().to_string(),
            None => "-".to_owned(),
        };
        let word = match line.word {
            Word::Flag { text } => format!("flag {text}"),
            Word::Value {
                flag,
                text,
                positional,
            } => {
                format!("value of {} {text:?}, or {}", flag.get_id(), id(positional))
            }
            Word::Argument {
                text,
                accepts_subcommand,
                positional,
            } => {
                let subcommand = if accepts_subcommand { "subcommand or " } else { "" };
                format!("{subcommand}{} {text:?}", id(positional))
            }
        };
        format!("{}: {word}", line.command.get_name())
    }

    #[test]
    fn the_last_word_is_known_by_the_words_before_it() {
        for (line, expected) in [
            ("", "kubectl-kcp: subcommand or - \"\""),
            ("sta", "kubectl-kcp: subcommand or - \"sta\""),
            ("status ", "status: subcommand or name \"\""),
            ("-n x status ", "status: subcommand or name \"\""),
            ("status -n ", "status: value of namespace \"\", or -"),
            ("status -n=x ", "status: subcommand or name \"\""),
            ("status -nx ", "status: subcommand or name \"\""),
            ("status -Aw ", "status: subcommand or name \"\""),
            ("status --namespace=de", "status: value of namespace \"de\", or -"),
            ("status edge ", "status: - \"\""),
            ("status edge --con", "status: flag --con"),
            ("status -- ", "status: name \"\""),
            ("lint -f a ", "lint: value of files \"\", or -"),
            ("lint --cluster ", "lint: value of cluster \"\", or -"),
            ("pool release ", "release: subcommand or target \"\""),
            ("pool exec p -- ", "exec: command \"\""),
            ("pool exec p -- a b", "exec: command \"b\""),
            ("pool exec p ", "exec: - \"\""),
            ("machine replace --wait ", "replace: subcommand or name \"\""),
            ("explain --no-such-flag ", "explain: subcommand or explained \"\""),
            ("status --no-such=", "status: flag --no-such="),
        ] {
            assert_eq!(last(line), expected, "{line:?}");
        }
    }

    #[test]
    fn global_flags_are_collected() {
        let mut command = command();
        command.build();
        let words = "-n a status --context c --kubeconfig=k -v6 -w --insecure-skip-tls-verify -o json";
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let line = CommandLine::read(&command, &words, "");
        let expected = [
            "--namespace=a",
            "--context=c",
            "--kubeconfig=k",
            "--v=6",
            "--insecure-skip-tls-verify",
        ];
        assert_eq!(line.global_flags, expected);
        assert!(line.given.contains("watch") && line.given.contains("output"));
    }
}
