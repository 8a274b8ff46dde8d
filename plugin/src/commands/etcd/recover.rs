//! `kubectl kcp etcd recover`: brings back an etcd that has lost its quorum for good, from the member that is left.
//!
//! - this file: writes the script for the host of that member
//! - [`resume`]: does through the API what is left after the script has run
//! - [`report`]: what the command prints
//! - [`restore`]: `kubectl kcp etcd restore`, which writes the script for a host on which a snapshot is restored
//! - [`drill`]: checks whether everything that a recovery needs is there

mod drill;
mod report;
pub mod restore;
mod resume;

use std::{
    io::Write as _,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use kcp_api::Object as _;
use kcp_client::{ReadLimit, reader::Reader};
use kcp_control_plane::{
    change::decision::Refusal,
    snapshot::Snapshot,
    verbs::etcd::recover::{
        remains::{ControlPlaneHost, Remains, find},
        restore::RestorableSnapshot,
    },
};
use report::{RecoveryOutcome, RecoveryReport};
use serde_json::json;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane, parse_timeout},
    change::{arguments::WriteArguments, confirmation::ConfirmArguments, report::RefusalReport},
    commands::{etcd::EtcdMembers, node::shell::fill},
    file::NewFile,
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::{Terminal, table::Layout},
    verdict::Verdict,
};

/// The script for the host.
const SCRIPT: &str = include_str!("recover/recover.sh");

/// The time limit for reading the control plane and its members once.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// The port on which etcd members serve each other in the manifests of kubeadm.
const PEER_PORT: u16 = 2380;

/// The snapshot that a script restores, in a file on this machine.
#[derive(Debug)]
struct SnapshotCopy {
    snapshot: RestorableSnapshot,
    file: PathBuf,
    /// The SHA-256 hash with which the snapshot ends, in hexadecimal digits.
    hash: String,
}

impl SnapshotCopy {
    /// The name of the file, which must be the same on the host.
    fn name(&self) -> String {
        let name = self.file.file_name().map(Path::new);
        name.map(|name| name.display().to_string()).unwrap_or_default()
    }
}

/// Bring back an etcd that has lost its quorum for good, from the member that is left.
#[derive(Debug, Args)]
#[command(
    after_help = "Use this command only if no majority of the members can ever run again; otherwise start the members. It has \
        two parts:

1. The command prints a script for the host of the member that is left, and changes nothing. Run as `bash SCRIPT`, the script only \
        prints what the member has, and names the other members. If several hosts are left, compare them, and name the one with the \
        newest data with --survivor. Only if the hosts of all other members are off, and their data is lost or older, run the \
        script with --lost MEMBER,MEMBER: the script keeps a copy of etcd's data, and makes this member the only one.
2. With --continue, the command deletes the Machines that have lost their members, one after the other, and waits until the \
        controller has replaced them and every member is healthy.

Each part can be interrupted at any time, and run again. --yes, --dry-run and --timeout apply only to --continue.

With --drill, the command only checks whether everything that a recovery needs is there, and exits with 0 only if it is. Run it \
        each month. It reads the whole snapshot that was recorded last, to check its hash. It cannot know whether you can log in \
        to the hosts.

Examples:
  kubectl kcp etcd recover edge --drill
  kubectl kcp etcd recover edge --survivor edge-9hng4 --output-file recover.sh
  kubectl kcp etcd recover edge --continue"
)]
pub struct RecoverArguments {
    /// Control plane, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// Machine or Node of the host on which etcd continues; if several hosts may be left, the script only checks unless this flag
    /// is set
    #[arg(long, value_name = "MACHINE", conflicts_with = "resume")]
    pub survivor: Option<String>,

    /// Create this file with the script for the host, instead of printing the script
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub output_file: Option<PathBuf>,

    /// Only check whether everything that a recovery needs is there: a recent snapshot, access, running controllers, and
    /// etcdutl on each host
    #[arg(long, conflicts_with_all = ["survivor", "output_file", "resume"])]
    pub drill: bool,

    /// After the script has run: replace the Machines that have lost their members
    #[arg(long = "continue")]
    pub resume: bool,

    #[command(flatten)]
    pub confirm: ConfirmArguments,

    #[command(flatten)]
    pub write: WriteArguments,

    /// With --continue, how long to wait until every member is healthy
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "30m")]
    pub timeout: Duration,
}

