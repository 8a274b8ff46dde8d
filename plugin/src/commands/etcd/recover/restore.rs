//! `kubectl kcp etcd restore`: writes the script that restores a snapshot on one host, if the data of all members is lost or wrong.

use std::{
    collections::BTreeSet,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;
use jiff::Timestamp;
use kcp_api::{Object as _, snapshot_record::SnapshotRecord};
use kcp_client::{ReadLimit, reader::Reader, reads::certificates::read_authority};
use kcp_control_plane::{
    snapshot::Snapshot,
    verbs::etcd::{
        recover::restore::{AUTHORITY_KEY, RestorableSnapshot, decide, node_key},
        snapshot::{
            name::SnapshotName,
            place::{ObjectPlace, SnapshotPlace},
        },
    },
};

use crate::{
    arguments::{ControlPlaneName, parse_control_plane},
    commands::etcd::{
        recover::{READ_LIMIT, SnapshotCopy, members, note_lines, refuse, report, write_script},
        scratch::{ScratchMember, folder},
        stored::{SnapshotFolder, is_folder},
        stored_content::read_content,
    },
    file::NewFile,
    output::{OutputArguments, print},
    session::Session,
    signal::EndSignal,
    terminal::{Terminal, table::Layout},
    verdict::Verdict,
};
use report::{RecoveryOutcome, RecoveryReport};

const NOT_DONE: &str = "not restored";

/// Restore a snapshot of etcd, if the data of all members is lost or wrong.
#[derive(Debug, Args)]
#[command(
    after_help = "Use this command only if no member has the data any more, or if the data is wrong; if a member still has it, use \
        `kubectl kcp etcd recover NAME`. Writes after the snapshot are lost.

The command reads the snapshot on this machine, with etcd and etcdutl of PATH: it checks the hash, and that the CA in the \
        snapshot is that of the Cluster. The command changes nothing in the cluster. It writes a script; if the snapshot is in \
        S3, it also copies the snapshot to the folder of the script. Copy both to one folder of the host that the command names, \
        and run the script there as the help of `etcd recover` says. The host needs etcdutl, in the image of etcd or on \
        PATH. Then `kubectl kcp etcd recover NAME --continue` replaces the other Machines.

Examples:
  kubectl kcp etcd restore edge --from edge.db --output-file restore.sh
  kubectl kcp etcd restore edge --from s3://backups/prod/ --survivor edge-9hng4 --output-file restore.sh"
)]
pub struct RestoreArguments {
    /// Control plane, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    #[arg(
        long,
        value_name = "FILE",
        help = "File or s3://BUCKET/NAME with the snapshot, or a folder with snapshots: the newest one of the control plane is restored"
    )]
    pub from: SnapshotPlace,

    /// Machine or Node of the host on which the snapshot is restored [default: the first whose Node is in the snapshot]
    #[arg(long, value_name = "MACHINE")]
    pub survivor: Option<String>,

    /// Create this file with the script for the host
    #[arg(long, value_name = "FILE")]
    pub output_file: PathBuf,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Runs `etcd restore`. A signal ends the scratch member, and removes every file that is not complete.
pub async fn run(arguments: &RestoreArguments, session: &Session) -> anyhow::Result<Verdict> {
    let mut signal = EndSignal::listen().context("cannot receive signals")?;
    tokio::select! {
        verdict = Box::pin(restore(arguments, session)) => verdict,
        () = signal.wait() => Ok(Verdict::Interrupted),
    }
}

async fn restore(arguments: &RestoreArguments, session: &Session) -> anyhow::Result<Verdict> {
    let terminal = &session.terminal;
    // Create the file first, so that a folder that cannot be written is an error before the reads.
    let mut file = NewFile::create(&arguments.output_file)?;
    let connection = session.connect_within(READ_LIMIT).await?;
    let reader = Reader::discover(&connection).await?;
    let limit = ReadLimit::per_read(READ_LIMIT);
    let name = arguments.name.read(&reader, limit).await?;
    let observed = members(&name, &reader).observe().await?;
    let control_plane = &observed.control_plane;
    let cluster = control_plane.cluster().with_context(|| {
        format!(
            "the control plane has no Cluster yet; see what it waits for with: kubectl kcp why {} -n {}",
            control_plane.name(),
            control_plane.namespace()
        )
    })?;
    let authority = read_authority(&reader, control_plane.namespace(), cluster, limit).await;
    let authority = authority.context("cannot find out to which cluster the snapshot must belong")?;
    let place = snapshot_place(&arguments.from, &connection.namespace, &name).await?;
    let local = LocalSnapshot::read(place, &arguments.output_file, terminal).await?;
    let (copy, downloaded) = local.inspect(&observed, connection.now(), terminal).await?;
    terminal.stop_spinning();
    let survivor = arguments.survivor.as_deref();
    let remains = match decide(&observed, &copy.snapshot, &authority, survivor, connection.now()) {
        Ok(remains) => remains,
        Err(refusal) => return refuse(&arguments.output, session, &observed, NOT_DONE, &refusal),
    };
    let script = write_script(&observed, &remains, Some(&copy))?;
    file.write_all(script.as_bytes())
        .context("cannot write the script")?;
    if let Some(downloaded) = downloaded {
        downloaded.finish()?;
    }
    file.finish()?;
    let report = RecoveryReport {
        control_plane,
        outcome: RecoveryOutcome::Script {
            remains: &remains,
            script: None,
            file: Some(&arguments.output_file),
            source: Some(&copy),
        },
    };
    if !arguments.output.is_text() {
        note_lines(terminal, &report.summary(Layout::default()));
    }
    print(&report, &arguments.output, terminal)?;
    Ok(report.verdict())
}

