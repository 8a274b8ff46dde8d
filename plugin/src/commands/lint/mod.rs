//! `kubectl kcp lint`: manifests put to the admission rules without a cluster, or the objects of a cluster.
//!
//! - [`source`]: the files
//! - [`document`]: their documents, with the lines of each field
//! - [`fleet`]: the objects of a cluster
//! - [`object`], [`subject`]: what was read, and what it is to us
//! - [`given`]: all that was read, put before the rules
//! - [`neighbours`]: the other objects, as the cluster that rules look at
//! - [`update`]: what an API server makes of an update
//! - [`judge`]: what the rules say
//! - [`finding`], [`report`]: how that is told

mod arguments;
pub(crate) mod document;
mod finding;
mod fleet;
mod given;
mod judge;
mod neighbours;
mod object;
mod report;
mod source;
mod subject;
#[cfg(test)]
mod tests;
mod update;

use std::thread;

use anyhow::{Context as _, anyhow, ensure};
use jiff::Timestamp;
use kcp_rules::Configuration;
use tokio::sync::oneshot;

pub use arguments::LintArguments;

use crate::{configuration, session::Session, verdict::Verdict};
use arguments::LintOutput;
use given::Given;
use report::{Place, Report};

/// Where kubectl puts objects without a namespace that it is told nothing about.
const NAMESPACE: &str = "default";

/// Runs `lint`.
///
/// # Errors
/// When a cluster cannot be read, or the result not be shown. A file that cannot be read is told beside the findings of
/// the others.
pub async fn run(arguments: LintArguments, session: &Session) -> anyhow::Result<Verdict> {
    let configuration = arguments.configuration.as_deref();
    let configuration = configuration
        .map(configuration::read)
        .transpose()?
        .unwrap_or_default();
    let output = arguments.output;
    let report = if arguments.files.is_empty() {
        let connection = fleet::connect(session).await?;
        let namespace = (!arguments.all_namespaces).then_some(connection.namespace.as_str());
        fleet::read(&connection, namespace)
            .await?
            .judge(&configuration, Timestamp::now())
    } else {
        ensure!(
            !given::share_stdin(&arguments.files, &arguments.old),
            "stdin can be read once: name a file for --filename or --old"
        );
        let namespace = session
            .global
            .namespace
            .as_deref()
            .unwrap_or(NAMESPACE)
            .to_owned();
        // On a thread of its own, which ends with the process: reading stdin or a pipe cannot be interrupted.
        let (sender, receiver) = oneshot::channel();
        thread::spawn(move || {
            // Nobody waits any more once the user has interrupted.
            let _ = sender.send(manifests(&arguments, &namespace, &configuration));
        });
        receiver.await.context("cannot judge the manifests")?
    };
    for unread in report.errors() {
        session
            .terminal
            .error(&anyhow::Error::msg(unread.sentence()), None);
    }
    if report.is_empty() {
        let error = anyhow!("no object to judge in {}", report.files());
        session.terminal.error(&error, None);
    }
    session.terminal.print(&match output {
        LintOutput::Text => report.text(),
        LintOutput::Json => report.json()?,
        LintOutput::Github => report.github(),
    })?;
    Ok(report.verdict())
}

/// What `-o json` prints of manifests, given as the names and the contents of files. No file is read.
///
/// # Errors
/// When the document cannot be written.
pub fn document(
    files: &[(&str, &[u8])],
    old: &[(&str, &[u8])],
    configuration: &Configuration,
    now: Timestamp,
) -> serde_json::Result<String> {
    let mut given = Given::new(NAMESPACE, Place::Files);
    for (name, content) in old {
        given.parse_old(name, content);
    }
    for (name, content) in files {
        given.parse(name, content);
    }
    given.judge(configuration, now).json()
}

fn manifests(arguments: &LintArguments, namespace: &str, configuration: &Configuration) -> Report {
    let mut given = Given::new(namespace, Place::Files);
    given.read_old(&arguments.old, arguments.recursive);
    given.read(&arguments.files, arguments.recursive);
    given.judge(configuration, Timestamp::now())
}
