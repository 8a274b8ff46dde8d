//! Saves a snapshot of etcd's data, for `etcd snapshot` and for the changes that take one first.

use std::{future::Future, path::absolute, time::Duration};

use kcp_api::{Object as _, snapshot_record::SnapshotRecord};
use kcp_client::{reader::Reader, reads::etcd::MemberConnection};
use kcp_control_plane::{
    change::decision::Refusal,
    snapshot::{Snapshot, change::ReadScope},
    verbs::etcd::snapshot::{
        SnapshotSource, name::SnapshotName, place::SnapshotPlace, record_decision, select_source,
    },
};
use kcp_etcd::SnapshotStream;

use crate::{
    change::{
        arguments::{FIELD_MANAGER, WriteArguments},
        engine::{Engine, Verb},
    },
    commands::etcd::{
        EtcdMembers,
        sink::{ReadySink, SnapshotSink},
    },
    output::OutputArguments,
    terminal::Terminal,
};

/// How long a member may send nothing before the snapshot fails.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// Which snapshot to save, and where.
pub(crate) struct SaveRequest<'r> {
    /// The control plane.
    pub(crate) name: &'r str,
    pub(crate) place: &'r SnapshotPlace,
    /// The member that sends the snapshot; `None` for a follower.
    pub(crate) member: Option<&'r str>,
    /// Whether to record the snapshot on the control plane.
    pub(crate) is_recorded: bool,
    /// The time limit for finding a member and connecting to it.
    pub(crate) timeout: Duration,
}

/// How a request to save a snapshot has ended.
pub(crate) enum SaveOutcome {
    Saved(Box<Saved>),
    /// No member is suitable.
    Refused(Refusal),
    /// A signal has ended the command.
    Interrupted,
}

pub(crate) struct Saved {
    pub(crate) observed: Snapshot,
    /// The name that the snapshot has in a folder.
    pub(crate) name: SnapshotName,
    /// The place as the user wrote it. `None` for stdout.
    pub(crate) place: Option<String>,
    pub(crate) record: SnapshotRecord,
}

impl SaveRequest<'_> {
    /// Saves the snapshot, unless `interrupted` ends first. If the snapshot is not complete, deletes the parts that were uploaded.
    pub(crate) async fn save(
        &self,
        reader: &Reader<'_>,
        terminal: &Terminal,
        interrupted: impl Future<Output = ()>,
    ) -> anyhow::Result<SaveOutcome> {
        let mut sink = None;
        let mut outcome = tokio::select! {
            outcome = Box::pin(self.transfer(reader, terminal, &mut sink)) => outcome,
            () = interrupted => Ok(SaveOutcome::Interrupted),
        };
        // No signal interrupts this step. Otherwise, the server could give the object its name although this program reports that
        // the upload failed.
        if let Ok(SaveOutcome::Saved(_)) = &outcome
            && let Some(complete) = sink.take()
            && let Err(error) = complete.finish().await
        {
            outcome = Err(error);
        }
        terminal.stop_spinning();
        if let Some(sink) = sink {
            sink.abort(terminal).await;
        }
        if let Ok(SaveOutcome::Saved(saved)) = &outcome
            && self.is_recorded
        {
            Box::pin(store_record(&saved.record, &saved.observed, reader, terminal)).await;
        }
        outcome
    }

    /// Transfers the snapshot to `sink`, and checks it. The caller calls `finish` on the sink.
    async fn transfer(
        &self,
        reader: &Reader<'_>,
        terminal: &Terminal,
        sink: &mut Option<SnapshotSink>,
    ) -> anyhow::Result<SaveOutcome> {
        let connection = reader.connection;
        let name = SnapshotName::new(&connection.namespace, self.name, connection.now());
        // Open the place before the member sends data, so that a folder that cannot be written is an error at once.
        let ready = ReadySink::open(self.place, &name).await?;
        let place = ready.place();
        let members = EtcdMembers {
            reader,
            control_plane: self.name,
            timeout: self.timeout,
        };
        let observed = members.observe().await?;
        let SnapshotSource { member, warnings } = match select_source(&observed, self.member) {
            Ok(source) => source,
            Err(refusal) => return Ok(SaveOutcome::Refused(refusal)),
        };
        for warning in &warnings {
            terminal.warning(warning);
        }
        let opened = members.open(&observed, &member, IDLE_LIMIT).await?;
        let mut stream = opened.start_snapshot().await?;
        let begun = sink.insert(ready.begin().await?);
        receive(&opened, &mut stream, begun, terminal).await?;
        let shown = (place != SnapshotPlace::Stdout).then(|| place.to_string());
        let record = SnapshotRecord {
            uid: observed.control_plane.uid().to_owned(),
            completed: reader.connection.now(),
            member: member.name,
            bytes: stream.received_bytes(),
            place: match place {
                SnapshotPlace::Stdout => None,
                SnapshotPlace::File(path) => Some(absolute(&path).unwrap_or(path).display().to_string()),
                SnapshotPlace::Object(object) => Some(object.to_string()),
            },
        };
        Ok(SaveOutcome::Saved(Box::new(Saved {
            observed,
            name,
            place: shown,
            record,
        })))
    }
}

/// Stores the snapshot as it arrives, and shows the progress. When this returns, the hash of the snapshot is correct.
async fn receive(
    connection: &MemberConnection,
    stream: &mut SnapshotStream,
    sink: &mut SnapshotSink,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let mut shown = None;
    loop {
        let chunk = stream.next().await;
        let Some(chunk) = chunk.map_err(|error| connection.describe(error))? else {
            return Ok(());
        };
        sink.write(&chunk.bytes).await?;
        let received = stream.received_bytes();
        let mebibytes = received >> 20;
        if shown != Some(mebibytes) {
            let whole = (received + chunk.remaining_bytes) >> 20;
            terminal.spin(&format!("{mebibytes} of {whole} MiB"));
            shown = Some(mebibytes);
        }
    }
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
        Ok(record_decision(record, snapshot.control_plane(), context.now))
    });
    if let Err(error) = Box::pin(changed).await {
        terminal.warning(&format!(
            "the snapshot is complete, but could not be recorded on the control plane: {error:#}"
        ));
    }
}
