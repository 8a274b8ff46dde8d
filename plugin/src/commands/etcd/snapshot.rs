//! `kubectl kcp etcd snapshot`: saves a snapshot of etcd's data, which `etcdutl snapshot restore` restores.

use std::{num::NonZeroUsize, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use kcp_api::{Object as _, kind::KUBEADM_CONTROL_PLANE, snapshot_record::SnapshotRecord};
use kcp_client::{Connection, reader::Reader};
use kcp_control_plane::verbs::etcd::snapshot::place::SnapshotPlace;
use serde::Serialize;
use serde_json::Value;

use crate::{
    arguments::parse_timeout,
    change::confirmation::ConfirmArguments,
    commands::etcd::{
        report::{Collected, ListReport, UnfinishedMaintenance},
        save::{SaveOutcome, SaveRequest, Saved},
        several::{Selected, SelectionArguments},
        snapshot_list, snapshot_verify,
        stored::{FolderRequest, SnapshotFolder},
    },
    document::{Document, ObjectName, Versioned, resource_name},
    output::{OutputArguments, Report, print},
    session::Session,
    signal::EndSignal,
    terminal::{Terminal, escape, table::Layout},
    verdict::Verdict,
};

/// Save snapshots of etcd, or list those in a folder.
#[derive(Debug, Args)]
#[command(
    after_help = "A follower, if there is one, sends the snapshot through the API server of the workload cluster. The \
        file or the object gets its name only after the command has checked the hash of the snapshot. The snapshot \
        contains every Secret of the workload cluster: store it like a private key, or \
        pipe it to a program that encrypts, such as age. To restore it: kubectl kcp etcd restore NAME --from FILE --output-file SCRIPT

s3://BUCKET/NAME is an object of S3, or of a server with the same API at AWS_ENDPOINT_URL. A name that ends with / is a folder. \
        The credentials and the region are those of AWS's tools: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, \
        AWS_SESSION_TOKEN and AWS_REGION, or the role of the Pod or the machine. AWS_CA_BUNDLE names a file with CAs.

In a folder, a snapshot gets a name with the namespace and the name of the control plane, and the time. --list and --keep recognize \
        a snapshot by this name, and touch nothing else. --keep deletes only after the new snapshot is complete. Without a terminal, --keep \
        needs --yes, or the command saves nothing.

Examples:
  kubectl kcp etcd snapshot edge --output-file edge.db
  kubectl kcp etcd snapshot edge --output-file s3://backups/prod/
  kubectl kcp etcd snapshot -A --output-file s3://backups/prod/ --keep 30 --yes
  kubectl kcp etcd snapshot edge --output-file s3://backups/prod/ --list
  kubectl kcp etcd snapshot edge --output-file s3://backups/prod/ --verify
  kubectl kcp etcd snapshot edge --output-file edge.db --member edge-9hng4"
)]
pub struct SnapshotArguments {
    #[command(flatten)]
    pub selection: SelectionArguments,

    #[arg(
        long,
        value_name = "FILE",
        help = "File or s3://BUCKET/NAME to create, or a folder in which the snapshot gets a name, or - for stdout"
    )]
    pub output_file: SnapshotPlace,

    /// Member that sends the snapshot, by the name of its node or Machine [default: a follower]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all_namespaces", "selector"])]
    pub member: Option<String>,

    /// Do not record the snapshot on the control plane
    #[arg(long)]
    pub no_record: bool,

    /// Afterwards, delete older snapshots of the control plane from the folder, so that N are left, including the new one
    #[arg(long, value_name = "N")]
    pub keep: Option<NonZeroUsize>,

    #[command(flatten)]
    pub confirm: ConfirmArguments,

    /// Only list the snapshots in the folder: those of the control plane, or all with -A
    #[arg(long, conflicts_with_all = ["selector", "member", "no_record", "keep"])]
    pub list: bool,

    /// Save nothing, but verify the newest snapshot of the control plane in the folder: restore it on this machine, with
    /// etcdutl and etcd of PATH, and compare its hash and its number of keys with those of a member
    #[arg(long, conflicts_with_all = ["all_namespaces", "selector", "no_record", "keep", "list"])]
    pub verify: bool,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for finding a member and connecting to it, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}

