//! The content of a stored snapshot, which is read part by part, so that it is never whole in memory.

use std::{fs::File, io::Read as _, pin::pin};

use anyhow::{Context as _, anyhow};
use futures_util::StreamExt as _;
use kcp_control_plane::verbs::etcd::snapshot::place::SnapshotPlace;
use kcp_etcd::ReceivedSnapshot;
use kcp_storage::Bucket;

/// The number of bytes of a file that are read at once.
const PART_BYTES: usize = 1 << 20;

/// What a file or an object contains.
pub(super) struct StoredContent {
    pub(super) bytes: u64,
    /// The SHA-256 hash of the snapshot's database, in hexadecimal digits; or why this is not a whole snapshot.
    pub(super) hash: Result<String, String>,
}

/// Reads a snapshot to its end, and calls `write` with each part.
pub(super) async fn read_content(
    place: &SnapshotPlace,
    mut write: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> anyhow::Result<StoredContent> {
    const FAILED: &str = "cannot write the snapshot";
    let mut received = ReceivedSnapshot::default();
    match place {
        SnapshotPlace::Stdout => return Err(anyhow!("stdout contains no snapshot")),
        SnapshotPlace::File(path) => {
            let cannot_read = || format!("cannot read {}", path.display());
            let mut file = File::open(path).with_context(cannot_read)?;
            let mut part = vec![0; PART_BYTES];
            loop {
                let count = file.read(&mut part).with_context(cannot_read)?;
                let Some(bytes) = part.get(..count).filter(|bytes| !bytes.is_empty()) else {
                    break;
                };
                received.add(bytes);
                write(bytes).context(FAILED)?;
                // Yield, so that a signal can end the command.
                tokio::task::yield_now().await;
            }
        }
        SnapshotPlace::Object(object) => {
            let mut parts = pin!(Bucket::open(object)?.read(&object.key).await?);
            while let Some(part) = parts.next().await {
                let part = part?;
                received.add(&part);
                write(&part).context(FAILED)?;
            }
        }
    }
    Ok(StoredContent {
        bytes: received.bytes(),
        hash: received.check(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kcp_control_plane::verbs::etcd::snapshot::place::SnapshotPlace;

    use super::read_content;

    #[tokio::test]
    async fn a_file_is_read_to_its_end_and_its_hash_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge.db");
        let place = SnapshotPlace::File(path.clone());
        let unread = read_content(&place, |_| Ok(())).await.err().unwrap();
        assert_eq!(unread.to_string(), format!("cannot read {}", path.display()));

        // The hash of 512 zero bytes.
        let hash = "076a27c79e5ace2a3d47f9dd2e83e4ff6ea8872b3c2218f66c92b89b55f36560";
        let digits = hash.as_bytes().chunks(2);
        let bytes = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
        let whole: Vec<u8> = [0; 512].into_iter().chain(bytes).collect();
        for (content, expected) in [
            (whole.clone(), Ok(hash.to_owned())),
            (
                whole[..500].to_vec(),
                Err("the snapshot ends early, after 500 bytes".to_owned()),
            ),
        ] {
            fs::write(&path, &content).unwrap();
            let mut written = Vec::new();
            let write = |part: &[u8]| {
                written.extend_from_slice(part);
                Ok(())
            };
            let read = read_content(&place, write).await.unwrap();
            assert_eq!((read.bytes, read.hash), (content.len() as u64, expected));
            assert_eq!(written, content);
        }
    }
}
