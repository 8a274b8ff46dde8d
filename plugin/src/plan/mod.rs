//! What Cluster API's controller will do to a control plane, step by step, and what keeps it from the first step.
//!
//! Everything here is pure: facts in, a plan out. The decisions are those of the kubeadm control plane controller of
//! Cluster API v1.14 (`controlplane/kubeadm`), without in-place updates of Machines, which are behind a gate there.
//!
//! - [`observed`]: the facts a plan is made from
//! - [`spec`]: what a control plane asks for, and changes of it
//! - [`quorum`]: what etcd can stand
//! - [`failure_domain`], [`deletion_order`]: where the next Machine comes from and goes to
//! - [`remediation`]: which Machine is replaced because it is unhealthy
//! - [`state`]: a control plane between two steps
//! - [`step`], [`course`]: the steps one after another

pub mod course;
pub mod deletion_order;
pub mod difference;
pub mod document;
pub mod effect;
pub mod failure_domain;
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
pub mod wording;

#[cfg(test)]
pub(crate) mod example;
#[cfg(test)]
mod properties;
