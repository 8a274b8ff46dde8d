//! Writes a snapshot to its place as it arrives: to stdout, to a file, or to an object.

use std::{
    io::{self, BufWriter, Stdout, Write as _},
    time::Duration,
};

use anyhow::Context as _;
use kcp_control_plane::verbs::etcd::snapshot::{
    name::SnapshotName,
    place::{ObjectPlace, SnapshotPlace},
};
use kcp_storage::{Bucket, StorageError, Upload};
use tokio::time::timeout;

use crate::{file::NewFile, terminal::Terminal};

/// The number of bytes that are collected before they are written to the file.
const BUFFER_BYTES: usize = 1 << 20;

/// The time limit for deleting the parts of an upload. A Pod that is deleted has 30 s to end.
const ABORT_LIMIT: Duration = Duration::from_secs(20);

/// A place that can take a snapshot, before the first byte.
pub(super) enum ReadySink {
    Stdout,
    File(NewFile),
    Object(Box<Bucket>, ObjectPlace),
}

/// A place that takes a snapshot. The snapshot has its final name only after [`finish`](Self::finish).
pub(super) enum SnapshotSink {
    Stdout(BufWriter<Stdout>),
    File(BufWriter<NewFile>),
    Object(Box<Upload>),
}

impl ReadySink {
    /// Opens a place. In a folder, the snapshot gets `name`.
    pub(super) async fn open(place: &SnapshotPlace, name: &SnapshotName) -> anyhow::Result<Self> {
        match place {
            SnapshotPlace::Stdout => Ok(Self::Stdout),
            SnapshotPlace::File(path) if path.is_dir() => {
                Ok(Self::File(NewFile::create(&path.join(name.to_string()))?))
            }
            SnapshotPlace::File(path) => Ok(Self::File(NewFile::create(path)?)),
            SnapshotPlace::Object(object) => {
                let object = if object.is_folder() {
                    object.sibling(&name.to_string())
                } else {
                    object.clone()
                };
                let bucket = Bucket::open(&object)?;
                // If the credentials do not allow this request, a name that is taken is an error only at the end of the upload.
                if bucket.has(&object.key).await? == Some(true) {
                    let place = object.to_string();
                    return Err(StorageError::Exists { place }.into());
                }
                Ok(Self::Object(Box::new(bucket), object))
            }
        }
    }

    /// The file or the object that the snapshot becomes.
    pub(super) fn place(&self) -> SnapshotPlace {
        match self {
            Self::Stdout => SnapshotPlace::Stdout,
            Self::File(file) => SnapshotPlace::File(file.path().to_owned()),
            Self::Object(_, object) => SnapshotPlace::Object(object.clone()),
        }
    }

    pub(super) async fn begin(self) -> anyhow::Result<SnapshotSink> {
        Ok(match self {
            Self::Stdout => SnapshotSink::Stdout(BufWriter::with_capacity(BUFFER_BYTES, io::stdout())),
            Self::File(file) => SnapshotSink::File(BufWriter::with_capacity(BUFFER_BYTES, file)),
            Self::Object(bucket, object) => {
                SnapshotSink::Object(Box::new(bucket.begin_upload(&object.key).await?))
            }
        })
    }
}

impl SnapshotSink {
    pub(super) async fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let written = match self {
            Self::Stdout(stdout) => stdout.write_all(bytes),
            Self::File(file) => file.write_all(bytes),
            Self::Object(upload) => return Ok(upload.write(bytes).await?),
        };
        written.context("cannot write the snapshot")
    }

    /// Stores the rest durably, and gives the snapshot its name. The caller has checked the hash.
    pub(super) async fn finish(self) -> anyhow::Result<()> {
        const FAILED: &str = "cannot write the snapshot";
        match self {
            Self::Stdout(mut stdout) => stdout.flush().context(FAILED),
            Self::File(file) => {
                let file = file.into_inner().map_err(io::IntoInnerError::into_error);
                Ok(file.context(FAILED)?.finish()?)
            }
            Self::Object(upload) => Ok(upload.complete().await?),
        }
    }

    /// Deletes what was stored of a snapshot that is not complete.
    pub(super) async fn abort(self, terminal: &Terminal) {
        let Self::Object(upload) = self else {
            // A temporary file deletes itself.
            return;
        };
        let why = match timeout(ABORT_LIMIT, upload.abort()).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {} s", ABORT_LIMIT.as_secs()),
        };
        terminal.warning(&format!(
            "the parts that were uploaded may still be in the bucket until a lifecycle rule \
             (AbortIncompleteMultipartUpload) deletes them: {why}"
        ));
    }
}
