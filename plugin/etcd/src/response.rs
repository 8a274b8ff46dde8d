//! etcd's responses as plain data.

use crate::rpc::etcdserverpb as wire;

/// What a member reports about itself and its cluster. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The id of the etcd cluster, the same for all its members.
    pub cluster_id: u64,
    /// The id of the member that sent this response.
    pub member_id: u64,
    /// The version of etcd that the member runs, such as `3.6.8`.
    pub version: String,
    /// The size of the member's database file, in bytes.
    pub db_size: u64,
    /// How many bytes of `db_size` hold data. Defragmentation frees the rest.
    pub db_size_in_use: u64,
    /// The database size in bytes at which the member raises the alarm NOSPACE. `None` before etcd 3.6.
    pub db_size_quota: Option<u64>,
    /// The id of the leader. `None` if the member has no leader.
    pub leader: Option<u64>,
    /// The index of the last raft entry that the member knows is committed.
    pub raft_index: u64,
    /// The revision of the newest key that the member has stored. Each write to etcd increases it.
    pub revision: i64,
    /// The raft term, which increases with each leader election.
    pub raft_term: u64,
    /// The index of the last raft entry that the member has applied.
    pub raft_applied_index: u64,
    /// Errors that the member reports, such as `etcdserver: no leader`, and alarms.
    pub errors: Vec<String>,
    /// Whether the member is a learner, which has no vote.
    pub is_learner: bool,
}

impl From<wire::StatusResponse> for Status {
    fn from(response: wire::StatusResponse) -> Self {
        let header = response.header.unwrap_or_default();
        Self {
            cluster_id: header.cluster_id,
            member_id: header.member_id,
            version: response.version,
            db_size: bytes(response.db_size),
            db_size_in_use: bytes(response.db_size_in_use),
            db_size_quota: Some(bytes(response.db_size_quota)).filter(|quota| *quota > 0),
            leader: Some(response.leader).filter(|leader| *leader != 0),
            raft_index: response.raft_index,
            revision: header.revision,
            raft_term: response.raft_term,
            raft_applied_index: response.raft_applied_index,
            errors: response.errors,
            is_learner: response.is_learner,
        }
    }
}

/// etcd sends sizes as signed numbers that are never negative.
fn bytes(size: i64) -> u64 {
    u64::try_from(size).unwrap_or_default()
}

/// A member's list of the cluster's members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// The id of the cluster that these members form.
    pub cluster_id: u64,
    /// The members, sorted by id, as etcd sends them.
    pub members: Vec<Member>,
}

impl From<wire::MemberListResponse> for Members {
    fn from(response: wire::MemberListResponse) -> Self {
        Self {
            cluster_id: response.header.unwrap_or_default().cluster_id,
            members: response.members.into_iter().map(Member::from).collect(),
        }
    }
}

/// A member in a list of members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The member's id, unique in the cluster.
    pub id: u64,
    /// The member's name, which kubeadm sets to the name of the node. Empty until the member has started once.
    pub name: String,
    /// The URLs at which the other members reach this member.
    pub peer_urls: Vec<String>,
    /// The URLs at which clients reach the member. Empty until the member has started once.
    pub client_urls: Vec<String>,
    /// Whether the member is a learner, which has no vote.
    pub is_learner: bool,
}

impl From<wire::Member> for Member {
    fn from(member: wire::Member) -> Self {
        Self {
            id: member.id,
            name: member.name,
            peer_urls: member.peer_ur_ls,
            client_urls: member.client_ur_ls,
            is_learner: member.is_learner,
        }
    }
}

/// The revisions of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRevision {
    /// The revision of the last write of the key.
    pub modified: i64,
}

/// A hash of all keys and values that a member has stored up to a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySpaceHash {
    /// The hash. Hashes of one revision are comparable only if their compacted revisions are equal, too.
    pub hash: u32,
    /// The revision up to which the member had deleted its history.
    pub compacted_revision: i64,
}

impl From<wire::HashKvResponse> for KeySpaceHash {
    fn from(response: wire::HashKvResponse) -> Self {
        Self {
            hash: response.hash,
            compacted_revision: response.compact_revision,
        }
    }
}

/// An alarm of a member. It stays raised until an operator disarms it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    /// The id of the member that raised the alarm.
    pub member_id: u64,
    /// The problem that the alarm reports.
    pub kind: AlarmKind,
}

/// The type of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlarmKind {
    /// The database has reached its quota: the cluster accepts reads and deletions only.
    NoSpace,
    /// The member's data differs from that of the other members.
    Corrupt,
    /// An alarm type that this crate does not know, with etcd's number for it.
    Other(i32),
}

impl From<wire::AlarmMember> for Alarm {
    fn from(alarm: wire::AlarmMember) -> Self {
        Self {
            member_id: alarm.member_id,
            kind: match wire::AlarmType::try_from(alarm.alarm) {
                Ok(wire::AlarmType::Nospace) => AlarmKind::NoSpace,
                Ok(wire::AlarmType::Corrupt) => AlarmKind::Corrupt,
                Ok(wire::AlarmType::None) | Err(_) => AlarmKind::Other(alarm.alarm),
            },
        }
    }
}

impl From<Alarm> for wire::AlarmRequest {
    fn from(alarm: Alarm) -> Self {
        Self {
            member_id: alarm.member_id,
            alarm: match alarm.kind {
                AlarmKind::NoSpace => wire::AlarmType::Nospace.into(),
                AlarmKind::Corrupt => wire::AlarmType::Corrupt.into(),
                AlarmKind::Other(number) => number,
            },
            ..Self::default()
        }
    }
}
