//! Compares a snapshot that was restored with the etcd from which it came.

use kcp_etcd::KeySpaceHash;
use serde::Serialize;

/// All keys and values of a member up to a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpace {
    pub hash: KeySpaceHash,
    /// The number of keys that exist at the revision.
    pub keys: u64,
}

/// Whether a snapshot has the same data as its etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum Comparison {
    Equal,
    Differs {
        /// What differs, and by how much.
        reason: String,
    },
    /// The two could not be compared.
    Unknown {
        reason: String,
    },
}

/// Compares a snapshot that was restored with a member at the same revision. If the
/// member could not be read, `member` is the reason.
pub fn compare(restored: KeySpace, member: Result<KeySpace, String>) -> Comparison {
    let member = match member {
        Ok(member) => member,
        Err(reason) => return Comparison::Unknown { reason },
    };
    if restored.keys != member.keys {
        return Comparison::Differs {
            reason: format!(
                "the snapshot has {} keys, and etcd has {}",
                restored.keys, member.keys
            ),
        };
    }
    // Members hash only what they have not deleted.
    if restored.hash.compacted_revision != member.hash.compacted_revision {
        return Comparison::Unknown {
            reason: format!(
                "the snapshot has deleted its history up to revision {}, and etcd up to revision {}",
                restored.hash.compacted_revision, member.hash.compacted_revision
            ),
        };
    }
    if restored.hash.hash != member.hash.hash {
        return Comparison::Differs {
            reason: format!(
                "the hash of the snapshot is {:08x}, and that of etcd is {:08x}",
                restored.hash.hash, member.hash.hash
            ),
        };
    }
    Comparison::Equal
}

#[cfg(test)]
mod tests {
    use kcp_etcd::KeySpaceHash;

    use super::{Comparison, KeySpace, compare};

    #[test]
    fn only_the_same_keys_and_the_same_hash_are_equal() {
        let space = |hash, compacted_revision, keys| KeySpace {
            hash: KeySpaceHash {
                hash,
                compacted_revision,
            },
            keys,
        };
        let differs = |reason: &str| Comparison::Differs {
            reason: reason.to_owned(),
        };
        let unknown = |reason: &str| Comparison::Unknown {
            reason: reason.to_owned(),
        };
        let restored = space(0xab, 7, 100);
        for (member, expected) in [
            (Ok(space(0xab, 7, 100)), Comparison::Equal),
            (
                Ok(space(0xab, 7, 99)),
                differs("the snapshot has 100 keys, and etcd has 99"),
            ),
            (
                Ok(space(0xac, 7, 100)),
                differs("the hash of the snapshot is 000000ab, and that of etcd is 000000ac"),
            ),
            (
                Ok(space(0xac, 8, 100)),
                unknown("the snapshot has deleted its history up to revision 7, and etcd up to revision 8"),
            ),
            (Err("no response".to_owned()), unknown("no response")),
        ] {
            assert_eq!(compare(restored, member), expected);
        }
    }
}
