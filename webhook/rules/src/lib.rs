//! The admission rules for `KubeadmControlPlane`s and cluster pools, and the fields that they read.
//!
//! A rule is a pure function over plain data: no client, no clock, no runtime. The webhook server and the plugin
//! both use this crate, so `kubectl kcp lint` reports what admission would report.
//!
//! Each module uses only modules below it in this list, which a test checks.
//!
//! - [`registration`]: the webhook configurations, and how to disable and enable them
//! - [`probe`]: the report of `kcp-webhook probe`
//! - [`judge`], [`overrides`]: apply all rules, and the overrides of users, to one change
//! - [`topology`]: the topology of a Cluster, as a change of its control plane
//! - [`defaulting`]: default values as minimal JSON patches
//! - [`api_proxy`]: the static Pod in front of all API servers, which kubelets use
//! - [`anchor`]: the static Pod beside an API server, which `kcp-webhook anchor` writes
//! - [`admission_policy`]: the rules with CEL as `ValidatingAdmissionPolicy` objects
//! - [`topics`]: every rule, by topic; the table of contents
//! - [`pool_version`]: the hash by which Hive finds stale unclaimed clusters of a pool
//! - [`progress`]: changes in progress on a control plane: a rollout, the adoption of Machines, a pause
//! - [`go_template`]: the syntax of the templates for names of Machines
//! - [`leader_migration`]: the controllers of kube-controller-manager that can migrate, and the configuration of KEP-2436
//! - [`components`]: the flags, feature gates, admission plugins and APIs that each version of a component knows
//! - [`configuration`]: the actions that an operator sets for rules, and exemptions
//! - [`exemption`]: exemptions of writes by user, group and namespace; findings do not deny an exempt write
//! - [`finding`], [`rule`]: a violation of a rule, and the definition of a rule
//! - [`change`]: the input of a rule: the operation, the new object and the old one
//! - [`fault`]: the result of a rule as Kubernetes field errors
//! - [`context`], [`view`], [`feature_gates`], [`trusted_users`]: the environment of a change, any part of which may be unknown:
//!   the writer and the time, related objects, and feature gates
//! - [`cel`], [`action`]: the rule as CEL, and what to do about a violation

#![allow(
    missing_docs,
    reason = "fields have their Kubernetes names; only names that do not say enough are documented"
)]

pub mod action;
pub mod admission_policy;
pub mod anchor;
pub mod api_proxy;
pub mod cel;
pub mod change;
pub mod components;
pub mod configuration;
pub mod context;
pub mod defaulting;
pub mod exemption;
pub mod fault;
pub mod feature_gates;
pub mod finding;
pub mod go_template;
pub mod judge;
pub mod leader_migration;
pub mod overrides;
pub mod pool_version;
pub mod probe;
pub mod progress;
pub mod registration;
pub mod rule;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod topics;
pub mod topology;
pub mod trusted_users;
pub mod view;

pub use kcp_api::{review as api, syntax};

pub use action::{Action, DowngradeReason};
pub use change::{Change, Operation, Subresource};
pub use configuration::Configuration;
pub use context::Context;
pub use fault::{CauseReason, Fault, Faults};
pub use feature_gates::FeatureGates;
pub use finding::Finding;
pub use judge::{HasRules, Judgement, judge};
pub use rule::{InTopology, OnUnread, Rule, Scope};
pub use trusted_users::TrustedUsers;
