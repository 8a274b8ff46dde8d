//! The recording in the README: what a part of one tutorial shows, as an asciicast (version 2 of the format of asciinema). With
//! `UPDATE_RECORDING` in the environment, the test that follows this tutorial writes the cast. `make recording` also draws it as an
//! animated SVG.

use std::env;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kcp_tests::products;
use serde_json::json;

use super::screen::{difference, masked};
use super::step::steps;

/// The tutorial that is recorded, and the name of the cast and of its picture.
const PAGE: &str = "dead-member";
/// The size of the terminal, in cells. Its height shows the problems in `status` and most of the table below them.
const WIDTH: usize = 100;
const HEIGHT: usize = 34;

const BEFORE_COMMAND: Duration = Duration::from_millis(600);
const EACH_WORD: Duration = Duration::from_millis(120);
const BEFORE_OUTPUT: Duration = Duration::from_millis(400);
/// The time before a line of a command that waits, however long the command has waited.
const BEFORE_PROGRESS: Duration = Duration::from_millis(400);
/// The time to read a row, and the limits of the time to read a screen.
const EACH_ROW: Duration = Duration::from_millis(180);
const SHORTEST_LOOK: Duration = Duration::from_secs(2);
const LONGEST_LOOK: Duration = Duration::from_secs(6);

const CLEAR: &str = "\u{1b}[H\u{1b}[2J";
const PROMPT: &str = "\u{1b}[32m$\u{1b}[0m ";

/// A command that has run, and what it has printed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) command: String,
    pub(super) output: String,
}

/// Whether this run is to record the tutorial.
pub(super) fn is_wanted(page: &str) -> bool {
    page == PAGE && env::var_os("UPDATE_RECORDING").is_some()
}

/// A script that prints what a command prints on a terminal of the recording's size, with colours. Standard error is a file, so no
/// spinner is drawn.
pub(super) fn on_terminal(command: &str, folder: &Path) -> Result<String> {
    fs::write(folder.join("command"), command)?;
    Ok(format!(
        "export CLICOLOR_FORCE=1
        script --quiet --return --command 'stty cols {WIDTH} rows {HEIGHT}; bash command 2> errors' /dev/null < /dev/null
        code=$?
        cat errors >&2
        exit $code"
    ))
}

/// The text without the control sequences of a terminal.
pub(super) fn plain(text: &str) -> String {
    let text = text.replace('\r', "");
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        plain
            + part
                .trim_start_matches(|character: char| !character.is_ascii_alphabetic())
                .get(1..)
                .unwrap_or_default()
    })
}

/// Writes the cast of the tutorial, whose commands have shown this.
pub(super) fn write(shown: &[Shown]) -> Result<()> {
    let part = recorded(shown.iter().map(|shown| shown.command.as_str()));
    let path = picture("docs/pictures", "cast");
    fs::write(&path, cast(shown.get(part).context("the recorded commands")?))
        .with_context(|| path.display().to_string())
}

fn picture(folder: &str, extension: &str) -> PathBuf {
    products::workspace()
        .join(folder)
        .join(PAGE)
        .with_extension(extension)
}

/// Which commands are recorded: those from the fault to the list of healthy control planes.
fn recorded<'c>(commands: impl Iterator<Item = &'c str>) -> Range<usize> {
    let commands: Vec<&str> = commands.collect();
    let start = commands
        .iter()
        .position(|command| command.starts_with("target/debug/fault"));
    let end = commands
        .iter()
        .position(|command| *command == "kubectl kcp status");
    start.unwrap_or_default()..end.map_or(commands.len(), |end| end + 1)
}

/// The asciicast of these commands.
fn cast(shown: &[Shown]) -> String {
    let mut film = Film::new();
    for Shown { command, output } in shown {
        film.type_command(command, output);
        film.print(output);
    }
    film.text
}

/// An asciicast that grows.
struct Film {
    text: String,
    now: Duration,
    /// The rows in use since the terminal was cleared.
    rows: usize,
}

impl Film {
    fn new() -> Self {
        let head = json!({"version": 2, "width": WIDTH, "height": HEIGHT});
        Self {
            text: format!("{head}\n"),
            now: Duration::ZERO,
            rows: 0,
        }
    }

    /// Adds an event: `o` is output of the terminal, `i` input.
    fn add(&mut self, kind: &str, data: &str) {
        let seconds = self.now.as_secs_f64();
        self.text += &json!([seconds, kind, data]).to_string();
        self.text.push('\n');
    }

    /// Types a command, on a cleared terminal if its output has no room below the rows in use.
    fn type_command(&mut self, command: &str, output: &str) {
        let needed: usize = output.lines().map(rows).sum();
        if self.rows > 0 && self.rows + needed + 1 >= HEIGHT {
            self.add("o", CLEAR);
            self.rows = 0;
        }
        self.add("o", PROMPT);
        self.now += BEFORE_COMMAND;
        for word in command.split_inclusive(' ') {
            self.add("o", word);
            self.now += EACH_WORD;
        }
        self.now += BEFORE_OUTPUT;
        self.add("i", &format!("{command}\r"));
        self.add("o", "\r\n");
        self.rows += 1;
    }

