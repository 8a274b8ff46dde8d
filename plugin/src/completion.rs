//! Completes command lines for kubectl, as the program `kubectl_complete-kcp`.
//!
//! kubectl passes the words after `kubectl kcp` verbatim. The last word is the one to complete, and is empty after a space.
//! kubectl expects a line `VALUE<TAB>HELP` for each candidate, then a line with a directive to the shell. If the exit code is not
//! 0, kubectl ignores the output. Source: `kubectl/pkg/cmd/plugin/plugin_completion.go`.
//!
//! - [`line`]: finds what the last word is: a flag, the value of a flag, a subcommand or a positional argument
//! - [`meaning`]: finds what the values of an argument mean, from the argument's own parser
//! - [`candidates`]: chooses and prints the candidates
//! - [`names`]: reads names from the kubeconfig and from the cluster, within a time limit

mod candidates;
mod line;
mod meaning;
mod names;

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{Write as _, stdout},
    process::ExitCode,
    time::Instant,
};

use clap::Command;

use candidates::{Answer, answer};
use line::CommandLine;
use names::LiveNames;

/// Completes the last word of a command line, and prints the candidates for kubectl.
pub fn main(mut command: Command, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let started = Instant::now();
    silence_stderr();
    // Adds the global flags to each subcommand.
    command.build();
    let mut words: Vec<String> = words
        .into_iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let last = words.pop().unwrap_or_default();
    let line = CommandLine::read(&command, &words, &last);
    let answer: Answer = answer(&line, &LiveNames::new(&line.global_flags, started));
    // Ignore the error: the shell has closed the pipe.
    let _ = stdout().write_all(answer.to_string().as_bytes());
    ExitCode::SUCCESS
}

/// Redirects stderr to `/dev/null`. Otherwise a credential plugin or a panic would write into the command line that the
/// user is typing.
fn silence_stderr() {
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        // Ignore the error: stderr is then not silent.
        let _ = rustix::stdio::dup2_stderr(null);
    }
}
