//! What Cluster API's controller will do to a control plane, step by step, and what blocks the first step.
//!
//! The decisions are those of the kubeadm control plane controller of Cluster API v1.14 (`controlplane/kubeadm`), without
//! in-place updates of Machines, which are behind a feature gate there.

pub mod ask;
pub mod course;
pub mod deletion_order;
pub mod difference;
pub mod effect;
pub mod failure_domain;
pub mod kubeadm_config;
pub mod outlook;
pub mod preflight;
pub mod remediation;
pub mod risk;
pub mod rollout_reason;
pub mod state;
pub mod step;
pub mod wording;

#[cfg(test)]
mod properties;
