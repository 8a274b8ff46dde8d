//! What Hive, Kubernetes and we keep of pools, their customizations, who holds them, and the clusters made with them; and
//! the patches that change it.
//!
//! - [`cluster_pool`], [`entry`], [`deployments`], [`claims`]: Hive's; [`record`]: the Lease beside an entry; [`copies`]
//! - [`metadata`], [`conditions`]: what they have in common

pub mod claims;
pub mod cluster_pool;
pub mod conditions;
pub mod copies;
pub mod deployments;
pub mod entry;
pub mod metadata;
pub mod record;
