//! The reads and writes of leases, as a trait, so that tests can replace the API server.

use std::time::Duration;

use kcp_client::{Error, ServerTime, Written};
use serde_json::Value;

use crate::{lease::usage::Clusters, objects::entry::Entry};

/// The entries of one namespace, and the clusters of all namespaces.
#[allow(async_fn_in_trait, reason = "used in this crate, on one thread")]
pub trait LeaseStore {
    async fn list(&self) -> Result<Vec<Entry>, Error>;

    /// Reads an entry; none if it does not exist.
    async fn get(&self, name: &str) -> Result<Option<Entry>, Error>;

    /// Writes an entry's status once. `Changed` also means that the entry no longer exists. If the result is an error, the
    /// write of every other entry would fail too.
    async fn write_status(&self, name: &str, patch: &Value) -> Result<Written, Error>;

    /// The ClusterDeployments of all namespaces, or `Unknown` if the client may not list them.
    async fn clusters(&self) -> Result<Clusters, Error>;

    /// Pauses before the next request.
    async fn pause(&self, delay: Duration) {
        tokio::time::sleep(delay).await;
    }

    /// The API server's time, not the local clock's.
    fn now(&self) -> ServerTime;
}
