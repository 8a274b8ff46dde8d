//! `kubectl kcp bundle`: writes the state of a control plane to an archive without secrets.
//!
//! - [`collect`]: reads the parts of the archive; [`archive`]: its format; [`report`]: what the command prints

mod archive;
mod collect;
mod report;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane, parse_timeout},
    commands::bundle::{
        archive::Entry,
        collect::{Collected, collect},
        report::BundleReport,
    },
    file::NewFile,
    output::{OutputArguments, OutputFormat, print, text},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
};

/// The only folder in the archive. It keeps the files apart from other files where a person unpacks the archive.
const FOLDER: &str = "debug-bundle";

/// The file in the archive that lists all files, and what could not be read.
const INDEX: &str = "index.json";

/// Write the state of a control plane to an archive without secrets.
#[derive(Debug, Args)]
#[command(
    after_help = "The archive contains the results of `status`, `why`, `plan`, `version` and `webhook status`; the objects of \
        the Cluster and the Events about them; the webhook configurations; the Nodes, static Pods and Leases of the \
        workload cluster and the Events about them; and the last 2,000 lines of the logs of etcd, kube-apiserver, \
        kube-controller-manager and kube-scheduler on each Machine. Its file index.json lists all files, and says what could not be read, and why.

The archive contains no Secrets. In other objects, text stays only in fields that are known to contain no secrets; all other \
text is replaced with <redacted>. Names, addresses, messages and logs stay; in messages and logs, tokens and keys are \
replaced. Read the files before you send them.

Exits with 0 if the archive was written, even if some parts could not be read.

Examples:
  kubectl kcp bundle edge --output-file edge.tar.gz
  kubectl kcp bundle cluster/edge -n fleet --output-file edge.tar.gz --timeout 2m
  kubectl kcp bundle edge --output-file edge.tar.gz -o json"
)]
pub struct BundleArguments {
    /// Control plane, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// Archive to create with mode 0600; an existing file is not replaced
    #[arg(long, value_name = "FILE")]
    pub output_file: PathBuf,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for all reads, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "60s")]
    pub timeout: Duration,
}

pub async fn run(arguments: &BundleArguments, session: &Session) -> anyhow::Result<Verdict> {
    let end = Instant::now() + arguments.timeout;
    // Create the file first, so that a folder that cannot be written is an error before anything is read.
    let mut file = NewFile::create(&arguments.output_file)?;
    let connection = session.connect_within(arguments.timeout).await?;
    session.terminal.spin("reading the control plane");
    let collected = Box::pin(collect(&arguments.name, &connection, end)).await;
    session.terminal.stop_spinning();
    let Collected { control_plane, parts } = collected?;
    let index = BundleReport {
        control_plane: &control_plane,
        created: connection.now(),
        parts: &parts,
        file: None,
    };
    let index_text = text(&index, &OutputFormat::Json, Layout::default())?;
    let files = parts
        .iter()
        .filter_map(|part| Some((part.file.as_str(), part.text.as_deref()?)));
    let entries = [(INDEX, index_text.as_str())].into_iter().chain(files);
    let entries = entries.map(|(name, text)| Entry {
        path: format!("{FOLDER}/{name}"),
        content: text.as_bytes(),
    });
    let entries: Vec<Entry<'_>> = entries.collect();
    archive::write(&entries, index.created, &mut file).context("cannot write the archive")?;
    file.finish()?;
    let report = BundleReport {
        file: Some(arguments.output_file.as_path()),
        ..index
    };
    print(&report, &arguments.output, &session.terminal)?;
    Ok(Verdict::Met)
}
