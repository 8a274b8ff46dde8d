//! The admission rules for `KubeadmControlPlane`s and cluster pools, and the fields they read.
//!
//! A rule is a pure function over plain data: no client, no clock, no runtime. The webhook server and the plugin
//! both judge with this crate, so that `kubectl kcp lint` says what admission would say.
//!
//! - [`api`]: the fields that rules read, borrowed from the JSON they were decoded from
//! - [`change`]: what a rule sees: the operation, the new object and the old one
//! - [`rule`]: what a rule is
//! - [`finding`]: what a rule says, in the terms of Kubernetes' field errors
//! - [`topics`]: every rule, by topic; the contents page
//! - [`judge`]: all rules put to one change
//! - [`defaulting`]: the fields we fill in, as minimal JSON patches
//! - [`case`]: accepted and rejected examples of each rule

pub mod api;
pub mod case;
pub mod change;
pub mod defaulting;
pub mod finding;
pub mod judge;
pub mod rule;
pub mod topics;

pub use change::{Change, Operation, Subresource};
pub use finding::{CauseReason, Fault, Faults, Finding};
pub use judge::{judge_cluster_pool, judge_control_plane, judge_customization};
pub use rule::{Action, Rule, Scope};
