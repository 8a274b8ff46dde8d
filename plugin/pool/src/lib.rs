//! Leases the customizations of cluster pools. A pool's inventory lists customizations, which are called its
//! entries. Scripts lease entries, and clusters are created for leases.
//!
//! This crate does not parse arguments, print, or set an exit code. A decision returns a value; a wait reports to a
//! [`acquire::wait::Progress`].
//!
//! Each module uses only modules below it in this list, which a test checks.
//!
//! - [`status`], [`plan`]: the state of a pool, and the effects of a change to its spec
//! - [`repair`]: finds problems of a pool, and repairs them
//! - [`cleaning`]: cleans entries between two holders
//! - [`release`]: releases leases and clusters; [`cordon`]: excludes an entry from new leases
//! - [`record_versions`]: the format versions of the lease records in a namespace
//! - [`acquire`]: gets a lease or a cluster from a pool
//! - [`creation`]: builds and writes the objects of a cluster
//! - [`inventory`]: the limits of a pool, and its stale clusters
//! - [`events`]: Events of leases
//! - [`snapshot`]: the objects of one namespace, read at one time
//! - [`sources`]: inventories that the server dropped, and Secrets that changed after clusters had been created from them
//! - [`store`]: reads and writes on the API server
//! - [`lease`]: the model of leases, which a page of the book describes
//! - [`install_config`]: the install-config, and a customization's patches on it
//! - [`objects`]: the objects that the API server stores, the records of leases in them, and the patches that change them
//! - [`hive`]: whether Hive manages a pool

#![allow(
    missing_docs,
    reason = "fields and variants are documented only where the name does not say enough, such as the unit, what an absent \
        value means, or the source"
)]

pub mod acquire;
pub mod cleaning;
pub mod cordon;
pub mod creation;
pub mod events;
pub mod hive;
pub mod install_config;
pub mod inventory;
pub mod lease;
pub mod objects;
pub mod plan;
pub mod record_versions;
pub mod release;
pub mod repair;
pub mod snapshot;
pub mod sources;
pub mod status;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