    /// Prints the output of a command, and waits until it is read: whenever the terminal is full, and at the end.
    fn print(&mut self, output: &str) {
        let mut unread = 0;
        for line in output.lines() {
            if unread + rows(line) >= HEIGHT {
                self.look(unread);
                unread = 0;
            }
            if is_progress(line) {
                self.now += BEFORE_PROGRESS;
            }
            self.add("o", &format!("{line}\r\n"));
            unread += rows(line);
            self.rows += rows(line);
        }
        self.look(unread);
    }

    fn look(&mut self, rows: usize) {
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        self.now += EACH_ROW.saturating_mul(rows).clamp(SHORTEST_LOOK, LONGEST_LOOK);
    }
}

/// The rows that a line needs.
fn rows(line: &str) -> usize {
    plain(line).chars().count().div_ceil(WIDTH).max(1)
}

/// Whether a line begins with a time of day, as the lines of a command that waits.
fn is_progress(line: &str) -> bool {
    let line = plain(line);
    let time: Vec<&str> = line.split(' ').next().unwrap_or_default().split(':').collect();
    time.len() == 3
        && time
            .iter()
            .all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The commands of a cast with their outputs, and the time of its last event in seconds.
fn parsed(cast: &str) -> Result<(Vec<Shown>, f64)> {
    let mut found: Vec<Shown> = Vec::new();
    let mut end = 0.0;
    for line in cast.lines().skip(1) {
        let (seconds, kind, data): (f64, String, String) =
            serde_json::from_str(line).with_context(|| line.to_owned())?;
        end = seconds;
        match found.last_mut() {
            _ if kind == "i" => found.push(Shown {
                command: data.trim_end().to_owned(),
                output: String::new(),
            }),
            Some(last) => last.output += &data,
            None => {}
        }
    }
    Ok((found, end))
}

/// Fails if the tutorial has changed since the recording: `make recording` repeats it.
#[test]
fn the_recording_shows_the_commands_and_the_screens_of_the_tutorial() -> Result<()> {
    let page = fs::read_to_string(products::workspace().join(format!("docs/src/tutorials/{PAGE}.md")))?;
    let steps = steps(&page);
    let part = recorded(steps.iter().map(|step| step.command.as_str()));
    let steps = steps.get(part).context("the recorded steps")?;
    let (shown, end) = parsed(&fs::read_to_string(picture("docs/pictures", "cast"))?)?;
    let commands: Vec<String> = shown.iter().map(|shown| masked(&shown.command)).collect();
    let expected: Vec<String> = steps.iter().map(|step| masked(&step.command)).collect();
    assert_eq!(commands, expected);
    assert!(commands.len() > 4, "{commands:?}");
    for (step, shown) in steps.iter().zip(&shown) {
        assert_eq!(
            difference(&step.output, &plain(&shown.output)),
            None,
            "{}",
            step.command
        );
    }
    assert!(end < 40.0, "few people watch a recording of {end} s to its end");
    let drawn = fs::read_to_string(picture("docs/src/pictures", "svg"))?;
    assert!(drawn.len() < 300_000, "{} bytes", drawn.len());
    for Shown { command, .. } in &shown {
        assert!(
            drawn.contains(&format!("{command}<")),
            "the picture does not show {command}"
        );
    }
    Ok(())
}

#[test]
fn a_cast_has_the_commands_their_outputs_and_time_to_read_them() -> Result<()> {
    let shown = |command: &str, output: &str| Shown {
        command: command.to_owned(),
        output: output.to_owned(),
    };
    let long = "a line\n".repeat(HEIGHT);
    let written = cast(&[
        shown("kubectl kcp why", "\u{1b}[31mfail\u{1b}[0m a\n07:08:09  b\n"),
        shown("status", &long),
    ]);
    let (read, end) = parsed(&written)?;
    let outputs: Vec<(&str, String)> = read
        .iter()
        .map(|shown| (shown.command.as_str(), plain(&shown.output)))
        .collect();
    // The output of the first command ends with the prompt and the words of the second one.
    assert_eq!(
        outputs,
        [
            ("kubectl kcp why", "\nfail a\n07:08:09  b\n$ status".to_owned()),
            ("status", format!("\n{long}")),
        ]
    );
    // Two commands of three words and one, each with its pauses; a line of progress; the looks at two rows, at a full terminal and
    // at the last row, which ends after the last event.
    let expected = (0.6 + 0.36 + 0.4) + 0.4 + 2.0 + (0.6 + 0.12 + 0.4) + 5.94;
    assert!((end - expected).abs() < 0.001, "{end} {expected}");
    let cleared = written.lines().filter(|line| line.contains("[2J")).count();
    assert_eq!(cleared, 1, "{written}");
    Ok(())
}

#[test]
fn control_sequences_are_removed() {
    for (text, expected) in [
        ("plain", "plain"),
        ("\u{1b}[1;31mfail\u{1b}[0m  a\r\n", "fail  a\n"),
        (CLEAR, ""),
    ] {
        assert_eq!(plain(text), expected);
    }
}
