//! `--snapshot` of the commands that replace Machines: saves a snapshot of etcd before the change.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use jiff::Timestamp;
use kcp_api::{KubeadmControlPlane, Object as _};
use kcp_client::reader::Reader;
use kcp_control_plane::verbs::etcd::snapshot::{place::SnapshotPlace, recent_snapshot_warning};

use crate::{
    commands::etcd::save::{SaveOutcome, SaveRequest},
    signal::EndSignal,
    terminal::Terminal,
};

/// The time limit for finding a member and connecting to it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The flag of commands that replace Machines.
#[derive(Clone, Debug, Args)]
pub struct SnapshotFirstArguments {
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "dry_run",
        help = "First save a snapshot of etcd to this file or to s3://BUCKET/NAME, or under a new name in this folder; if that \
            fails, change nothing"
    )]
    pub snapshot: Option<SnapshotPlace>,
}

impl SnapshotFirstArguments {
    pub(crate) const fn is_set(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Warns if no recent snapshot is recorded and none is about to be saved.
    pub(crate) fn warn(&self, control_plane: &KubeadmControlPlane, now: Timestamp, terminal: &Terminal) {
        if self.snapshot.is_none()
            && let Some(warning) = recent_snapshot_warning(control_plane, now)
        {
            terminal.warning_once(&warning);
        }
    }

    /// Saves the snapshot, if the user wants one. If this fails, the snapshot is not complete, and the caller must change
    /// nothing.
    pub(crate) async fn save(
        &self,
        control_plane: &KubeadmControlPlane,
        reader: &Reader<'_>,
        terminal: &Terminal,
    ) -> anyhow::Result<()> {
        let Some(place) = &self.snapshot else {
            return Ok(());
        };
        if *place == SnapshotPlace::Stdout {
            return Err(anyhow!(
                "--snapshot cannot write to stdout; specify a file or a folder"
            ));
        }
        let request = SaveRequest {
            name: control_plane.name(),
            place,
            member: None,
            is_recorded: true,
            timeout: TIMEOUT,
        };
        let mut signal = EndSignal::listen().context("cannot receive signals")?;
        let saved = Box::pin(request.save(reader, terminal, signal.wait()))
            .await
            .and_then(|outcome| match outcome {
                SaveOutcome::Saved(saved) => Ok(saved),
                SaveOutcome::Refused(refusal) => Err(anyhow!(refusal.why.join("; "))),
                SaveOutcome::Interrupted => Err(anyhow!("interrupted")),
            });
        let saved = saved.context("nothing was changed, because no snapshot of etcd could be saved")?;
        terminal.note(&saved.line());
        Ok(())
    }
}
