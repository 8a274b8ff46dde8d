//! The manual page of each command, from the definition of the command line.

use clap::{Arg, Command, builder::PossibleValue};

use crate::commands::man::roff::{Roff, bold, escape, italic};

/// The program, whose name begins the names of all pages.
const PROGRAM: &str = "kubectl-kcp";

/// The book, to which the page of the program refers.
const BOOK: &str = "https://kubectl-kcp.dev";

/// A manual page: the name of its file, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) file: String,
    pub(super) text: String,
}

/// The pages of the program and of all its commands. `date` is the date on the pages, `YYYY-MM-DD`; it may be empty.
pub(super) fn pages(program: Command, date: &str) -> Vec<Page> {
    let mut program = program.bin_name("kubectl kcp");
    program.build();
    let mut pages = Vec::new();
    add(&program, &[], date, &mut pages);
    pages
}

/// Adds the page of a command, and those of its subcommands. `parents` are the names of the pages above it.
fn add(command: &Command, parents: &[String], date: &str, pages: &mut Vec<Page>) {
    let name = name(parents, command);
    pages.push(Page {
        file: format!("{name}.1"),
        text: text(command, &name, parents, date),
    });
    let parents = [parents, &[name]].concat();
    for below in subcommands(command) {
        add(below, &parents, date, pages);
    }
}

/// The name of the page of a command.
fn name(parents: &[String], command: &Command) -> String {
    match parents.last() {
        Some(parent) => format!("{parent}-{}", command.get_name()),
        None => PROGRAM.to_owned(),
    }
}

fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    // clap adds the command `help`.
    command
        .get_subcommands()
        .filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

fn text(command: &Command, name: &str, parents: &[String], date: &str) -> String {
    let version = format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION"));
    let mut page = Roff::new(name, date, &version, "Commands of kubectl kcp");
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    page.section("NAME");
    page.paragraph(&format!("{} \\- {}", escape(name), escape(&about)));
    page.section("SYNOPSIS");
    for usage in usages(command) {
        page.paragraph(&usage);
    }
    let after = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let after = blocks(&after);
    page.section("DESCRIPTION");
    description(&mut page, command, &about, &after);
    arguments(&mut page, command, parents.is_empty());
    let mut below = subcommands(command).peekable();
    if below.peek().is_some() {
        page.section("COMMANDS");
    }
    for command in below {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let page_name = format!("{name}-{}", command.get_name());
        page.item(&format!("{}(1)", bold(&page_name)), &escape(&about));
    }
    for (title, section) in [("Exit codes:", "EXIT STATUS"), ("Examples:", "EXAMPLES")] {
        let blocks = after.iter().filter(|block| block.title == Some(title));
        for block in blocks {
            page.section(section);
            add_parts(&mut page, block);
        }
    }
    page.section("SEE ALSO");
    if parents.is_empty() {
        page.references(&["kubectl".to_owned()]);
        page.paragraph(&escape(&format!("The book: {BOOK}")));
    } else {
        page.references(parents);
    }
    page.finish()
}

/// The lines of the usage, with the name of the command in bold.
fn usages(command: &Command) -> Vec<String> {
    let usage = command.clone().render_usage().to_string();
    let name = command.get_bin_name().unwrap_or(PROGRAM);
    let lines = usage.lines().map(|line| line.trim_start_matches("Usage:").trim());
    lines
        .filter(|line| !line.is_empty())
        .map(|line| match line.strip_prefix(name) {
            Some(rest) => bold(name) + &escape(rest),
            None => escape(line),
        })
        .collect()
}

