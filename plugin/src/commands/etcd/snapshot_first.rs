//! `--snapshot` of the commands that replace Machines: saves a snapshot of etcd before the change.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, anyhow};
use clap::Args;
use jiff::Timestamp;
use kcp_api::{KubeadmControlPlane, Object as _};
use kcp_client::reader::Reader;
use kcp_control_plane::verbs::etcd::snapshot::{file_name, recent_snapshot_warning};

use crate::{
    commands::etcd::save::{SaveRequest, Saved},
    terminal::{Terminal, escape},
};

/// The time limit for finding a member and connecting to it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The flag of commands that replace Machines.
#[derive(Clone, Debug, Args)]
pub struct SnapshotFirstArguments {
    /// First save a snapshot of etcd to this file, or to a new file in this folder; if that fails, change nothing
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub snapshot: Option<PathBuf>,
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

    /// Saves the snapshot, if the user wants one.
    ///
    /// # Errors
    /// The snapshot is not complete. The caller must change nothing.
    pub(crate) async fn save(
        &self,
        control_plane: &KubeadmControlPlane,
        reader: &Reader<'_>,
        terminal: &Terminal,
    ) -> anyhow::Result<()> {
        let Some(path) = &self.snapshot else {
            return Ok(());
        };
        let file = if path.is_dir() {
            path.join(file_name(control_plane, reader.connection.now()))
        } else {
            path.clone()
        };
        let request = SaveRequest {
            name: control_plane.name(),
            file: &file,
            member: None,
            is_recorded: true,
            timeout: TIMEOUT,
        };
        if request.is_stdout() {
            return Err(anyhow!(
                "--snapshot cannot write to stdout; specify a file or a folder"
            ));
        }
        let saved = Box::pin(request.save(reader, terminal))
            .await
            .and_then(|saved| saved.map_err(|refusal| anyhow!(refusal.why.join("; "))));
        let Saved { record, .. } =
            saved.context("nothing was changed, because no snapshot of etcd could be saved")?;
        terminal.note(&format!(
            "snapshot of etcd member {} is complete, {} bytes, in {}",
            record.member,
            record.bytes,
            escape(&file.display().to_string())
        ));
        Ok(())
    }
}
