//! Reads the lease, the pool and the deletion of stored objects. The crate `kcp-api` decodes the Kubernetes kinds.

pub mod claim;
pub mod cluster_deployment;
pub mod entry;

pub use kcp_api::{
    cleaning_record::{self as cleaning, CleaningRecord},
    lease_record::{self as record, ClusterName},
};

/// The holder of a lease: a ClusterDeployment's name and a pool. Two callers with the same name are the same holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'h> {
    /// The name of the pool. A customization serves only pools of its own namespace.
    pub pool: &'h str,
    pub cluster_deployment: &'h str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolName {
    pub namespace: String,
    pub name: String,
}

impl PoolName {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}
