//! `kubectl kcp lint`: checks manifests against the admission rules without a cluster, or the objects of a cluster.
//!
//! - [`source`]: the files
//! - [`document`]: their documents, with the lines of each field
//! - [`fleet`]: the objects of a cluster
//! - [`object`], [`subject`]: one object, and whether rules judge it
//! - [`input`]: all objects that were read
//! - [`neighbours`]: the other objects, as the cluster that rules read
//! - [`update`]: what an API server makes of an update
//! - [`judge`]: applies the rules
//! - [`finding`], [`report`]: text and JSON

mod arguments;
pub(crate) mod document;
mod finding;
mod fleet;
mod input;
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

use crate::{configuration, output::print, printer::json, session::Session, verdict::Verdict};
use input::Input;
use report::{LintReport, Place};

/// The namespace of objects that name none.
const NAMESPACE: &str = "default";

/// Runs `lint`.
///
/// # Errors
/// When a cluster cannot be read, or the result cannot be printed. A file that cannot be read is reported beside the
/// findings of the others.
pub async fn run(arguments: LintArguments, session: &Session) -> anyhow::Result<Verdict> {
    let configuration = arguments.configuration.as_deref();
    let configuration = configuration
        .map(configuration::read)
        .transpose()?
        .unwrap_or_default();
    let output = arguments.output.clone();
    let report = if arguments.files.is_empty() {
        let connection = fleet::connect(session).await?;
        let namespace = (!arguments.all_namespaces).then_some(connection.namespace.as_str());
        fleet::read(&connection, namespace)
            .await?
            .judge(&configuration, Timestamp::now())
    } else {
        ensure!(
            !input::share_stdin(&arguments.files, &arguments.old),
            "stdin can be read once: name a file for --filename or --old"
        );
        let namespace = session
            .global
            .namespace
            .as_deref()
            .unwrap_or(NAMESPACE)
            .to_owned();
        // On its own thread, which ends with the process, because a read of stdin or a pipe cannot be interrupted.
        let (sender, receiver) = oneshot::channel();
        thread::spawn(move || {
            // After an interrupt there is no receiver.
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
    print(&report, &output, &session.terminal)?;
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
) -> anyhow::Result<String> {
    let mut input = Input::new(NAMESPACE, Place::Files);
    for (name, content) in old {
        input.parse_old(name, content);
    }
    for (name, content) in files {
        input.parse(name, content);
    }
    json(&input.judge(configuration, now))
}

fn manifests(arguments: &LintArguments, namespace: &str, configuration: &Configuration) -> LintReport {
    let mut input = Input::new(namespace, Place::Files);
    input.read_old(&arguments.old, arguments.recursive);
    input.read(&arguments.files, arguments.recursive);
    input.judge(configuration, Timestamp::now())
}
