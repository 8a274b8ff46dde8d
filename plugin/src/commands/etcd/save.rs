//! Saves a snapshot of etcd's data, for `etcd snapshot` and for the changes that take one first.

use std::{
    io::{self, BufWriter, Write},
    path::Path,
    time::Duration,
};

use anyhow::Context as _;
use kcp_api::Object as _;
use kcp_client::{reader::Reader, reads::etcd::MemberConnection};
use kcp_control_plane::{
    change::decision::Refusal,
    snapshot::{Snapshot, change::ReadScope},
    verbs::etcd::snapshot::{SnapshotRecord, SnapshotSource, select_source},
};
use kcp_etcd::SnapshotStream;

use crate::{
    change::{
        arguments::{FIELD_MANAGER, WriteArguments},
        engine::{Engine, Verb},
    },
    commands::etcd::EtcdMembers,
    file::{NewFile, STDIN},
    output::OutputArguments,
    terminal::Terminal,
};

/// How long a member may send nothing before the snapshot fails.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// The number of bytes that are collected before they are written to the file.
const BUFFER_BYTES: usize = 1 << 20;

/// Which snapshot to save, and where.
pub(crate) struct SaveRequest<'r> {
    /// The control plane.
    pub(crate) name: &'r str,
    /// The file to create, or `-` ([`STDIN`]) for stdout.
    pub(crate) file: &'r Path,
    /// The member that sends the snapshot; `None` for a follower.
    pub(crate) member: Option<&'r str>,
    /// Whether to record the snapshot on the control plane.
    pub(crate) is_recorded: bool,
    /// The time limit for finding a member and connecting to it.
    pub(crate) timeout: Duration,
}

pub(crate) struct Saved {
    pub(crate) observed: Snapshot,
    pub(crate) record: SnapshotRecord,
}

impl SaveRequest<'_> {
    pub(crate) fn is_stdout(&self) -> bool {
        self.file == Path::new(STDIN)
    }

    /// Saves the snapshot. The inner error is the reason why no member is suitable.
    pub(crate) async fn save(
        &self,
        reader: &Reader<'_>,
        terminal: &Terminal,
    ) -> anyhow::Result<Result<Saved, Refusal>> {
        // Create the file first, so that a folder that cannot be written is an error before any data is sent.
        let file = (!self.is_stdout())
            .then(|| NewFile::create(self.file))
            .transpose()?;
        let members = EtcdMembers {
            reader,
            control_plane: self.name,
            timeout: self.timeout,
        };
        let observed = members.observe().await?;
        let SnapshotSource { member, warnings } = match select_source(&observed, self.member) {
            Ok(source) => source,
            Err(refusal) => return Ok(Err(refusal)),
        };
        for warning in &warnings {
            terminal.warning(warning);
        }
        let opened = members.open(&observed, &member, IDLE_LIMIT).await?;
        let mut stream = opened.start_snapshot().await?;
        if let Some(mut file) = file {
            receive(&opened, &mut stream, &mut file, terminal).await?;
            file.finish()?;
        } else {
            receive(&opened, &mut stream, &mut io::stdout().lock(), terminal).await?;
        }
        let record = SnapshotRecord {
            uid: observed.control_plane.uid().to_owned(),
            completed: reader.connection.now(),
            member: member.name,
            bytes: stream.received_bytes(),
        };
        if self.is_recorded {
            Box::pin(store_record(&record, &observed, reader, terminal)).await;
        }
        Ok(Ok(Saved { observed, record }))
    }
}

/// Writes the snapshot as it arrives, and shows the progress.
async fn receive(
    connection: &MemberConnection,
    stream: &mut SnapshotStream,
    output: &mut impl Write,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, output);
    let mut shown = None;
    loop {
        let chunk = stream.next().await;
        let Some(chunk) = chunk.map_err(|error| connection.describe(error))? else {
            break;
        };
        writer
            .write_all(&chunk.bytes)
            .context("cannot write the snapshot")?;
        let received = stream.received_bytes();
        let mebibytes = received >> 20;
        if shown != Some(mebibytes) {
            let whole = (received + chunk.remaining_bytes) >> 20;
            terminal.spin(&format!("{mebibytes} of {whole} MiB"));
            shown = Some(mebibytes);
        }
    }
    writer.flush().context("cannot write the snapshot")?;
    terminal.stop_spinning();
    Ok(())
}
/// Records the snapshot on the control plane. A failure causes only a warning, because the snapshot is complete.
async fn store_record(
    record: &SnapshotRecord,
    observed: &Snapshot,
    reader: &Reader<'_>,
    terminal: &Terminal,
) {
    let write = WriteArguments {
        dry_run: None,
        output: OutputArguments::default(),
        field_manager: FIELD_MANAGER.to_owned(),
    };
    let engine = Engine {
        reader,
        terminal,
        arguments: &write,
        configuration: None,
    };
    let verb = Verb {
        name: observed.control_plane.name(),
        infinitive: "record the snapshot on",
        not_done: "snapshot not recorded",
        force_effect: None,
        waits_for_replacement: false,
    };
    let changed = engine.change_control_plane(&verb, ReadScope::ControlPlane, |snapshot, context| {
        Ok(record.decide(snapshot.control_plane(), context.now))
    });
    if let Err(error) = Box::pin(changed).await {
        terminal.warning(&format!(
            "the snapshot is complete, but could not be recorded on the control plane: {error:#}"
        ));
    }
}
