//! What etcd says, each member by itself.

use jiff::Timestamp;
use kcp_etcd::{Alarm, Members, Status};

use super::Failure;

/// Every member that was asked, and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSurvey {
    /// Whether the members are pods of the control plane's Machines, or run elsewhere.
    pub stacked: bool,
    /// One for each control plane node (stacked) or endpoint (external), by name.
    pub asked: Vec<Asked>,
    /// Alarms.
    pub alarms: Alarms,
    /// Whether the key of etcd's CA was used to come as a client.
    pub used_ca_key: bool,
}

/// One that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The node's name, or the endpoint `host:port` of an external etcd.
    pub name: String,
    /// The Machine on that node.
    pub machine: Option<String>,
    /// What came of it.
    pub answer: Result<Answer, Failure>,
}

/// What a member said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Of itself.
    pub status: Result<Status, Failure>,
    /// Of its cluster, from its own memory: not by agreement.
    pub members: Result<Members, Failure>,
    /// Whether its certificate is for the name that was asked for; its chain was verified in any case.
    pub is_named: bool,
    /// When its serving certificate expires.
    pub certificate_expires: Option<Timestamp>,
}

/// Alarms, and how they were learned of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarms {
    /// By agreement of the members, asked of one that knows a leader.
    Listed(Vec<Alarm>),
    /// There is no leader to ask: from each member's own errors in `asked`.
    FromStatus,
    /// There is a leader, and it did not answer.
    Failed(Failure),
}
