//! Cluster pools: leases on the customizations of their inventories, clusters made with them, and repair.
//!
//! Nothing here parses arguments, prints, or knows an exit code: a decision returns a value, and what a wait has to
//! report goes to a [`acquire::wait::Progress`]. Each folder imports only from those above it:
//!
//! - [`objects`]: what Hive, Kubernetes and we store, and the patches that change it
//! - [`install_config`]: the install-config, and a customization's patches on it
//! - [`snapshot`]: the objects of one namespace, read at one time; [`store`]: reads and writes on the API server
//! - [`inventory`]: which entry a holder gets, how much room a pool has, which clusters are stale
//! - [`lease`]: takes, renews and records one entry
//! - [`creation`]: the objects of a cluster that is made with a lease, and their writes
//! - [`acquire`]: a lease, or a cluster, from a pool; [`release`]: gives leases back
//! - [`repair`]: what has leaked, and the writes that repair it
//! - [`status`], [`plan`]: a pool as it is, and what a change of it would do

#![allow(
    missing_docs,
    reason = "a field or variant is documented where its name does not say it: units, absence, sources"
)]

pub mod acquire;
pub mod creation;
pub mod install_config;
pub mod inventory;
pub mod lease;
pub mod objects;
pub mod plan;
pub mod release;
pub mod repair;
pub mod snapshot;
pub mod status;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
