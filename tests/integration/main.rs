//! Tests against a real control plane; `tests/README.md` explains what is real.
//!
//! There is one binary, so that all tests share one management cluster, see [`shared`]. Each test has its own
//! namespace.

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
mod output;
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
mod skipped_reviews;
mod status;
mod status_read;
mod status_workload;
