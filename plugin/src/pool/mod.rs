//! `kubectl kcp pool`: leases on the customizations of a cluster pool.
//!
//! - [`library`]: reads, decisions and writes
//! - [`commands`]: arguments and what is printed

mod commands;
mod library;

pub use commands::{PoolArguments, PoolCommand, exec::NO_LEASE, run};
