//! `kubectl kcp etcd`: works on the etcd members of a control plane.
//!
//! - [`check`]: compares the data of the members, and shows how fast their disks are
//! - [`snapshot`]: saves snapshots of etcd's data with [`save`] to a [`sink`], and deletes old ones that are [`stored`];
//!   [`snapshot_list`] lists them; [`snapshot_verify`] restores one on a [`scratch`] member; [`snapshot_first`] saves one before a
//!   change
//! - [`members`]: shows the members
//! - [`defrag`], [`compact`], [`disarm`], [`move_leader`], [`remove_member`], [`promote`]: maintain the members. [`maintenance`] has
//!   the parts that they share; [`several`] runs them on several control planes; [`report`] prints their results
//! - [`recover`]: brings back an etcd that has lost its quorum for good, from the member that is left or from a snapshot;
//!   [`stored_content`] reads a snapshot

pub mod check;
pub mod compact;
pub mod defrag;
pub mod disarm;
mod maintenance;
pub mod members;
pub mod move_leader;
pub mod promote;
pub mod recover;
pub mod remove_member;
mod report;
mod save;
mod scratch;
mod several;
mod sink;
pub mod snapshot;
pub mod snapshot_first;
mod snapshot_list;
mod snapshot_verify;
pub(crate) mod stored;
mod stored_content;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use kcp_client::{
    reader::Reader,
    reads::{Excluded, WorkloadTarget, etcd::MemberConnection, observe},
};
use kcp_control_plane::snapshot::{Snapshot, etcd::QueriedMember};

use crate::{session::Session, verdict::Verdict};

/// Check a control plane's etcd, save a snapshot of it, or maintain its members.
#[derive(Debug, Args)]
#[command(
    subcommand_value_name = "check|snapshot|members|defrag|compact|disarm|move-leader|remove-member|promote|recover|restore"
)]
pub struct EtcdArguments {
    #[command(subcommand)]
    pub command: EtcdCommand,
}

#[derive(Debug, Subcommand)]
pub enum EtcdCommand {
    /// Check whether all members have the same data, and whether their disks are fast enough
    Check(check::CheckArguments),
    /// Save a snapshot of etcd's data to a file, to S3 or to stdout
    Snapshot(snapshot::SnapshotArguments),
    /// Show the members of a control plane's etcd
    Members(members::MembersArguments),
    /// Return the unused space of each member's database to the file system, one member after the other
    Defrag(defrag::DefragArguments),
    /// Delete the old revisions of all keys
    Compact(compact::CompactArguments),
    /// Disarm the alarm NOSPACE once every database has space again
    Disarm(disarm::DisarmArguments),
    /// Move the leadership to another member
    MoveLeader(move_leader::MoveLeaderArguments),
    /// Remove a member that Cluster API does not remove
    RemoveMember(remove_member::RemoveMemberArguments),
    /// Promote a learner that has caught up
    Promote(promote::PromoteArguments),
    /// Bring back an etcd that has lost its quorum for good, from the member that is left
    Recover(recover::RecoverArguments),
    /// Restore a snapshot of etcd, if the data of all members is lost or wrong
    Restore(recover::restore::RestoreArguments),
}

pub async fn run(arguments: EtcdArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        EtcdCommand::Check(arguments) => Box::pin(check::run(&arguments, session)).await,
        EtcdCommand::Snapshot(arguments) => Box::pin(snapshot::run(&arguments, session)).await,
        EtcdCommand::Members(arguments) => Box::pin(members::run(arguments, session)).await,
        EtcdCommand::Defrag(arguments) => Box::pin(defrag::run(&arguments, session)).await,
        EtcdCommand::Compact(arguments) => Box::pin(compact::run(&arguments, session)).await,
        EtcdCommand::Disarm(arguments) => Box::pin(disarm::run(&arguments, session)).await,
        EtcdCommand::MoveLeader(arguments) => Box::pin(move_leader::run(&arguments, session)).await,
        EtcdCommand::RemoveMember(arguments) => Box::pin(remove_member::run(&arguments, session)).await,
        EtcdCommand::Promote(arguments) => Box::pin(promote::run(&arguments, session)).await,
        EtcdCommand::Recover(arguments) => Box::pin(recover::run(&arguments, session)).await,
        EtcdCommand::Restore(arguments) => Box::pin(recover::restore::run(&arguments, session)).await,
    }
}

/// The etcd members of one control plane.
#[derive(Clone, Copy)]
struct EtcdMembers<'e> {
    reader: &'e Reader<'e>,
    control_plane: &'e str,
    /// The time limit for reading the control plane, and for connecting to a member.
    timeout: Duration,
}

impl EtcdMembers<'_> {
    /// Reads the control plane and its members.
    async fn observe(&self) -> anyhow::Result<Snapshot> {
        let end = Instant::now() + self.timeout;
        let namespace = &self.reader.connection.namespace;
        let observed = observe(
            self.reader,
            namespace,
            self.control_plane,
            Excluded::default(),
            end,
        );
        Ok(Box::pin(observed).await?)
    }

    /// Connects to a member. `call` is the time limit of each call, and of each part of a snapshot.
    async fn open(
        &self,
        observed: &Snapshot,
        member: &QueriedMember,
        call: Duration,
    ) -> anyhow::Result<MemberConnection> {
        let end = Instant::now() + self.timeout;
        let target =
            WorkloadTarget::new(&observed.control_plane).context("the control plane has no Cluster yet")?;
        let opened = MemberConnection::open(self.reader.connection, &target, member, call, end);
        Ok(Box::pin(opened).await?)
    }
}