/// The file or the object with the snapshot. If the user named a folder, this is the newest snapshot of the control plane in it.
async fn snapshot_place(place: &SnapshotPlace, namespace: &str, name: &str) -> anyhow::Result<SnapshotPlace> {
    ensure!(
        !matches!(place, SnapshotPlace::Stdout),
        "--from cannot be - (stdin), because the command reads the snapshot twice: name a file or s3://BUCKET/NAME"
    );
    if !is_folder(place) {
        return Ok(place.clone());
    }
    Ok(SnapshotFolder::open(place)?.newest(namespace, name).await?.place)
}

/// A snapshot in a file on this machine. Its hash is correct.
struct LocalSnapshot {
    place: SnapshotPlace,
    /// The file that the user copies to the host.
    file: PathBuf,
    /// The downloaded file, which has no final name yet. `None` if the snapshot was already in a file of the user.
    downloaded: Option<NewFile>,
    bytes: u64,
    hash: String,
}

impl LocalSnapshot {
    /// Reads the snapshot. An object is stored beside the script.
    async fn read(place: SnapshotPlace, script: &Path, terminal: &Terminal) -> anyhow::Result<Self> {
        terminal.spin("reading the snapshot");
        let file = match &place {
            SnapshotPlace::File(path) => path.clone(),
            SnapshotPlace::Object(object) => script.with_file_name(file_name(object)),
            SnapshotPlace::Stdout => return Err(anyhow!("stdout contains no snapshot")),
        };
        let is_object = matches!(place, SnapshotPlace::Object(_));
        let mut downloaded = is_object.then(|| NewFile::create(&file)).transpose()?;
        let content = read_content(&place, |part| match &mut downloaded {
            Some(file) => file.write_all(part),
            None => Ok(()),
        })
        .await?;
        let hash = content
            .hash
            .map_err(|why| anyhow!("{place} cannot be restored: {why}"))?;
        Ok(Self {
            place,
            file,
            downloaded,
            bytes: content.bytes,
            hash,
        })
    }

    /// Serves the snapshot on this machine, and reads what shows to which cluster the snapshot belongs.
    async fn inspect(
        self,
        observed: &Snapshot,
        now: Timestamp,
        terminal: &Terminal,
    ) -> anyhow::Result<(SnapshotCopy, Option<NewFile>)> {
        let name = self.file.file_name().and_then(|name| name.to_str());
        let began = name.and_then(|name| name.parse::<SnapshotName>().ok());
        let record = SnapshotRecord::from_control_plane(&observed.control_plane, now);
        let record = record.filter(|record| record.place.as_deref() == Some(&*self.place.to_string()));
        let taken = began.map(|name| name.began());
        terminal.spin("restoring the snapshot on this machine");
        let path = self.downloaded.as_ref().map(NewFile::temporary_path);
        let path = path.unwrap_or(&self.file);
        let scratch = Box::pin(ScratchMember::start(folder()?, path)).await?;
        let revision = scratch.revision().await?;
        let mut nodes = BTreeSet::new();
        for node in observed
            .machines
            .iter()
            .filter_map(|machine| observed.node_of(machine))
        {
            if scratch.value(&node_key(node)).await?.is_some() {
                nodes.insert(node.to_owned());
            }
        }
        let snapshot = RestorableSnapshot {
            place: self.place.to_string(),
            taken: taken.or(record.map(|record| record.completed)),
            bytes: self.bytes,
            revision,
            keys: scratch.count_keys(revision).await?,
            authority: scratch.value(AUTHORITY_KEY).await?,
            nodes,
        };
        let copy = SnapshotCopy {
            snapshot,
            file: self.file,
            hash: self.hash,
        };
        Ok((copy, self.downloaded))
    }
}

/// The name of an object without its folder.
fn file_name(object: &ObjectPlace) -> &str {
    object.key.rsplit('/').next().unwrap_or(&object.key)
}