pub async fn run(arguments: &SnapshotArguments, session: &Session) -> anyhow::Result<Verdict> {
    let place = &arguments.output_file;
    let request = FolderRequest {
        place,
        name: arguments.selection.name.as_ref(),
        member: arguments.member.as_deref(),
        timeout: arguments.timeout,
        output: &arguments.output,
    };
    if arguments.list {
        return Box::pin(snapshot_list::run(&request, session)).await;
    }
    if arguments.verify {
        return Box::pin(snapshot_verify::run(&request, session)).await;
    }
    if *place == SnapshotPlace::Stdout && !arguments.output.is_text() {
        bail!("--output cannot be used with --output-file -, because the snapshot goes to stdout");
    }
    if arguments.keep.is_some() {
        // The question comes last, so find out first whether anybody can answer it.
        arguments.confirm.check_answerable("delete older snapshots")?;
    }
    let is_list = arguments.selection.name.is_none();
    let folder = (is_list || arguments.keep.is_some())
        .then(|| SnapshotFolder::open(place))
        .transpose()
        .context("-A, -l and --keep need a folder")?;
    let collected = Collected::default();
    let Selected { verdicts, failed } = arguments
        .selection
        .for_each(arguments.timeout, session, is_list, async |connection, name| {
            let run = SnapshotRun {
                arguments,
                folder: folder.as_ref(),
                collected: is_list.then_some(&collected),
                terminal: &session.terminal,
            };
            Box::pin(run.save(connection, name)).await
        })
        .await?;
    let list = ListReport {
        document: SnapshotListDocument {
            items: collected.documents(),
            failed,
        },
        names: collected.names(),
        is_empty: verdicts.is_empty(),
    };
    // The text of each item is printed already.
    if is_list && (!arguments.output.is_text() || list.is_empty) {
        print(&list, &arguments.output, &session.terminal)?;
    }
    Ok(Verdict::worst(verdicts))
}

/// Saves the snapshot of each control plane.
struct SnapshotRun<'r> {
    arguments: &'r SnapshotArguments,
    /// The folder; `None` if the command saves one snapshot, and deletes none.
    folder: Option<&'r SnapshotFolder>,
    /// The documents of several snapshots, which are printed as one list.
    collected: Option<&'r Collected>,
    terminal: &'r Terminal,
}

impl SnapshotRun<'_> {
    async fn save(&self, connection: &Connection, name: &str) -> anyhow::Result<Verdict> {
        let Self {
            arguments, terminal, ..
        } = self;
        let request = SaveRequest {
            name,
            place: &arguments.output_file,
            member: arguments.member.as_deref(),
            is_recorded: !arguments.no_record,
            timeout: arguments.timeout,
        };
        let reader = Reader::discover(connection).await?;
        // Before this line, a signal ends the process. This is safe, because nothing is stored yet.
        let mut signal = EndSignal::listen().context("cannot receive signals")?;
        let saved = match Box::pin(request.save(&reader, terminal, signal.wait())).await? {
            SaveOutcome::Saved(saved) => saved,
            SaveOutcome::Interrupted => return Ok(Verdict::Interrupted),
            SaveOutcome::Refused(refusal) => {
                let error = anyhow!(
                    "cannot save an etcd snapshot of kubeadmcontrolplane/{}: {}",
                    escape(name),
                    refusal.why.join("; ")
                );
                if self.collected.is_some() {
                    return Err(error);
                }
                terminal.error(&error, refusal.remedies.first().map(String::as_str));
                return Ok(Verdict::Negative);
            }
        };
        let mut deleted = Vec::new();
        let cleaned = tokio::select! {
            cleaned = Box::pin(self.delete_superseded(&saved, &mut deleted)) => cleaned.map(|()| Verdict::Met),
            () = signal.wait() => Ok(Verdict::Interrupted),
        };
        let report = SnapshotReport {
            saved: &saved,
            deleted,
        };
        match self.collected {
            Some(collected) if !arguments.output.is_text() => collected.add(&report)?,
            _ if arguments.output_file == SnapshotPlace::Stdout => terminal.note(&saved.line()),
            _ => print(&report, &arguments.output, terminal)?,
        }
        cleaned.context("the snapshot is complete, but --keep could not delete the older ones")
    }

    /// Deletes the snapshots that `--keep` does not keep, and adds them to `deleted`.
    async fn delete_superseded(&self, saved: &Saved, deleted: &mut Vec<String>) -> anyhow::Result<()> {
        let (Some(folder), Some(kept)) = (self.folder, self.arguments.keep) else {
            return Ok(());
        };
        // Snapshots from before this time are of an earlier control plane with the same name. They may be its last ones.
        let created = saved.observed.control_plane.metadata.creation_timestamp.as_ref();
        let created = created.map(|created| created.0);
        let superseded = folder.superseded(&saved.name, created, kept).await?;
        if superseded.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = superseded.iter().map(|stored| stored.name.to_string()).collect();
        let goal = format!("delete the older snapshots {}", names.join(", "));
        let place = format!("from {}", self.arguments.output_file);
        if !self
            .arguments
            .confirm
            .confirm(&goal, &place, false, self.terminal)
            .await?
        {
            self.terminal
                .note("the older snapshots were not deleted: you did not confirm the deletion");
            return Ok(());
        }
        for stored in &superseded {
            folder.delete(stored).await?;
            deleted.push(stored.place.to_string());
        }
        Ok(())
    }
}

impl Saved {
    /// One line about the snapshot.
    pub(crate) fn line(&self) -> String {
        let place = self.place.as_ref();
        let place = place.map(|place| format!(", in {place}")).unwrap_or_default();
        escape(&format!(
            "kubeadmcontrolplane/{}: snapshot of etcd member {} is complete, {} bytes{place}",
            self.observed.control_plane.name(),
            self.record.member,
            self.record.bytes
        ))
        .into_owned()
    }
}

