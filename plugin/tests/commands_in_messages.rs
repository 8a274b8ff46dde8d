//! The plugin can parse every `kubectl kcp …` command that a message, a hint, the README or the book tells a
//! user to run.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows tests by their attribute, and these helpers have none"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Parser as _;
use kubectl_kcp::command::Arguments;

const COMMAND: &str = "kubectl kcp ";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Replaces each character of an argument in single quotes, which may contain spaces and operators of a shell.
fn without_quoted(text: &str) -> String {
    let mut is_quoted = false;
    let mut before = ' ';
    let replaced = text.chars().map(|c| {
        let is_first = before.is_whitespace() || before == '=';
        before = c;
        if c == '\'' && (is_quoted || is_first) {
            is_quoted = !is_quoted;
            return c;
        }
        if is_quoted && c.is_ascii() { '1' } else { c }
    });
    replaced.collect()
}

/// The words of a command line. A word may be an argument in single quotes.
fn words(command: &str) -> Vec<String> {
    let searched = without_quoted(command);
    let mut rest = command;
    let words = searched.split_whitespace().map(|word| {
        let start = rest.trim_start();
        let (word, after) = start.split_at(word.len());
        rest = after;
        word.trim_matches(['"', '\'']).to_owned()
    });
    words.collect()
}

/// The text after each `kubectl kcp `, up to what cannot be part of a command line.
fn commands(text: &str, ends: &[&str]) -> Vec<String> {
    text.split(COMMAND)
        .skip(1)
        .map(|rest| {
            let searched = without_quoted(rest);
            let end = ends.iter().filter_map(|end| searched.find(end)).min();
            rest[..end.unwrap_or(rest.len())].trim_end().to_owned()
        })
        .collect()
}

/// The code of a file without its tests and comments, each string in one line.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: Vec<&str> = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let mut joined = String::new();
    for part in code.join("\n").split("\\\n") {
        joined.push_str(part.trim_start());
    }
    joined
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|of_file| of_file == extension) {
            found.push(path);
        }
    }
    found
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut sources = files(folder, "rs");
    sources.retain(|file| !file.ends_with("tests.rs"));
    sources
}

/// The value for `{version}` and `VERSION`.
const VERSION: &str = "v1.36.0";

/// Replaces `{name}`, `NAME` and `N` in a word with 1, which is a valid name, number, time and file, but no version or component.
fn filled(word: &str) -> String {
    let mut filled = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap_or_default();
        filled += before;
        filled += match name {
            "version" => VERSION,
            "component" => "etcd",
            _ => "1",
        };
        rest = after;
    }
    filled += rest;
    let (flag, value) = match filled.split_once('=') {
        Some((flag, value)) => (format!("{flag}="), value.to_owned()),
        None => (String::new(), filled),
    };
    let is_placeholder = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_uppercase());
    let value = match value.as_str() {
        "VERSION" => VERSION,
        _ if is_placeholder => "1",
        value => value,
    };
    format!("{flag}{value}")
}

fn understood(command: &str) -> Result<(), String> {
    let words = words(command).into_iter().map(|word| filled(&word));
    match Arguments::try_parse_from(["kubectl kcp".to_owned()].into_iter().chain(words)) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{COMMAND}{command}\n{error}")),
    }
}

/// Checks that the list is not empty, and that the plugin can parse every command in it.
fn assert_understood(commands: &[String]) {
    assert!(!commands.is_empty());
    let faults: Vec<String> = commands
        .iter()
        .filter_map(|command| understood(command).err())
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn of_the_plugin() {
    let crates = [
        "plugin/src",
        "plugin/client/src",
        "plugin/model/src",
        "plugin/pool/src",
    ];
    let files: Vec<PathBuf> = crates
        .iter()
        .flat_map(|folder| sources(&workspace().join(folder)))
        .collect();
    let found: Vec<String> = files
        .iter()
        .flat_map(|file| commands(&code(&read(file)), &["\"", "`", ";", "\n", "\\n"]))
        .collect();
    assert_understood(&found);
}

#[test]
fn of_the_server() {
    let files = sources(&workspace().join("webhook/src"));
    let found: Vec<String> = files
        .iter()
        .flat_map(|file| commands(&code(&read(file)), &["\"", "`", ";", "\n", " shows"]))
        .collect();
    assert_understood(&found);
}

#[test]
fn of_the_rules() {
    let messages = read(&workspace().join("webhook/rules/tests/snapshots/table__messages.snap"));
    assert_understood(&commands(&messages, &["`", ";", " (", "\n"]));
}

#[test]
fn of_the_readme_and_the_book() {
    let mut pages = files(&workspace().join("docs/src"), "md");
    pages.push(workspace().join("README.md"));
    let texts: Vec<String> = pages.iter().map(|page| read(page)).collect();
    let screens: Vec<&str> = texts
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.starts_with("$ ") && !line.contains("--help"))
        .collect();
    assert_understood(&commands(
        &screens.join("\n"),
        &[" |", " &", " >", " #", ";", "\n"],
    ));
}

#[test]
fn an_argument_in_quotes_is_one_word() {
    let line = "a kubectl kcp etcd defrag -A --when 'inUse < 50 && size > 1Gi' --yes > file";
    let found = commands(line, &[" >"]);
    assert_eq!(found, ["etcd defrag -A --when 'inUse < 50 && size > 1Gi' --yes"]);
    let command = found.first().expect("a command");
    assert_eq!(
        words(command),
        [
            "etcd",
            "defrag",
            "-A",
            "--when",
            "inUse < 50 && size > 1Gi",
            "--yes"
        ]
    );
}

#[test]
fn placeholders_are_filled() {
    for (word, expected) in [
        ("{name}", "1"),
        ("--replicas", "--replicas"),
        ("N", "1"),
        ("--cluster=NAME", "--cluster=1"),
        ("{a}/{b}", "1/1"),
        ("{version}", VERSION),
        ("--to=VERSION", "--to=v1.36.0"),
        ("status", "status"),
    ] {
        assert_eq!(filled(word), expected, "{word}");
    }
}