pub async fn run(arguments: &RecoverArguments, session: &Session) -> anyhow::Result<Verdict> {
    if arguments.drill {
        return Box::pin(drill::run(arguments, session)).await;
    }
    if arguments.resume {
        return Box::pin(resume::run(arguments, session)).await;
    }
    // Create the file first, so that a folder that cannot be written is an error before the reads.
    let file = arguments
        .output_file
        .as_deref()
        .map(NewFile::create)
        .transpose()?;
    let connection = session.connect_within(READ_LIMIT).await?;
    let reader = Reader::discover(&connection).await?;
    let name = arguments
        .name
        .read(&reader, ReadLimit::per_read(READ_LIMIT))
        .await?;
    let observed = members(&name, &reader).observe().await?;
    let remains = match find(&observed, arguments.survivor.as_deref(), connection.now()) {
        Ok(remains) => remains,
        Err(refusal) => {
            let output = &arguments.write.output;
            return refuse(output, session, &observed, "not recovered", &refusal);
        }
    };
    let script = write_script(&observed, &remains, None)?;
    if let Some(mut file) = file {
        file.write_all(script.as_bytes())
            .context("cannot write the script")?;
        file.finish()?;
    }
    let report = RecoveryReport {
        control_plane: &observed.control_plane,
        outcome: RecoveryOutcome::Script {
            remains: &remains,
            script: arguments.output_file.is_none().then_some(&script),
            file: arguments.output_file.as_deref(),
            source: None,
        },
    };
    // Text on stdout is the script, so that it can be piped to the host.
    if report.prints_script() || !arguments.write.output.is_text() {
        note_lines(&session.terminal, &report.summary(Layout::default()));
    }
    print(&report, &arguments.write.output, &session.terminal)?;
    Ok(report.verdict())
}

const fn members<'r>(control_plane: &'r str, reader: &'r Reader<'r>) -> EtcdMembers<'r> {
    EtcdMembers {
        reader,
        control_plane,
        timeout: READ_LIMIT,
    }
}

fn write_script(
    observed: &Snapshot,
    remains: &Remains,
    source: Option<&SnapshotCopy>,
) -> anyhow::Result<String> {
    let hosts = remains.hosts.iter().filter(|host| !host.is_deleting);
    let nodes: Vec<&str> = hosts.map(|host| host.node.as_str()).collect();
    let others = source.map(|_| other_members(remains)).unwrap_or_default();
    let control_plane = &observed.control_plane;
    let values = [
        ("nodes", nodes.join(" ")),
        ("survivor", remains.survivor.clone().unwrap_or_default()),
        (
            "continue_with",
            report::continue_command(control_plane.name(), control_plane.namespace()),
        ),
        ("snapshot", source.map(SnapshotCopy::name).unwrap_or_default()),
        ("hash", source.map(|copy| copy.hash.clone()).unwrap_or_default()),
        ("others", others),
    ];
    fill(SCRIPT, &values)
}

/// The members on all hosts except that of the survivor, as etcd lists members: one JSON object a line.
fn other_members(remains: &Remains) -> String {
    let others = remains
        .hosts
        .iter()
        .filter(|host| Some(&host.node) != remains.survivor.as_ref());
    let line = |host: &ControlPlaneHost| {
        let place = host.address.as_ref().map(|address| match address.parse() {
            Ok(IpAddr::V6(address)) => format!("https://[{address}]:{PEER_PORT}"),
            _ => format!("https://{address}:{PEER_PORT}"),
        });
        let places: Vec<String> = place.into_iter().collect();
        json!({"name": host.node, "peerURLs": places}).to_string()
    };
    others.map(line).collect::<Vec<_>>().join("\n")
}

/// Prints why the command does nothing.
fn refuse(
    output: &OutputArguments,
    session: &Session,
    observed: &Snapshot,
    not_done: &str,
    refusal: &Refusal,
) -> anyhow::Result<Verdict> {
    let report = RefusalReport {
        control_plane: &observed.control_plane,
        not_done,
        refusal,
    };
    let terminal = &session.terminal;
    if !output.is_text() {
        note_lines(terminal, &report.table(Layout::default()));
    }
    print(&report, output, terminal)?;
    for remedy in &refusal.remedies {
        terminal.hint(remedy);
    }
    Ok(Verdict::Negative)
}

fn note_lines(terminal: &Terminal, text: &str) {
    let text = anstream::adapter::strip_str(text).to_string();
    for line in text.lines() {
        terminal.note(line);
    }
}

#[cfg(test)]
mod tests;
