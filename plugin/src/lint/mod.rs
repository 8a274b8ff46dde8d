//! `kubectl kcp lint`: manifests put to the admission rules, without a cluster.
//!
//! - [`source`]: the files
//! - [`document`]: their documents, with the lines of each field
//! - [`subject`]: which of them have rules
//! - [`judge`]: what the rules say
//! - [`finding`], [`report`]: how that is told

mod arguments;
mod document;
mod finding;
mod judge;
mod report;
mod source;
mod subject;
#[cfg(test)]
mod tests;

use std::{path::Path, thread};

use anyhow::Context as _;
use tokio::sync::oneshot;

pub use arguments::LintArguments;

use crate::{session::Session, verdict::Verdict};
use arguments::LintOutput;
use report::{Report, Unread};

/// Runs `lint`.
///
/// # Errors
/// When the result cannot be shown. A file that cannot be read is told beside the findings of the others.
pub async fn run(arguments: LintArguments, session: &Session) -> anyhow::Result<Verdict> {
    let LintArguments {
        files,
        recursive,
        output,
    } = arguments;
    // On a thread of its own, which ends with the process: reading stdin or a pipe cannot be interrupted.
    let (sender, receiver) = oneshot::channel();
    thread::spawn(move || {
        // Nobody waits any more once the user has interrupted.
        let _ = sender.send(lint(&files, recursive));
    });
    let report = receiver.await.context("cannot judge the manifests")?;
    for unread in report.errors() {
        session
            .terminal
            .error(&anyhow::Error::msg(unread.sentence()), None);
    }
    session.terminal.print(&match output {
        LintOutput::Text => report.text(),
        LintOutput::Json => report.json()?,
        LintOutput::Github => report.github(),
    })?;
    Ok(report.verdict())
}

fn lint(named: &[impl AsRef<Path>], recursive: bool) -> Report {
    let mut report = Report::default();
    for named in named {
        match source::files(named.as_ref(), recursive) {
            Ok(files) => files.iter().for_each(|file| lint_file(file, &mut report)),
            Err(error) => report.unread(unread(&error)),
        }
    }
    report
}

fn lint_file(file: &Path, report: &mut Report) {
    report.file();
    match source::read(file) {
        Ok(content) => lint_text(&file.display().to_string(), &content, report),
        Err(error) => report.unread(unread(&error)),
    }
}

fn lint_text(file: &str, content: &[u8], report: &mut Report) {
    for document in document::parse(content) {
        match document {
            Ok(document) => {
                for object in judge::objects(document) {
                    report.object(judge::judge(file, object));
                }
            }
            Err(error) => report.unread(Unread {
                file: file.to_owned(),
                line: error.line,
                message: error.to_string(),
            }),
        }
    }
}

fn unread(error: &source::SourceError) -> Unread {
    Unread {
        file: error.path().to_owned(),
        line: None,
        message: error.to_string(),
    }
}
