//! The commands of `kubectl kcp`, one module each.

pub mod audit;
pub mod bundle;
pub mod certificates;
pub mod completion;
pub mod etcd;
pub mod exporter;
pub mod generate;
pub mod kubectl;
pub mod leader_migration;
pub mod lint;
pub mod logs;
pub mod machine;
pub mod man;
pub mod node;
pub mod plan;
pub mod pool;
pub mod reconcile;
pub mod rollout;
pub mod rules;
pub mod scale;
pub mod status;
pub mod upgrade;
pub mod validate;
pub mod version;
pub mod webhook;
pub mod why;
