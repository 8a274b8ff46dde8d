//! Answers as plain data.

use crate::rpc::etcdserverpb as wire;

/// A member's own view of itself and its cluster. Sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The same for all members of one cluster.
    pub cluster_id: u64,
    /// The member that answered.
    pub member_id: u64,
    /// The version of etcd, `3.6.8`.
    pub version: String,
    /// The size of the database file.
    pub db_size: u64,
    /// The part of `db_size` that holds data. Defragmentation frees the rest.
    pub db_size_in_use: u64,
    /// The size at which the member raises its alarm. None before etcd 3.6, which does not report it.
    pub db_size_quota: Option<u64>,
    /// None when the member knows of no leader.
    pub leader: Option<u64>,
    /// The index of the last entry that the member knows to be committed.
    pub raft_index: u64,
    /// Counts elections.
    pub raft_term: u64,
    /// The index of the last entry that the member has applied.
    pub raft_applied_index: u64,
    /// Problems that the member reports: `etcdserver: no leader`, and its alarms.
    pub errors: Vec<String>,
    /// A learner has no vote.
    pub is_learner: bool,
}

impl From<wire::StatusResponse> for Status {
    fn from(answer: wire::StatusResponse) -> Self {
        let header = answer.header.unwrap_or_default();
        Self {
            cluster_id: header.cluster_id,
            member_id: header.member_id,
            version: answer.version,
            db_size: bytes(answer.db_size),
            db_size_in_use: bytes(answer.db_size_in_use),
            db_size_quota: Some(bytes(answer.db_size_quota)).filter(|quota| *quota > 0),
            leader: Some(answer.leader).filter(|leader| *leader != 0),
            raft_index: answer.raft_index,
            raft_term: answer.raft_term,
            raft_applied_index: answer.raft_applied_index,
            errors: answer.errors,
            is_learner: answer.is_learner,
        }
    }
}

/// etcd's sizes are signed, and never negative.
fn bytes(size: i64) -> u64 {
    u64::try_from(size).unwrap_or_default()
}

/// The members of a cluster as one of them knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// The id of the cluster that these members form.
    pub cluster_id: u64,
    /// Sorted by id, as etcd sends them.
    pub members: Vec<Member>,
}

impl From<wire::MemberListResponse> for Members {
    fn from(answer: wire::MemberListResponse) -> Self {
        Self {
            cluster_id: answer.header.unwrap_or_default().cluster_id,
            members: answer.members.into_iter().map(Member::from).collect(),
        }
    }
}

/// One member of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Unique in the cluster.
    pub id: u64,
    /// With kubeadm, the name of the node. Empty until the member has started once.
    pub name: String,
    /// Where the other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it. Empty until the member has started once.
    pub client_urls: Vec<String>,
    /// A learner has no vote.
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

/// An alarm. It stays raised until an operator disarms it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    /// The member that raised it.
    pub member_id: u64,
    /// The reason.
    pub kind: AlarmKind,
}

/// What an alarm is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlarmKind {
    /// The database has reached its quota: the cluster accepts reads and deletions only.
    NoSpace,
    /// The member's data differs from the others'.
    Corrupt,
    /// An alarm of a newer etcd, by its number.
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
