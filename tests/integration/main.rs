//! Tests against a real control plane; `tests/README.md` says what of it is real.
//!
//! One binary: all tests share the management cluster that [`shared`] brings up, and each has a namespace of its
//! own.

mod acknowledged_writes;
mod changes;
mod cluster_rules;
mod cluster_view;
mod configuration;
mod converted;
mod deletion;
mod documents;
mod etcd;
mod faults;
mod fleet;
mod flows;
mod hosts;
mod leftovers;
mod lint;
mod load;
mod machine_verbs;
mod management_cluster;
mod objects;
mod plugin;
mod policy_types;
mod pool;
mod pool_creation;
mod pool_plan;
mod pool_recreation;
mod pool_repair;
mod pool_status;
mod pools;
mod predictions;
mod reasons;
mod remediation;
mod roles;
mod rollouts;
mod rows;
mod samples;
mod schema;
mod shared;
mod status;
mod status_read;
mod status_workload;
mod unasked;