/// A snapshot that was saved, and those that it replaces.
struct SnapshotReport<'r> {
    saved: &'r Saved,
    /// The files or objects that were deleted.
    deleted: Vec<String>,
}

impl Report for SnapshotReport<'_> {
    fn table(&self, _: Layout) -> String {
        let deleted = self
            .deleted
            .iter()
            .map(|place| format!("deleted {}\n", escape(place)));
        format!("{}\n{}", self.saved.line(), deleted.collect::<String>())
    }

    fn document(&self) -> impl Serialize {
        Versioned(SnapshotDocument::new(self))
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(
            &KUBEADM_CONTROL_PLANE,
            self.saved.observed.control_plane.name(),
        )]
    }
}

/// A snapshot of a control plane's etcd.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct SnapshotDocument<'r> {
    metadata: ObjectName,
    snapshot: &'r SnapshotRecord,
    /// The files or objects with older snapshots that were deleted.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[cfg_attr(test, schemars(default))]
    deleted: &'r [String],
}

impl Document for SnapshotDocument<'_> {
    const KIND: &'static str = "EtcdSnapshot";
}

impl<'r> SnapshotDocument<'r> {
    fn new(report: &'r SnapshotReport<'_>) -> Self {
        Self {
            metadata: ObjectName::from(&report.saved.observed.control_plane),
            snapshot: &report.saved.record,
            deleted: &report.deleted,
        }
    }
}

/// The snapshots of the etcd of several control planes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct SnapshotListDocument {
    #[cfg_attr(test, schemars(with = "Vec<Versioned<SnapshotDocument<'static>>>"))]
    items: Vec<Value>,
    /// The control planes of which no snapshot was saved.
    failed: Vec<UnfinishedMaintenance>,
}

impl Document for SnapshotListDocument {
    const KIND: &'static str = "EtcdSnapshotList";
}

#[cfg(test)]
mod tests {
    use kcp_api::snapshot_record::SnapshotRecord;
    use kcp_control_plane::{
        testing::{objects::now, snapshot::observed},
        verbs::etcd::snapshot::name::SnapshotName,
    };

    use super::{
        Collected, ListReport, SnapshotDocument, SnapshotListDocument, SnapshotReport, UnfinishedMaintenance,
    };
    use crate::{
        commands::etcd::save::Saved,
        document::ObjectName,
        output::Report as _,
        terminal::table::Layout,
        testing::{assert_every_format, schema},
    };

    fn saved(place: Option<&str>) -> Saved {
        let observed = observed();
        Saved {
            name: SnapshotName::new("d", "c1-cp", now()),
            observed,
            place: place.map(str::to_owned),
            record: SnapshotRecord {
                uid: "u1".to_owned(),
                completed: now(),
                member: "node-m2".to_owned(),
                bytes: 20_512,
                place: place.map(str::to_owned),
            },
        }
    }

    #[test]
    fn the_document_is_as_its_schema_says() {
        for (place, deleted, end) in [
            (Some("/b/edge.db"), &[][..], ", in /b/edge.db\n"),
            (
                Some("s3://b/new.db"),
                &["s3://b/old.db", "s3://b/older.db"],
                ", in s3://b/new.db\ndeleted s3://b/old.db\ndeleted s3://b/older.db\n",
            ),
            (None, &[], "\n"),
        ] {
            let saved = saved(place);
            let report = SnapshotReport {
                saved: &saved,
                deleted: deleted.iter().map(ToString::to_string).collect(),
            };
            assert_eq!(
                report.table(Layout::default()),
                format!(
                    "kubeadmcontrolplane/c1-cp: snapshot of etcd member node-m2 is complete, 20512 bytes{end}"
                )
            );
            schema::conforms(&SnapshotDocument::new(&report));
            assert_every_format(&report);
        }
        schema::checked_in::<SnapshotDocument<'_>>("etcdsnapshot.json");
    }

    #[test]
    fn a_list_has_what_was_saved_and_what_failed() {
        let saved = saved(Some("s3://b/new.db"));
        let collected = Collected::default();
        let report = SnapshotReport {
            saved: &saved,
            deleted: vec!["s3://b/old.db".to_owned()],
        };
        collected.add(&report).expect("JSON");
        let failed = UnfinishedMaintenance {
            metadata: ObjectName::from(&saved.observed.control_plane),
            error: "no responding etcd member has a leader".to_owned(),
        };
        let list = ListReport {
            document: SnapshotListDocument {
                items: collected.documents(),
                failed: vec![failed],
            },
            names: collected.names(),
            is_empty: false,
        };
        schema::conforms(&list.document);
        assert_every_format(&list);
        assert_eq!(list.table(Layout::default()), "");
        schema::checked_in::<SnapshotListDocument>("etcdsnapshotlist.json");
    }
}
