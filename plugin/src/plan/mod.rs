//! What Cluster API's controller will do to a control plane, step by step, and what keeps it from the first step.
//!
//! Everything here is pure: facts in, a plan out. The decisions are those of the kubeadm control plane controller of
//! Cluster API v1.14 (`controlplane/kubeadm`), without in-place updates of Machines, which are behind a gate there.
//!
//! - [`observed`]: the facts a plan is made from
//! - [`fetch`]: reading them
//! - [`spec`]: what a control plane asks for, and changes of it
//! - [`quorum`]: what etcd can stand
//! - [`failure_domain`], [`deletion_order`]: where the next Machine comes from and goes to
//! - [`remediation`]: which Machine is replaced because it is unhealthy
//! - [`state`]: a control plane between two steps
//! - [`rollout_reason`], [`kubeadm_config`], [`difference`]: which Machines are out of date, and why
//! - [`preflight`]: what keeps the controller from the first step
//! - [`step`], [`course`]: the steps one after another
//! - [`outlook`]: all of it, for what is asked
//! - [`effect`]: what a change of each field does
//! - [`document`], [`screen`], [`wording`]: the JSON and the text
//!
//! `status` uses [`observed`], [`rollout_reason`], [`preflight`], [`remediation`] and [`quorum`].

pub mod course;
pub mod deletion_order;
pub mod difference;
pub mod document;
pub mod effect;
pub mod failure_domain;
pub mod fetch;
pub mod kubeadm_config;
pub mod observed;
pub mod outlook;
pub mod preflight;
pub mod quorum;
pub mod remediation;
pub mod rollout_reason;
pub mod screen;
pub mod spec;
pub mod state;
pub mod step;
pub(crate) mod wire;
pub mod wording;

#[cfg(test)]
pub(crate) mod example;
#[cfg(test)]
mod properties;
