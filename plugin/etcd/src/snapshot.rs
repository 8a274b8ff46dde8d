//! Receives a snapshot of a member's database, and checks its hash.

use std::fmt;
use std::time::Duration;

use ring::digest::{Context, SHA256};
use tonic::Streaming;

use crate::error::{Call, ConnectionStep, Error, with_time_limit};
use crate::key_pair::hexadecimal;
use crate::rpc::etcdserverpb as wire;
use crate::stream::FirstError;

/// The length in bytes of the SHA-256 hash that etcd appends to the database (etcd 3.6,
/// `server/etcdserver/api/v3rpc/maintenance.go`).
const HASH_BYTES: usize = 32;

/// The size in bytes of a page of etcd's database. The size of the database is a multiple of it. etcd's tools
/// use the remainder to find out whether a file ends with a hash (etcd 3.6,
/// `client/v3/snapshot/v3_snapshot.go`).
const PAGE_BYTES: u64 = 512;

/// A snapshot that a member is sending. It contains the database, followed by its SHA-256 hash.
pub struct SnapshotStream {
    responses: Streaming<wire::SnapshotResponse>,
    received: ReceivedSnapshot,
    first_error: FirstError,
    idle_limit: Duration,
}

/// A part of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotChunk {
    /// The bytes of this part.
    pub bytes: Vec<u8>,
    /// How many bytes of the database follow.
    pub remaining_bytes: u64,
}

impl SnapshotStream {
    pub(crate) fn new(
        responses: Streaming<wire::SnapshotResponse>,
        first_error: FirstError,
        idle_limit: Duration,
    ) -> Self {
        Self {
            responses,
            received: ReceivedSnapshot::default(),
            first_error,
            idle_limit,
        }
    }

    /// Returns the next part. `None` after the last part, if the hash matches the database. Fails like every call, and with
    /// [`Error::Malformed`] if the snapshot ends early or its hash does not match.
    pub async fn next(&mut self) -> Result<Option<SnapshotChunk>, Error> {
        let response = with_time_limit(
            ConnectionStep::Call(Call::Snapshot),
            self.idle_limit,
            self.responses.message(),
        )
        .await?
        .map_err(|status| Error::from_status(Call::Snapshot, &status, self.first_error.cause()))?;
        let Some(response) = response else {
            return self
                .received
                .check()
                .map(|_| None)
                .map_err(|message| Error::Malformed {
                    call: Call::Snapshot,
                    message,
                });
        };
        self.received.add(&response.blob);
        Ok(Some(SnapshotChunk {
            bytes: response.blob,
            remaining_bytes: response.remaining_bytes,
        }))
    }

    /// The number of bytes received so far, including the hash.
    pub fn received_bytes(&self) -> u64 {
        self.received.bytes
    }
}

impl fmt::Debug for SnapshotStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SnapshotStream")
            .field("received_bytes", &self.received_bytes())
            .finish_non_exhaustive()
    }
}

/// Computes the hash of a snapshot. The last bytes of the snapshot are the expected hash of the bytes before
/// them.
#[derive(Clone)]
pub struct ReceivedSnapshot {
    /// The hash of all bytes except for those in `last`.
    hash: Context,
    /// The last bytes received, at most [`HASH_BYTES`].
    last: Vec<u8>,
    bytes: u64,
}

impl Default for ReceivedSnapshot {
    fn default() -> Self {
        Self {
            hash: Context::new(&SHA256),
            last: Vec::with_capacity(2 * HASH_BYTES),
            bytes: 0,
        }
    }
}

impl ReceivedSnapshot {
    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        // A slice never has more than 2^64 bytes.
        self.bytes += u64::try_from(bytes.len()).unwrap_or_default();
        let from_end = bytes.len().saturating_sub(HASH_BYTES);
        let (database, end) = bytes.split_at(from_end);
        let surplus = (self.last.len() + bytes.len())
            .saturating_sub(HASH_BYTES)
            .min(self.last.len());
        for byte in self.last.drain(..surplus).as_slice().chunks(HASH_BYTES) {
            self.hash.update(byte);
        }
        self.hash.update(database);
        self.last.extend_from_slice(end);
    }

    /// The number of bytes so far.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Checks the hash, and returns it in hexadecimal digits. Fails if the snapshot ends early, or its hash does not match its
    /// content.
    pub fn check(&self) -> Result<String, String> {
        if self.bytes % PAGE_BYTES != HASH_BYTES as u64 {
            return Err(format!("the snapshot ends early, after {} bytes", self.bytes));
        }
        let hash = self.hash.clone().finish();
        if hash.as_ref() == self.last {
            Ok(hexadecimal(&self.last))
        } else {
            Err("the snapshot is damaged: its hash does not match its content".to_owned())
        }
    }
}

impl fmt::Debug for ReceivedSnapshot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ReceivedSnapshot")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ring::digest::{SHA256, digest};

    use super::ReceivedSnapshot;

    fn snapshot(pages: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..=250).cycle().take(pages * 512).collect();
        let hash = digest(&SHA256, &bytes);
        bytes.extend_from_slice(hash.as_ref());
        bytes
    }

    fn check(bytes: &[u8], chunk: usize) -> Result<(), String> {
        let mut received = ReceivedSnapshot::default();
        for chunk in bytes.chunks(chunk) {
            received.add(chunk);
        }
        let database = &bytes[..bytes.len().saturating_sub(32)];
        let expected = format!("{:?}", digest(&SHA256, database)).to_lowercase();
        let hash = received.check()?;
        assert_eq!(expected, format!("sha256:{hash}"));
        Ok(())
    }

    #[test]
    fn a_whole_snapshot_passes_however_it_is_divided() {
        for pages in [1, 2, 9] {
            for chunk in [1, 7, 31, 32, 33, 511, 512, 544, 10_000] {
                assert_eq!(check(&snapshot(pages), chunk), Ok(()), "{pages} {chunk}");
            }
        }
    }

    #[test]
    fn a_snapshot_that_ends_early_is_refused() {
        let whole = snapshot(3);
        for end in 0..whole.len() {
            let error = check(&whole[..end], 100).expect_err("not whole");
            // A part can have the right length by chance, but not the right hash.
            if end % 512 == 32 {
                assert!(error.contains("hash"), "{end}: {error}");
            } else {
                assert_eq!(error, format!("the snapshot ends early, after {end} bytes"));
            }
        }
    }

    #[test]
    fn a_changed_bit_is_found_anywhere() {
        let whole = snapshot(2);
        for offset in [0, 500, 512, 1023, 1024, whole.len() - 1] {
            let mut changed = whole.clone();
            changed[offset] ^= 1;
            assert!(check(&changed, 64).is_err(), "{offset}");
        }
    }
}
