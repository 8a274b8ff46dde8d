//! What leases read and write.

use std::time::Duration;

use kcp_client::{Error, ServerTime, Written};
use serde_json::Value;

use crate::{lease::usage::Clusters, objects::entry::Entry};

/// The entries of one namespace, and the clusters of all.
#[allow(async_fn_in_trait, reason = "used in this crate, on one thread")]
pub trait LeaseStore {
    async fn list(&self) -> Result<Vec<Entry>, Error>;

    /// None if there is no such entry.
    async fn get(&self, name: &str) -> Result<Option<Entry>, Error>;

    /// Writes a status once. `Changed` if the entry is gone. Every other entry would fail with the same error.
    async fn write_status(&self, name: &str, patch: &Value) -> Result<Written, Error>;

    /// The ClusterDeployments of all namespaces. Unknown if the client may not list them.
    async fn clusters(&self) -> Result<Clusters, Error>;

    /// Waits before the server is asked again.
    async fn rest(&self, delay: Duration) {
        tokio::time::sleep(delay).await;
    }

    /// The server's time, not this machine's.
    fn now(&self) -> ServerTime;
}
