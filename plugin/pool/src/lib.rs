//! Cluster pools: leases on the entries of their inventories, clusters that are created with them, and repair.
//!
//! Nothing here parses arguments, prints, or knows an exit code. A decision returns a value; a wait reports to a
//! [`acquire::wait::Progress`]. Each folder imports only from those above it:
//!
//! - [`objects`]: the records of leases, and the patches of what the API server stores
//! - [`install_config`]: the install-config, and a customization's patches on it
//! - [`lease`]: the model of leases; `MODEL.md` has it on one page
//! - [`hive`]: whether Hive runs a pool
//! - [`store`]: reads and writes on the API server; [`snapshot`]: the objects of one namespace, read at one time
//! - [`events`]: Events of leases
//! - [`inventory`]: how many clusters a pool may have, and which are stale
//! - [`creation`]: the objects of a cluster, and their writes
//! - [`acquire`]: a lease, or a cluster, from a pool; [`release`]: releases them; [`cordon`]: keeps one from new holders
//! - [`repair`]: what is wrong, and the writes that repair it
//! - [`status`], [`plan`]: the state of a pool, and what a change of it would do

#![allow(
    missing_docs,
    reason = "comments on fields and variants state only what the name does not: units, absence, sources"
)]

pub mod acquire;
pub mod cordon;
pub mod creation;
pub mod events;
pub mod hive;
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
