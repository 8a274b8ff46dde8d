//! Pools on a real API server, lessees whose commands fail, and the history of all objects in etcd.
//!
//! - [`server`]: etcd and an API server with a readable history
//! - [`fault`], [`fault_proxy`]: faults between one command and the API server
//! - [`command`], [`verb`]: `kubectl-kcp` and its arguments; `shifted_clock`: a wrong wall clock
//! - [`pool`]: one pool, and the messages to its lessees; [`cluster_changes`]: clusters that appear and disappear
//! - [`version`], [`history`]: every version of every object, from etcd
//! - [`claim`]: what each lessee may rely on; [`invariant`]: the invariants of the versions
//! - [`random_run`], `lessee`, [`counts`]: eight lessees, four entries, and faults chosen by a seed
//! - [`stand_in_hive`], `claim_run`: lessees that claim clusters from a stand-in for Hive
//! - [`naive`]: leases of scripts without `kubectl kcp`
//! - [`sets`]: lessees of overlapping sets
//! - [`waiting`]: in which order lessees that wait are served

pub mod claim;
mod claim_run;
pub mod cluster_changes;
pub mod command;
pub mod counts;
pub mod fault;
pub mod fault_proxy;
pub mod history;
pub mod invariant;
mod lessee;
pub mod naive;
pub mod pool;
pub mod random;
pub mod random_run;
pub mod server;
pub mod sets;
mod shifted_clock;
pub mod stand_in_hive;
pub mod verb;
pub mod version;
pub mod waiting;
