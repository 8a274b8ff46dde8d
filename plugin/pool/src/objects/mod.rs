//! What Hive, Kubernetes and we store of pools, their customizations, who holds them, and the clusters made with them; and
//! the patches that change it.

pub mod cluster_deployment;
pub mod cluster_pool;
pub mod entry;
pub mod metadata;
pub mod record;
