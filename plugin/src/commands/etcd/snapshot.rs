//! `kubectl kcp etcd snapshot`: saves a snapshot of etcd's data, which `etcdutl snapshot restore` restores.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::anyhow;
use clap::Args;
use kcp_api::{Object as _, kind::KUBEADM_CONTROL_PLANE};
use kcp_client::reader::Reader;
use kcp_control_plane::{snapshot::Snapshot, verbs::etcd::snapshot::SnapshotRecord};
use serde::Serialize;

use crate::{
    arguments::{parse_control_plane, parse_timeout},
    commands::etcd::save::{SaveRequest, Saved},
    document::{API_VERSION, ObjectName, resource_name},
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::{escape, table::Layout},
    verdict::Verdict,
};

/// Save a snapshot of a control plane's etcd.
#[derive(Debug, Args)]
#[command(
    after_help = "A follower, if there is one, sends the snapshot through the API server of the workload cluster. The \
        command creates the file under its final name only after it has checked the hash of the snapshot. The snapshot \
        contains every Secret of the workload cluster: store it like a private key, or \
        pipe it to a program that encrypts, such as age. Restore it with: etcdutl snapshot restore FILE

Examples:
  kubectl kcp etcd snapshot edge --output-file edge.db
  kubectl kcp etcd snapshot edge --output-file edge.db --member edge-9hng4"
)]
pub struct SnapshotArguments {
    /// Control plane, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// File to create, or - for stdout
    #[arg(long, value_name = "FILE")]
    pub output_file: PathBuf,

    /// Member that sends the snapshot, by the name of its node or Machine [default: a follower]
    #[arg(long, value_name = "NAME")]
    pub member: Option<String>,

    /// Do not record the snapshot on the control plane
    #[arg(long)]
    pub no_record: bool,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for finding a member and connecting to it, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}

/// Runs `etcd snapshot`.
pub async fn run(arguments: &SnapshotArguments, session: &Session) -> anyhow::Result<Verdict> {
    let terminal = &session.terminal;
    let request = SaveRequest {
        name: &arguments.name,
        file: &arguments.output_file,
        member: arguments.member.as_deref(),
        is_recorded: !arguments.no_record,
        timeout: arguments.timeout,
    };
    let is_stdout = request.is_stdout();
    if is_stdout && !arguments.output.is_text() {
        return Err(anyhow!(
            "--output cannot be used with --output-file -, because the snapshot goes to stdout"
        ));
    }
    let connection = session.connect_within(arguments.timeout).await?;
    let reader = Reader::discover(&connection).await?;
    let Saved { observed, record } = match Box::pin(request.save(&reader, terminal)).await? {
        Ok(saved) => saved,
        Err(refusal) => {
            let name = escape(&arguments.name);
            let error = anyhow!(
                "cannot save an etcd snapshot of kubeadmcontrolplane/{name}: {}",
                refusal.why.join("; ")
            );
            terminal.error(&error, refusal.remedies.first().map(String::as_str));
            return Ok(Verdict::Negative);
        }
    };
    let report = SnapshotReport {
        observed: &observed,
        file: (!is_stdout).then_some(arguments.output_file.as_path()),
        record,
    };
    if is_stdout {
        terminal.note(&report.line());
    } else {
        print(&report, &arguments.output, terminal)?;
    }
    Ok(Verdict::Met)
}

/// The result of `etcd snapshot`.
struct SnapshotReport<'r> {
    observed: &'r Snapshot,
    /// The file with the snapshot; `None` if the snapshot went to stdout.
    file: Option<&'r Path>,
    record: SnapshotRecord,
}

impl SnapshotReport<'_> {
    fn line(&self) -> String {
        let place = match self.file {
            Some(file) => format!(", in {}", escape(&file.display().to_string())),
            None => String::new(),
        };
        format!(
            "kubeadmcontrolplane/{}: snapshot of etcd member {} is complete, {} bytes{place}",
            escape(self.observed.control_plane.name()),
            escape(&self.record.member),
            self.record.bytes
        )
    }
}

impl Report for SnapshotReport<'_> {
    fn table(&self, _: Layout) -> String {
        self.line() + "\n"
    }

    fn document(&self) -> impl Serialize {
        SnapshotDocument::new(self)
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(
            &KUBEADM_CONTROL_PLANE,
            self.observed.control_plane.name(),
        )]
    }
}

/// A snapshot of a control plane's etcd.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(title = "EtcdSnapshot"))]
#[serde(rename_all = "camelCase")]
pub(crate) struct SnapshotDocument<'r> {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "EtcdSnapshot")))]
    kind: &'static str,
    metadata: ObjectName,
    /// The file with the snapshot.
    file: Option<String>,
    snapshot: &'r SnapshotRecord,
}

impl<'r> SnapshotDocument<'r> {
    fn new(report: &'r SnapshotReport<'_>) -> Self {
        Self {
            api_version: API_VERSION,
            kind: "EtcdSnapshot",
            metadata: ObjectName::from(&report.observed.control_plane),
            file: report.file.map(|file| file.display().to_string()),
            snapshot: &report.record,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kcp_control_plane::{
        testing::{objects::now, snapshot::observed},
        verbs::etcd::snapshot::SnapshotRecord,
    };

    use super::{SnapshotDocument, SnapshotReport};
    use crate::{output::Report as _, terminal::table::Layout, testing::schema};

    #[test]
    fn the_document_is_as_its_schema_says() {
        let observed = observed();
        let report = SnapshotReport {
            observed: &observed,
            file: Some(Path::new("edge.db")),
            record: SnapshotRecord {
                uid: "u1".to_owned(),
                completed: now(),
                member: "node-m2".to_owned(),
                bytes: 20_512,
            },
        };
        assert_eq!(
            report.table(Layout::default()),
            "kubeadmcontrolplane/c1-cp: snapshot of etcd member node-m2 is complete, 20512 bytes, in edge.db\n"
        );
        schema::conforms(&SnapshotDocument::new(&report));
        schema::checked_in::<SnapshotDocument<'_>>("etcdsnapshot.json");
    }
}
