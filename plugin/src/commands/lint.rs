//! `kubectl kcp lint`: checks manifests against the admission rules without a cluster, or the objects of a cluster.
//!
//! - [`source`]: finds the files
//! - [`document`]: parses their documents, with line numbers
//! - [`cluster_objects`]: reads the objects of a cluster
//! - [`object`], [`subject`]: an object, and its kind, which decides whether rules apply
//! - [`input`]: reads all objects
//! - [`related_objects`]: the other objects that rules read
//! - [`unrendered`]: recognizes patches, templates and files of other programs
//! - [`substitution`]: recognizes placeholders, and fills the variables of clusterctl templates
//! - [`kubeadm_config`]: checks the configuration of workers
//! - [`health_check`]: checks a `MachineHealthCheck` beside its control plane
//! - [`topology`]: checks the topology of a Cluster
//! - [`schema`]: finds what an API server rejects or drops
//! - [`update`]: merges an update as an API server does
//! - [`check`]: applies the rules
//! - [`finding`], [`report`]: findings as text and JSON
//! - [`sarif`]: findings for code scanners

mod arguments;
mod check;
mod cluster_objects;
pub(crate) mod document;
pub(crate) mod finding;
mod health_check;
mod input;
mod kubeadm_config;
mod object;
mod related_objects;
mod report;
mod sarif;
mod schema;
mod source;
mod subject;
mod substitution;
#[cfg(test)]
mod tests;
mod topology;
mod unrendered;
mod update;

use std::thread;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use kcp_rules::Configuration;
use tokio::sync::oneshot;

pub use arguments::LintArguments;

use crate::{
    configuration, document::Versioned, output::print, printer::json, session::Session, verdict::Verdict,
};
use input::Input;
use report::{LintReport, ObjectSource};

/// The namespace that objects get if neither the manifest nor `-n` names one.
const NAMESPACE: &str = "default";

pub async fn run(arguments: LintArguments, session: &Session) -> anyhow::Result<Verdict> {
    let configuration = arguments.configuration.as_deref();
    let configuration = configuration.map(configuration::read).transpose()?;
    let output = arguments.output.clone();
    let report = if arguments.files.is_empty() {
        let connection = cluster_objects::connect(session).await?;
        let namespace = (!arguments.all_namespaces).then_some(connection.namespace.as_str());
        cluster_objects::read(&connection, namespace)
            .await?
            .check(configuration.as_ref(), Timestamp::now())
    } else {
        ensure!(
            !input::both_read_stdin(&arguments.files, &arguments.old),
            "stdin can be read only once: use a file for --filename or --old"
        );
        let namespace = session
            .global
            .namespace
            .as_deref()
            .unwrap_or(NAMESPACE)
            .to_owned();
        // Use a thread, because a read of stdin or of a pipe cannot be interrupted.
        let (sender, receiver) = oneshot::channel();
        thread::spawn(move || {
            // Ignore the error: the receiver is gone if the user interrupted the command.
            let _ = sender.send(manifests(&arguments, &namespace, configuration.as_ref()));
        });
        receiver.await.context("cannot check the manifests")?
    };
    for unread in report.unread_files() {
        session
            .terminal
            .error(&anyhow::Error::msg(unread.sentence()), None);
    }
    if let Some(error) = report.unchecked_error() {
        session.terminal.error(&anyhow::Error::msg(error), None);
    }
    print(&report, &output, &session.terminal)?;
    if let Some(note) = report.deprecation_note() {
        session.terminal.hint(&note);
    }
    Ok(report.verdict())
}

/// The JSON document of `lint` for manifests, given as pairs of file name and content. Reads no file.
pub fn document(
    files: &[(&str, &[u8])],
    old: &[(&str, &[u8])],
    configuration: &Configuration,
    now: Timestamp,
) -> anyhow::Result<String> {
    let mut input = Input::new(NAMESPACE, ObjectSource::Files);
    for (name, content) in old {
        input.parse_old(name, content);
    }
    for (name, content) in files {
        input.parse(name, content);
    }
    json(&Versioned(input.check(Some(configuration), now)))
}

fn manifests(
    arguments: &LintArguments,
    namespace: &str,
    configuration: Option<&Configuration>,
) -> LintReport {
    let mut input = Input::new(namespace, ObjectSource::Files);
    input.substitutes = arguments.substitute;
    input.read_old(&arguments.old, arguments.recursive);
    input.read(&arguments.files, arguments.recursive);
    input.check(configuration, Timestamp::now())
}
