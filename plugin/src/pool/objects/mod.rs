//! What Hive, Kubernetes and we keep of pools, their customizations, who holds them, and the clusters made with them; and
//! the patches that change it.
//!
//! - [`cluster_pool`], [`entry`], [`deployments`], [`claims`]: Hive's; [`record`]: the Lease beside an entry; [`copies`]
//! - [`metadata`], [`conditions`]: what they have in common

pub(in crate::pool) mod claims;
pub(in crate::pool) mod cluster_pool;
pub(in crate::pool) mod conditions;
pub(in crate::pool) mod copies;
pub(in crate::pool) mod deployments;
pub(in crate::pool) mod entry;
pub(in crate::pool) mod metadata;
pub(in crate::pool) mod record;