fn description(page: &mut Roff, command: &Command, about: &str, after: &[Block<'_>]) {
    let long = command.get_long_about().map(ToString::to_string);
    for paragraph in long.as_deref().unwrap_or(about).split("\n\n") {
        let end = if paragraph.ends_with(['.', ':', ')']) {
            ""
        } else {
            "."
        };
        page.paragraph(&escape(&format!("{paragraph}{end}")));
    }
    for block in after.iter().filter(|block| block.title.is_none()) {
        add_parts(page, block);
    }
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    if !aliases.is_empty() {
        page.paragraph(&escape(&format!(
            "Another name of the command: {}.",
            aliases.join(", ")
        )));
    }
}

/// Adds the arguments and flags of a command. The page of the program has the global flags.
fn arguments(page: &mut Roff, command: &Command, is_program: bool) {
    let own = |argument: &&Arg| {
        // clap adds the flag `help` to each command.
        argument.get_id() != "help" && !argument.is_hide_set() && !argument.is_global_set()
    };
    let positionals: Vec<&Arg> = command.get_positionals().filter(own).collect();
    if !positionals.is_empty() {
        page.section("ARGUMENTS");
        for argument in positionals {
            add_argument(page, argument);
        }
    }
    page.section("OPTIONS");
    let is_global = |argument: &&Arg| is_program && argument.is_global_set();
    let flags = command
        .get_arguments()
        .filter(|argument| !argument.is_positional())
        .filter(|argument| own(argument) || is_global(argument));
    for argument in flags {
        add_argument(page, argument);
    }
    if !is_program {
        page.paragraph(&format!(
            "The options of {}(1) can be passed, too.",
            bold(PROGRAM)
        ));
    }
}

fn add_argument(page: &mut Roff, argument: &Arg) {
    let help = argument.get_long_help().or(argument.get_help());
    let mut help = help.map(ToString::to_string).unwrap_or_default();
    let takes_values = argument
        .get_num_args()
        .is_some_and(|number| number.takes_values());
    let defaults: Vec<_> = argument
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    if takes_values && !argument.is_hide_default_value_set() && !defaults.is_empty() {
        help = format!("{help} [default: {}]", defaults.join(" "));
    }
    let words: Vec<PossibleValue> = argument
        .get_possible_values()
        .into_iter()
        .filter(|word| takes_values && !word.is_hide_set())
        .collect();
    let is_described = words.iter().any(|word| word.get_help().is_some());
    if !words.is_empty() && !is_described {
        let names: Vec<&str> = words.iter().map(PossibleValue::get_name).collect();
        help = format!("{help} [one of: {}]", names.join(", "));
    }
    page.item(&tag(argument), &escape(&help));
    if is_described {
        page.indented(|page| {
            for word in &words {
                let help = word.get_help().map(ToString::to_string).unwrap_or_default();
                page.item(&bold(word.get_name()), &escape(&help));
            }
        });
    }
}

/// The names of a flag and of its value, or the name of a positional argument.
fn tag(argument: &Arg) -> String {
    let names: Vec<String> = [
        argument.get_short().map(|short| bold(&format!("-{short}"))),
        argument.get_long().map(|long| bold(&format!("--{long}"))),
    ]
    .into_iter()
    .flatten()
    .collect();
    let number = argument.get_num_args().unwrap_or_default();
    let value = value(argument, number.max_values());
    if argument.is_positional() {
        return value;
    }
    let value = match (number.takes_values(), number.min_values()) {
        (false, _) => String::new(),
        (true, 0) => format!("[={value}]"),
        (true, _) => format!("={value}"),
    };
    names.join(", ") + &value
}

/// The names of the values of an argument. Dots follow if there may be more values than names.
fn value(argument: &Arg, max: usize) -> String {
    let names: Vec<String> = match argument.get_value_names() {
        Some(names) => names.iter().map(|name| italic(name)).collect(),
        None => vec![italic(&argument.get_id().as_str().to_uppercase())],
    };
    let dots = if max > names.len() { "..." } else { "" };
    names.join(" ") + dots
}

/// A part of the text after the flags in the help of a command, between two empty lines.
#[derive(Debug, PartialEq, Eq)]
struct Block<'t> {
    /// The first line, if it is the title of a section of the page.
    title: Option<&'t str>,
    parts: Vec<Part<'t>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Part<'t> {
    /// Lines of running text.
    Text(Vec<&'t str>),
    /// Lines that were indented, such as examples.
    Verbatim(Vec<&'t str>),
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let texts = text.split("\n\n").filter(|block| !block.trim().is_empty());
    texts.map(Block::new).collect()
}

impl<'t> Block<'t> {
    fn new(text: &'t str) -> Self {
        let mut lines = text.lines().peekable();
        let title = lines.next_if(|line| ["Examples:", "Exit codes:"].contains(line));
        let mut parts: Vec<Part<'t>> = Vec::new();
        for line in lines {
            match (line.strip_prefix("  "), parts.last_mut()) {
                (Some(line), Some(Part::Verbatim(lines))) => lines.push(line),
                (Some(line), _) => parts.push(Part::Verbatim(vec![line])),
                (None, Some(Part::Text(lines))) => lines.push(line),
                (None, _) => parts.push(Part::Text(vec![line])),
            }
        }
        Self { title, parts }
    }
}

fn add_parts(page: &mut Roff, block: &Block<'_>) {
    for part in &block.parts {
        match part {
            Part::Text(lines) => page.paragraph(&escape(&lines.join(" "))),
            Part::Verbatim(lines) => page.verbatim(lines.iter().copied()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Command;

    use super::{Block, Page, Part, blocks, pages, subcommands};
    use crate::command::program;

    const DATE: &str = "2026-11-25";

    fn all() -> Vec<Page> {
        pages(program(), DATE)
    }

    fn count(command: &Command) -> usize {
        1 + subcommands(command).map(count).sum::<usize>()
    }

    #[test]
    fn every_command_has_a_page() {
        let pages = all();
        let names: BTreeSet<&str> = pages.iter().map(|page| page.file.as_str()).collect();
        assert_eq!(pages.len(), count(&program()));
        assert_eq!(names.len(), pages.len());
        for name in [
            "kubectl-kcp.1",
            "kubectl-kcp-options.1",
            "kubectl-kcp-pool-lease.1",
        ] {
            assert!(names.contains(name), "{names:?}");
        }
        assert!(!names.contains("kubectl-kcp-machine-delete.1"), "it is hidden");
    }

    /// What mandoc and groff warn about.
    #[test]
    fn every_page_is_valid() {
        let macros = [".TH", ".SH", ".PP", ".TP", ".RS", ".RE", ".nf", ".fi", ".BR"];
        for Page { file, text } in all() {
            assert!(text.starts_with(".TH KUBECTL\\-KCP"), "{file}");
            let (mut is_filled, mut before) = (true, "");
            for line in text.lines() {
                let begin = line.split(' ').next().unwrap_or_default();
                assert!(
                    !line.starts_with('.') || macros.contains(&begin),
                    "{file}: {line}"
                );
                assert!(
                    !line.is_empty() && line.trim_end() == line,
                    "{file}: after {before}"
                );
                assert!(line.is_ascii() && !line.starts_with('\''), "{file}: {line}");
                assert!(
                    !(begin == ".PP" && before.starts_with(".SH")),
                    "{file}: empty paragraph"
                );
                assert!(
                    !(begin == ".SH" && before.starts_with(".SH")),
                    "{file}: empty {before}"
                );
                match begin {
                    ".nf" => is_filled = false,
                    ".fi" => is_filled = true,
                    _ if line.starts_with('.') => {}
                    _ => assert!(!is_filled || line.len() <= 80, "{file}: {line}"),
                }
                before = line;
            }
            assert!(is_filled, "{file}");
            let sections: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix(".SH "))
                .collect();
            let known = [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "ARGUMENTS",
                "OPTIONS",
                "COMMANDS",
                "EXIT STATUS",
                "EXAMPLES",
                "SEE ALSO",
            ];
            let in_order: Vec<&str> = known
                .into_iter()
                .filter(|section| sections.contains(section))
                .collect();
            assert_eq!(sections, in_order, "{file}");
        }
    }

    #[test]
    fn the_pages_have_every_flag() {
        fn check(command: &Command, parent: Option<&str>, pages: &[Page]) {
            let name = match parent {
                Some(parent) => format!("{parent}-{}", command.get_name()),
                None => "kubectl-kcp".to_owned(),
            };
            let page = pages.iter().find(|page| page.file == format!("{name}.1"));
            let text = &page.expect(&name).text;
            for argument in command.get_arguments() {
                let is_shown = argument.is_global_set() || !argument.is_hide_set();
                let long = argument.get_long().filter(|_| is_shown);
                if let Some(long) = long {
                    let flag = format!("\\fB\\-\\-{}\\fR", long.replace('-', "\\-"));
                    assert!(text.contains(&flag), "{name}: {long}");
                }
            }
            for below in subcommands(command) {
                check(below, Some(&name), pages);
            }
        }
        // The command line is not built, so that only the program has the global flags.
        check(&program(), None, &all());
    }

    #[test]
    fn the_page_of_a_command() {
        let pages = all();
        let page = pages.iter().find(|page| page.file == "kubectl-kcp-etcd-defrag.1");
        let version = env!("CARGO_PKG_VERSION");
        insta::assert_snapshot!(page.unwrap().text.replace(version, "VERSION"));
    }

    #[test]
    fn the_text_after_the_flags_has_sections() {
        let text = "One\nline.\n\nExamples:\n  a b\n  c\n\nExit codes:\n  0  good\nThe rest.";
        let block = |title, parts| Block { title, parts };
        assert_eq!(
            blocks(text),
            [
                block(None, vec![Part::Text(vec!["One", "line."])]),
                block(Some("Examples:"), vec![Part::Verbatim(vec!["a b", "c"])]),
                block(
                    Some("Exit codes:"),
                    vec![Part::Verbatim(vec!["0  good"]), Part::Text(vec!["The rest."])]
                ),
            ]
        );
    }
}
