//! The admission rules for `KubeadmControlPlane`s and cluster pools, and the fields they read.
//!
//! A rule is a pure function over plain data: no client, no clock, no runtime. The webhook server and the plugin
//! both judge with this crate, so that `kubectl kcp lint` says what admission would say.
//!
//! - [`api`]: the fields that rules read, borrowed from the JSON they were decoded from
//! - [`change`]: what a rule sees: the operation, the new object and the old one
//! - [`context`], [`view`]: who writes, when, and the other objects of the cluster, each of which may be unknown
//! - [`rule`]: what a rule is
//! - [`finding`]: what a rule says, in the terms of Kubernetes' field errors
//! - [`topics`]: every rule, by topic; the contents page
//! - [`judge`]: all rules put to one change
//! - [`configuration`], [`overrides`]: what an operator makes of a rule, for good or for a while
//! - [`defaulting`]: the fields we fill in, as minimal JSON patches
//! - [`pool_version`]: what makes the unclaimed clusters of a pool stale
//! - [`syntax`], [`go_template`]: what Kubernetes and Cluster API read names as
//! - [`case`]: accepted and rejected examples of each rule

pub mod api;
pub mod case;
pub mod change;
pub mod configuration;
pub mod context;
pub mod defaulting;
pub mod finding;
pub mod go_template;
pub mod judge;
pub mod overrides;
pub mod pool_version;
pub mod rule;
pub mod syntax;
pub mod topics;
pub mod view;

pub use change::{Change, Operation, Subresource};
pub use configuration::Configuration;
pub use context::Context;
pub use finding::{CauseReason, Fault, Faults, Finding, Softening};
pub use judge::{Judged, Judgement, judge};
pub use rule::{Action, Rule, Scope};
