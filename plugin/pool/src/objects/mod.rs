//! Pools, their entries, their holders and their clusters as the API server stores them, and the patches that change
//! them.

pub mod cluster_deployment;
pub mod cluster_pool;
pub mod entry;
pub mod metadata;
pub mod record;
