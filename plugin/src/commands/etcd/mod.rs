//! `kubectl kcp etcd`: works on the etcd members of a control plane.
//!
//! - [`snapshot`]: saves a snapshot of etcd's data with [`save`]; [`snapshot_first`] does so before a change
//! - [`defrag`], [`compact`], [`disarm`], [`move_leader`]: maintain the members. [`maintenance`] is what they share,
//!   [`report`] prints their results

pub mod compact;
pub mod defrag;
pub mod disarm;
mod maintenance;
pub mod move_leader;
mod report;
mod save;
pub mod snapshot;
pub mod snapshot_first;

use clap::{Args, Subcommand};

use crate::{session::Session, verdict::Verdict};

/// Save a snapshot of a control plane's etcd, or maintain its members.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "snapshot|defrag|compact|disarm|move-leader")]
pub struct EtcdArguments {
    #[command(subcommand)]
    pub command: EtcdCommand,
}

#[derive(Debug, Subcommand)]
pub enum EtcdCommand {
    /// Save a snapshot of etcd's data to a file or to stdout
    Snapshot(snapshot::SnapshotArguments),
    /// Return the unused space of each member's database to the file system, one member after the other
    Defrag(defrag::DefragArguments),
    /// Delete the old revisions of all keys
    Compact(compact::CompactArguments),
    /// Disarm the alarm NOSPACE once every database has space again
    Disarm(disarm::DisarmArguments),
    /// Move the leadership to another member
    MoveLeader(move_leader::MoveLeaderArguments),
}

/// Runs `etcd`.
///
/// # Errors
/// A read fails, a member fails, or the result cannot be written.
pub async fn run(arguments: EtcdArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        EtcdCommand::Snapshot(arguments) => Box::pin(snapshot::run(&arguments, session)).await,
        EtcdCommand::Defrag(arguments) => Box::pin(defrag::run(&arguments, session)).await,
        EtcdCommand::Compact(arguments) => Box::pin(compact::run(&arguments, session)).await,
        EtcdCommand::Disarm(arguments) => Box::pin(disarm::run(&arguments, session)).await,
        EtcdCommand::MoveLeader(arguments) => Box::pin(move_leader::run(&arguments, session)).await,
    }
}
