//! The parts of `docs/src/commands/index.md` and `docs/src/reference/flags.md` that are generated: a line for each command, and the
//! arguments and flags of each.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy knows tests by their attribute, and these helpers have none"
)]

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use clap::{Arg, Command};
use kcp_control_plane::testing::page::{assert_generated, markdown};
use kubectl_kcp::command::{GROUPS, program};

/// The page about the commands whose names begin so, if it is not the page in `docs/src/commands` with the name of the first word.
/// The first row that fits counts.
const PAGES: &[(&str, &str)] = &[
    ("certificates rotate", "../guides/ca-rotation.md"),
    ("certificates", "etcd.md"),
    ("etcd recover", "../guides/disaster-recovery.md"),
    ("etcd restore", "../guides/disaster-recovery.md"),
    ("exporter", "../guides/exporter.md"),
    ("generate anchor", "../guides/anchor.md"),
    ("generate api-proxy", "../guides/discovery.md"),
    ("generate join-report", "../guides/join-reports.md"),
    ("man", "../install.md"),
    ("options", "../reference/flags.md"),
    ("pool repair", "pool-repair.md"),
    ("pool status", "pool-repair.md"),
    ("pool", "pool-lease.md"),
    ("rules export", "../guides/policies.md"),
    ("rules", "lint.md"),
    ("version", "../reference/versions.md"),
    ("webhook status", "../troubleshooting.md"),
    ("webhook", "../guides/break-glass.md"),
];

/// A flag that so many commands have with the same meaning is described once.
const MANY: usize = 10;

fn built() -> Command {
    let mut program = program().bin_name("kubectl kcp");
    program.build();
    program
}

/// The commands that do something themselves, each with its name, in the order of the help.
fn commands() -> Vec<(&'static str, Vec<(String, Command)>)> {
    fn with_children(command: &Command, name: &str, found: &mut Vec<(String, Command)>) {
        if !command.is_subcommand_required_set() {
            found.push((name.to_owned(), command.clone()));
        }
        for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
            if child.get_name() != "help" {
                with_children(child, &format!("{name} {}", child.get_name()), found);
            }
        }
    }
    let program = built();
    let of_group = |(heading, names): (&'static str, &[&str])| {
        let mut found = Vec::new();
        for name in names.iter().filter(|name| **name != "help") {
            let command = program.find_subcommand(name).unwrap();
            with_children(command, name, &mut found);
        }
        (heading, found)
    };
    GROUPS.map(of_group).into()
}

#[test]
fn the_index_has_a_line_for_each_command() {
    let mut text = String::new();
    for (heading, commands) in commands() {
        write!(
            text,
            "\n## {heading}\n\n| command | what it does | page |\n|---|---|---|\n"
        )
        .unwrap();
        for (name, command) in commands {
            let summary = cell(&command.get_about().unwrap().to_string());
            let flags = name.replace(' ', "-");
            let (title, page) = page_about(&name);
            writeln!(
                text,
                "| [`{name}`](../reference/flags.md#{flags}) | {summary} | [{title}]({page}) |"
            )
            .unwrap();
        }
    }
    assert_generated("commands/index.md", &text);
}

/// The title and the link of the page about a command.
fn page_about(name: &str) -> (String, String) {
    let of_first_word = || format!("{}.md", name.split(' ').next().unwrap_or_default());
    let page = PAGES.iter().find(|(command, _)| name.starts_with(command));
    let page = page.map_or_else(of_first_word, |(_, page)| (*page).to_owned());
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs/src/commands")
        .join(&page);
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {}: {error}", path.display()));
    let title = text.lines().next().unwrap_or_default();
    (title.trim_start_matches("# ").to_owned(), page)
}

#[test]
fn the_reference_has_each_flag_of_each_command() {
    let groups = commands();
    let all = || groups.iter().flat_map(|(_, commands)| commands);
    let mut uses: BTreeMap<(String, String), usize> = BTreeMap::new();
    for row in all().flat_map(|(_, command)| rows(command)) {
        *uses.entry(row).or_default() += 1;
    }
    let is_common = |row: &(String, String)| uses.get(row).is_some_and(|uses| *uses >= MANY);

    let program = built();
    let global = program
        .get_arguments()
        .filter(|argument| argument.is_global_set());
    let mut text = "\n## Flags of all commands\n\n".to_owned();
    text += &table(global.map(row));
    text += "\n## Flags of many commands\n\nThe lists below only name these flags.\n\n";
    text += &table(uses.keys().filter(|row| is_common(row)).cloned());
    for (name, command) in all() {
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").lines().map(str::trim);
        let usage = usage.collect::<Vec<_>>().join("\n");
        let summary = markdown(&command.get_about().unwrap().to_string());
        write!(text, "\n## {name}\n\n{summary}.\n\n```text\n{usage}\n```\n").unwrap();
        let (common, own): (Vec<_>, Vec<_>) = rows(command).into_iter().partition(is_common);
        if !own.is_empty() {
            text += "\n";
            text += &table(own.into_iter());
        }
        let common: Vec<String> = common.into_iter().map(|(flag, _)| flag).collect();
        if !common.is_empty() {
            writeln!(text, "\nAlso [{}](#flags-of-many-commands).", common.join(", ")).unwrap();
        }
    }
    assert_generated("reference/flags.md", &text);
}

fn table(rows: impl Iterator<Item = (String, String)>) -> String {
    let start = "| flag | meaning |\n|---|---|\n".to_owned();
    rows.fold(start, |text, (flag, meaning)| {
        format!("{text}| {flag} | {meaning} |\n")
    })
}

/// The arguments and flags of a command, without those of all commands.
fn rows(command: &Command) -> Vec<(String, String)> {
    let own = command.get_arguments().filter(|argument| {
        !argument.is_hide_set() && !argument.is_global_set() && argument.get_id() != "help"
    });
    own.map(row).collect()
}

/// An argument as its help shows it, and its meaning.
fn row(argument: &Arg) -> (String, String) {
    let short = argument
        .get_short()
        .map(|short| format!("-{short}, "))
        .unwrap_or_default();
    let help = argument
        .get_long_help()
        .or(argument.get_help())
        .unwrap()
        .to_string();
    let mut meaning = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let takes_values = argument
        .get_num_args()
        .is_some_and(|number| number.takes_values());
    if takes_values && !argument.is_hide_possible_values_set() {
        let values: Vec<String> = argument
            .get_possible_values()
            .iter()
            .map(|value| match value.get_help() {
                Some(help) => format!("`{}`: {help}", value.get_name()),
                None => format!("`{}`", value.get_name()),
            })
            .collect();
        if !values.is_empty() {
            write!(meaning, ". Values: {}", values.join("; ")).unwrap();
        }
    }
    if takes_values && !argument.is_hide_default_value_set() {
        let values = argument
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy());
        let values: Vec<_> = values.collect();
        if !values.is_empty() {
            write!(meaning, " [default: {}]", values.join(",")).unwrap();
        }
    }
    (
        format!("`{}`", cell_code(&format!("{short}{argument}"))),
        cell(&meaning),
    )
}

/// The text in a cell of a table.
fn cell(text: &str) -> String {
    cell_code(&markdown(text))
}

/// A bar ends a cell, even in code.
fn cell_code(text: &str) -> String {
    text.replace('|', "\\|")
}
