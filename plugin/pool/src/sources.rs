//! Reads what Hive loses sight of: inventories that the server drops, and Secrets that changed after Hive had created clusters from
//! them.
//!
//! - [`lost_inventory`]: whether the server drops `spec.inventory`
//! - [`secrets`]: the Secrets of a pool, compared with its clusters

pub mod lost_inventory;
pub mod secrets;
