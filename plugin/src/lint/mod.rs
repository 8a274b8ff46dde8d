//! `kubectl kcp lint`: manifests put to the admission rules, without a cluster.
//!
//! - [`source`]: the files
//! - [`document`]: their documents, with the lines of each field
//! - [`subject`]: which of them have rules
//! - [`neighbours`]: the other documents, as the cluster that rules look at
//! - [`judge`]: what the rules say
//! - [`finding`], [`report`]: how that is told

mod arguments;
mod document;
mod finding;
mod judge;
mod neighbours;
mod report;
mod source;
mod subject;
#[cfg(test)]
mod tests;

use std::{path::Path, thread};

use anyhow::Context as _;
use jiff::Timestamp;
use kcp_rules::Configuration;
use tokio::sync::oneshot;

pub use arguments::LintArguments;

use crate::{session::Session, verdict::Verdict};
use arguments::LintOutput;
use document::Located;
use judge::Court;
use neighbours::Neighbours;
use report::{Report, Unread};

/// Runs `lint`.
///
/// # Errors
/// When the result cannot be shown. A file that cannot be read is told beside the findings of the others.
pub async fn run(arguments: LintArguments, session: &Session) -> anyhow::Result<Verdict> {
    let LintArguments {
        files,
        recursive,
        configuration,
        output,
    } = arguments;
    let configuration = configuration
        .as_deref()
        .map(source::configuration)
        .transpose()?
        .unwrap_or_default();
    // On a thread of its own, which ends with the process: reading stdin or a pipe cannot be interrupted.
    let (sender, receiver) = oneshot::channel();
    thread::spawn(move || {
        // Nobody waits any more once the user has interrupted.
        let _ = sender.send(lint(&files, recursive, &configuration));
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

fn lint(named: &[impl AsRef<Path>], recursive: bool, configuration: &Configuration) -> Report {
    let mut given = Given::default();
    for named in named {
        match source::files(named.as_ref(), recursive) {
            Ok(files) => files.iter().for_each(|file| given.read(file)),
            Err(error) => given.report.unread(unread(&error)),
        }
    }
    given.judge(configuration, Timestamp::now())
}

/// What was given to `lint`: all of it is read before any of it is judged.
#[derive(Debug, Default)]
struct Given {
    objects: Vec<(String, Located)>,
    report: Report,
}

impl Given {
    fn read(&mut self, file: &Path) {
        self.report.file();
        match source::read(file) {
            Ok(content) => self.parse(&file.display().to_string(), &content),
            Err(error) => self.report.unread(unread(&error)),
        }
    }

    fn parse(&mut self, file: &str, content: &[u8]) {
        for document in document::parse(content) {
            match document {
                Ok(document) => {
                    let objects = judge::objects(document).into_iter();
                    self.objects
                        .extend(objects.map(|object| (file.to_owned(), object)));
                }
                Err(error) => self.report.unread(Unread {
                    file: file.to_owned(),
                    line: error.line,
                    message: error.to_string(),
                }),
            }
        }
    }

    fn judge(self, configuration: &Configuration, now: Timestamp) -> Report {
        let Self { objects, mut report } = self;
        let mut neighbours = Neighbours::default();
        for (_, object) in &objects {
            neighbours.add(object.to_json());
        }
        let court = Court {
            configuration,
            neighbours: &neighbours,
            now,
        };
        for (file, object) in objects {
            report.object(judge::judge(&file, object, &court));
        }
        report
    }
}

fn unread(error: &source::SourceError) -> Unread {
    Unread {
        file: error.path().to_owned(),
        line: None,
        message: error.to_string(),
    }
}
