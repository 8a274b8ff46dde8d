//! Pools on a real API server, lessees whose commands meet with faults, and what etcd kept of it all.
//!
//! - [`server`]: etcd and an API server whose history can be read
//! - [`fault`], [`fault_proxy`]: what goes wrong between one command and the API server
//! - [`command`], [`verb`]: `kubectl-kcp`, and what it is told to do
//! - [`pool`]: one pool, and who was told what of it; [`departure`]: how lessees go
//! - [`version`], [`history`]: every version of every entry, from etcd
//! - [`invariant`]: what must be so of them
//! - [`random_run`], [`counts`]: eight lessees, four entries, and faults by a seed
//! - [`naive`]: how scripts lease without `kubectl kcp`

pub mod command;
pub mod counts;
pub mod departure;
pub mod fault;
pub mod fault_proxy;
pub mod history;
pub mod invariant;
pub mod naive;
pub mod pool;
mod random;
pub mod random_run;
pub mod server;
pub mod verb;
pub mod version;
