//! The reads and writes that leases need, as a trait, so that tests can replace the API server.

use std::time::Duration;

use kcp_client::{CreateResult, Error, ServerTime, Written};
use serde_json::{Map, Value};

use crate::{
    lease::{queue::Queue, reuse::Reuse, usage::Clusters},
    objects::entry::Entry,
};

/// Reads and writes the entries of one namespace, and reads the clusters of all namespaces.
#[allow(async_fn_in_trait, reason = "used in this crate, on one thread")]
pub trait LeaseStore {
    async fn list(&self) -> Result<Vec<Entry>, Error>;

    /// Reads an entry; `None` if it does not exist.
    async fn get(&self, name: &str) -> Result<Option<Entry>, Error>;

    /// Writes an entry's status once, without a retry. Returns `Changed` if another client has changed or deleted the
    /// entry. Returns an error only if a write of any other entry would fail too.
    async fn write_status(&self, name: &str, patch: &Value) -> Result<Written, Error>;

    /// Writes an entry's metadata once, without another attempt after a conflict. The merge patch must contain a
    /// resourceVersion. Returns `Changed` if another client has changed or deleted the entry.
    async fn write_entry(&self, name: &str, patch: &Value) -> Result<Written, Error>;

    /// Lists the ClusterDeployments of all namespaces; `Unknown` if the client is not allowed to list them.
    async fn clusters(&self) -> Result<Clusters, Error>;

    /// Reads the pool for which an entry is reserved, and decides what becomes of the entry when its lease ends.
    async fn reuse(&self, entry: &Entry) -> Result<Reuse, Error>;

    /// Reads the queue of a pool; empty if there is none.
    async fn queue(&self, pool: &str) -> Result<Queue, Error>;

    /// Writes a part of the queue of a pool once. Returns `Changed` if there is no such part, or if the merge patch requires another
    /// version of it.
    async fn write_queue(&self, pool: &str, part: usize, patch: &Value) -> Result<Written, Error>;

    /// Creates a part of the queue of a pool with these annotations, unless it exists.
    async fn create_queue(
        &self,
        pool: &str,
        part: usize,
        annotations: &Map<String, Value>,
    ) -> Result<CreateResult, Error>;

    /// Pauses before the next request.
    async fn pause(&self, delay: Duration) {
        tokio::time::sleep(delay).await;
    }

    /// The API server's time, not the local clock's.
    fn now(&self) -> ServerTime;
}
