//! The decisions of `kubectl kcp etcd`, which works on the etcd members of a control plane.
//!
//! - [`members`]: the members, their health and their alarms, as every decision sees them
//! - [`listing`]: what is known about each member, for `etcd members`
//! - [`changes`]: the changes of Machines during which no member may pause
//! - [`check`]: whether the members have the same data
//! - [`snapshot`], [`defrag`], [`compact`], [`disarm`], [`move_leader`], [`remove_member`], [`promote`]: one decision each;
//!   [`owner`] finds the Machine of a member
//! - [`recover`]: what is left after a lost quorum, and the steps until the control plane has all its members again

pub mod changes;
pub mod check;
pub mod compact;
pub mod defrag;
pub mod disarm;
pub mod listing;
pub mod members;
pub mod move_leader;
pub mod owner;
pub mod promote;
pub mod recover;
pub mod remove_member;
pub mod snapshot;
