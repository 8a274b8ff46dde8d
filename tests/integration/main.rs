//! Tests against a real control plane; `tests/README.md` says what of it is real.
//!
//! One binary: all tests share the management cluster that [`shared`] brings up, and each has a namespace of its
//! own.

mod cluster_rules;
mod configuration;
mod documents;
mod faults;
mod fleet;
mod flows;
mod leftovers;
mod lint;
mod management_cluster;
mod objects;
mod plugin;
mod remediation;
mod rows;
mod samples;
mod shared;
