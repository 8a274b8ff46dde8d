//! The admission rules for `KubeadmControlPlane`s and cluster pools, and the fields they read.
//!
//! A rule is a pure function over plain data: no client, no clock, no runtime. The webhook server and the plugin
//! both judge with this crate, so that `kubectl kcp lint` says what admission would say.
//!
//! From the ground up:
//!
//! - [`api`]: the fields that rules read, borrowed from the JSON they were decoded from
//! - [`syntax`], [`go_template`]: what Kubernetes and Cluster API read names as
//! - [`view`], [`feature_gates`], [`context`]: the other objects of the cluster, each of which may be unknown; who
//!   writes, and when
//! - [`change`]: what a rule sees: the operation, the new object and the old one
//! - [`action`], [`fault`], [`cel`], [`rule`]: what a rule is, and what it says in the terms of Kubernetes' field errors
//! - [`configuration`]: what an operator makes of a rule
//! - [`case`]: accepted and rejected examples of each rule
//! - [`pool_version`]: what makes the unclaimed clusters of a pool stale
//! - [`topics`]: every rule, by topic; the contents page
//! - [`finding`], [`overrides`], [`judge`]: all rules put to one change
//! - [`row`]: a case put to all rules
//! - [`admission_policy`]: the rules that have CEL, as objects of Kubernetes
//! - [`defaulting`]: the fields we fill in, as minimal JSON patches

pub mod action;
pub mod admission_policy;
pub mod api;
pub mod case;
pub mod cel;
pub mod change;
pub mod configuration;
pub mod context;
pub mod defaulting;
pub mod fault;
pub mod feature_gates;
pub mod finding;
pub mod go_template;
pub mod judge;
pub mod overrides;
pub mod pool_version;
pub mod row;
pub mod rule;
pub mod syntax;
pub mod topics;
pub mod view;

pub use action::Action;
pub use change::{Change, Operation, Subresource};
pub use configuration::Configuration;
pub use context::Context;
pub use fault::{CauseReason, Fault, Faults};
pub use feature_gates::FeatureGates;
pub use finding::{Finding, Softening};
pub use judge::{Judged, Judgement, judge};
pub use rule::{Rule, Scope};
