//! What is known of a `KubeadmControlPlane`, and what may be done with it. Pure: no client, no clock, no terminal; the
//! time is an argument.
//!
//! From the ground up:
//!
//! - [`duration`], [`merge_patch`]: text and JSON
//! - [`snapshot`]: what the management cluster, the workload cluster and etcd report at one time
//! - [`quorum`]: what etcd can lose after a change of its members
//! - [`blocker`]: what prevents a step, a change or a remediation; [`staleness`]: how long it may last before it counts as
//!   stuck
//! - [`plan`]: the steps that Cluster API's controller takes next, and what blocks the first of them
//! - [`checks`], [`inspection`]: what is wrong, and the verdict
//! - [`review`], [`change`]: whether a change may be written: admission rules, field owners, preflight
//! - [`verbs`]: the decision of each verb that writes
//! - [`wait`]: whether a change is complete, and what it waits for

#![allow(
    missing_docs,
    reason = "a field or variant is documented where its name does not say it: units, absence, sources"
)]
#![allow(
    clippy::missing_errors_doc,
    reason = "a DecodeError says it: the object does not have its kind's types"
)]
#![cfg_attr(
    any(test, feature = "testing"),
    allow(
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::missing_panics_doc,
        clippy::panic,
        reason = "the builders of snapshots for tests may panic"
    )
)]

pub mod blocker;
pub mod change;
pub mod checks;
pub mod duration;
pub mod inspection;
pub mod kubelet_skew;
pub mod merge_patch;
pub mod plan;
pub mod quorum;
pub mod release_changes;
pub mod review;
pub mod snapshot;
pub mod staleness;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod verbs;
pub mod wait;
