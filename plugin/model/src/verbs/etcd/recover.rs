//! The decisions of `etcd recover`, which brings back an etcd that has lost its quorum for good, and of `etcd restore`.
//!
//! Without a quorum, the workload cluster's API server does not serve, and no member can be asked through it. So the recovery has
//! two parts, with a decision each:
//!
//! - [`remains`]: before the quorum is back: which hosts may have etcd's data, and which of them continues. A script makes the
//!   member on that host the only one
//! - [`restore`]: the same if no host has the data any more, from a snapshot
//! - [`steps`]: after that: what is left of the lost members and Machines, until the control plane has all its members again
//! - [`drill`]: before anything is lost: whether everything that a recovery or a restore needs is available

pub mod drill;
pub mod remains;
pub mod restore;
pub mod steps;
