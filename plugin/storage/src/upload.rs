//! An upload in parts.

use std::{fmt, mem, time::Duration};

use object_store::WriteMultipart;
use tokio::time::timeout;

use crate::{error::StorageError, http::StorageConnector};

/// The size of a part in bytes. S3 allows 10,000 parts, which is 80 GiB; etcd's quota is at most 8 GiB. The parts of an upload
/// have the same size, because some servers demand it.
const PART_BYTES: usize = 8 << 20;

/// How many parts are sent while the next one is collected. With two, a snapshot of 1 GiB takes 67 MiB of memory.
const PARTS_IN_FLIGHT: usize = 1;

/// How long an abort waits for the parts that are being sent.
const PARTS_LIMIT: Duration = Duration::from_secs(10);

/// An upload in parts. The server gives the object its name only when the upload is complete. Abort an upload that cannot be
/// completed: otherwise the server keeps its parts until a lifecycle rule of the bucket deletes them.
pub struct Upload {
    connector: StorageConnector,
    /// The object, as `s3://...`.
    place: String,
    parts: WriteMultipart,
    /// The part that is being collected.
    next: Vec<u8>,
}

impl Upload {
    pub(crate) fn new(
        connector: StorageConnector,
        place: String,
        upload: Box<dyn object_store::MultipartUpload>,
    ) -> Self {
        Self {
            connector,
            place,
            parts: WriteMultipart::new_with_chunk_size(upload, PART_BYTES),
            next: Vec::with_capacity(PART_BYTES),
        }
    }

    /// Adds bytes. Waits while too many parts are being sent. Fails if the server refused a part, or could not be reached, in
    /// spite of retries.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), StorageError> {
        while let Some((now, later)) = bytes.split_at_checked(PART_BYTES - self.next.len()) {
            self.next.extend_from_slice(now);
            bytes = later;
            self.send().await?;
        }
        self.next.extend_from_slice(bytes);
        Ok(())
    }

    /// Sends the part that has been collected.
    async fn send(&mut self) -> Result<(), StorageError> {
        let sent = self.parts.wait_for_capacity(PARTS_IN_FLIGHT).await;
        sent.map_err(|error| self.connector.describe(ACTION, &self.place, &error))?;
        let part = mem::replace(&mut self.next, Vec::with_capacity(PART_BYTES));
        self.parts.put(part.into());
        Ok(())
    }

    /// Sends the rest, and gives the object its name. Fails like [`write`](Self::write), and with [`StorageError::Exists`] if an
    /// object has the name by now. The upload is then aborted.
    pub async fn complete(mut self) -> Result<(), StorageError> {
        if !self.next.is_empty() {
            self.parts.put(mem::take(&mut self.next).into());
        }
        match self.parts.finish().await {
            Ok(_) => Ok(()),
            Err(object_store::Error::Precondition { .. } | object_store::Error::AlreadyExists { .. }) => {
                Err(StorageError::Exists { place: self.place })
            }
            Err(error) => Err(self.connector.describe(ACTION, &self.place, &error)),
        }
    }

    /// Lets the server delete the parts that it has. Without its confirmation, the server may keep parts.
    pub async fn abort(mut self) -> Result<(), StorageError> {
        // The server may keep a part that it receives during the abort:
        // <https://docs.aws.amazon.com/AmazonS3/latest/API/API_AbortMultipartUpload.html>.
        let arrived = async {
            // Ignore the error of a part, because the upload is aborted anyway.
            while self.parts.wait_for_capacity(0).await.is_err() {}
        };
        // After the limit, abort anyway: the server may then keep parts, but without an abort it keeps all of them.
        let _ = timeout(PARTS_LIMIT, arrived).await;
        let aborted = self.parts.abort().await;
        aborted.map_err(|error| {
            self.connector
                .describe("abort the upload to", &self.place, &error)
        })
    }
}

const ACTION: &str = "upload to";

impl fmt::Debug for Upload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Upload")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}
