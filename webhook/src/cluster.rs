//! Objects that a review does not contain: kinds that are watched and cached, and live reads of all other kinds.
//!
//! - `watch`: lists and watches a kind, and updates its cache
//! - `view`: reads the objects that rules need
//! - `subject`: the names of the object under review
//! - `authorization`: checks what a user may do, and reads the labels of a namespace
//! - `topology`: reads what the topology of a Cluster changes
//! - `discovery`: reads the versions of a group from the API server
//! - `cluster_deployments`: finds the `ClusterDeployment`s that belong to a pool or use a customization
//! - `pool_entries`: counts the entries of pools by the leases on them
//! - `etcd_snapshots`: when the last snapshot of each control plane's etcd was recorded
//! - `list`: live reads of lists
//! - `live_reads`: reads from the API server until a deadline
//! - `shared_reads`: shares one response between the reviews that read the same path
//! - `versions`: remembers the API version in which to read each group
//! - `registration`: checks whether the webhook configurations call this program
//! - `kinds`: the watched kinds, and the cached part of each object
//! - `cache`: the cached objects of one kind
//! - `events`: decodes the lists and watch events that an API server sends
//! - `read_error`: the reasons why a read fails

mod authorization;
mod cache;
mod cluster_deployments;
mod discovery;
mod etcd_snapshots;
mod events;
mod kinds;
mod list;
mod live_reads;
mod pool_entries;
mod read_error;
mod registration;
mod shared_reads;
mod subject;
mod topology;
mod versions;
mod view;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::Path,
    sync::Arc,
};

use jiff::Timestamp;
use kcp_rules::view::{Part, View};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use thiserror::Error;

use self::{kinds::Caches, live_reads::ApiServer, subject::is_path_segment, view::FilledView};
use crate::{
    metrics::{LastSnapshot, Metrics, PoolEntries, PoolName},
    tasks::Tasks,
};

pub(crate) use self::discovery::SUPPORTED;
pub(crate) use self::{
    cache::CacheState,
    live_reads::{LiveReads, ReadLimits},
    read_error::ReadError,
    subject::Subject,
    topology::ClassTemplate,
    view::Source,
};

/// The error for a kubeconfig that cannot be used.
#[derive(Debug, Error)]
#[error("cannot use the kubeconfig {file}: {error}")]
pub struct AccessError {
    file: String,
    error: String,
}

/// Reads objects from the API server, and caches those of some kinds.
#[derive(Clone)]
pub(crate) struct ClusterReader {
    server: ApiServer,
    caches: Arc<Caches>,
}

impl ClusterReader {
    pub(crate) fn new(client: Option<Client>, metrics: Arc<Metrics>) -> Self {
        Self {
            server: ApiServer::new(client.ok_or(ReadError::NoAccess), metrics),
            caches: Arc::default(),
        }
    }

    /// Creates a `ClusterReader` that reads no objects, for clients without a verified certificate.
    pub(crate) fn for_unverified(metrics: Arc<Metrics>) -> Self {
        Self {
            server: ApiServer::new(Err(ReadError::Unverified), metrics),
            caches: Arc::default(),
        }
    }

    /// Configures access to the API server with `kubeconfig`, or else with the pod's service account. Without either,
    /// there is no access. Sends no request.
    pub(crate) async fn connect(
        kubeconfig: Option<&Path>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, AccessError> {
        Ok(Self::new(connect(kubeconfig).await?, metrics))
    }

    /// Whether there is an API server to read from.
    pub(crate) fn has_access(&self) -> bool {
        self.access_error().is_none()
    }

    /// Why there is no API server to read from; `None` if there is one.
    pub(crate) fn access_error(&self) -> Option<&ReadError> {
        self.server.client.as_ref().err()
    }

    /// Starts the reads of one review.
    pub(crate) const fn start_reads(&self, limits: ReadLimits) -> LiveReads<'_> {
        self.server.reads_for(limits)
    }

    /// A view with the Cluster, if it is cached.
    pub(crate) fn cached_cluster(&self, subject: &Subject) -> View {
        self.caches.view([Part::Cluster], subject)
    }

    /// Reads the parts of a view, all at the same time. A part that the webhook cannot read stays unknown.
    pub(crate) async fn read_view(
        &self,
        reads: &LiveReads<'_>,
        parts: &BTreeSet<Part>,
        subject: &Subject,
        source: Source,
    ) -> FilledView {
        // Box the future, which is large and which most reviews do not need.
        Box::pin(reads.read_view(parts, subject, &self.caches, source)).await
    }

    /// Creates an Event.
    pub(crate) async fn create_event(&self, namespace: &str, event: &Value) -> Result<(), ReadError> {
        if !is_path_segment(namespace) {
            return Err(ReadError::BadName);
        }
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let request = live_reads::post(&path, event)?;
        self.start_reads(ReadLimits::default())
            .send(&path, request)
            .await
            .map(drop)
    }

    /// Watches all cached kinds, and checks the registration, if there is access to the API server.
    pub(crate) fn watch(&self, tasks: &mut Tasks) {
        if self.has_access() {
            watch::spawn_all(&self.server, &self.caches, tasks);
            registration::spawn(&self.server, tasks);
        }
    }

    /// The plural of each cached kind, the state of its cache, and the number of objects in it.
    pub(crate) fn cache_states(&self) -> [(&'static str, CacheState, usize); 5] {
        self.caches.states()
    }

    /// Counts the entries of each pool by the state of their lease records.
    pub(crate) fn count_pool_entries(&self, now: Timestamp) -> BTreeMap<PoolName, PoolEntries> {
        self.caches.count_pool_entries(now)
    }

    /// The last snapshot of each control plane's etcd.
    pub(crate) fn last_snapshots(&self, now: Timestamp) -> Vec<LastSnapshot> {
        self.caches.last_snapshots(now)
    }

    /// The API versions in which the API server serves control planes, but which this program does not know.
    pub(crate) fn unregistered_versions(&self) -> Vec<String> {
        self.server.versions.unregistered_versions()
    }

    /// The cached control plane as JSON, if it was read in this API version and has this resource version.
    pub(crate) fn cached_control_plane(
        &self,
        version: &str,
        namespace: &str,
        name: &str,
        resource_version: &str,
    ) -> Option<Arc<str>> {
        let cached = self.caches.control_planes.last_seen(version, namespace, name)?;
        (&*cached.resource_version == resource_version).then_some(cached.text)
    }

    /// Fills the caches as if these objects had been listed.
    #[cfg(test)]
    pub(crate) fn fill_caches(&self, objects: &[serde_json::Value]) {
        self.caches.fill(objects);
    }
}

/// Creates a client with `kubeconfig`, or else with the pod's service account. Returns `None` without either. Sends no
/// request.
pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<Option<Client>, AccessError> {
    let Some(file) = kubeconfig else {
        let is_in_cluster = env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        return Ok(is_in_cluster.then(in_cluster).flatten());
    };
    let failed = |error: String| AccessError {
        file: file.display().to_string(),
        error,
    };
    let parsed = Kubeconfig::read_from(file).map_err(|error| failed(error.to_string()))?;
    let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .map_err(|error| failed(error.to_string()))?;
    Ok(Some(client(config).map_err(|error| failed(error.to_string()))?))
}

fn client(mut config: Config) -> kube::Result<Client> {
    // By default, the client retries up to 15 times, which would exceed every deadline of this program.
    config.default_retry = false;
    Client::try_from(config)
}

/// Returns a client with the pod's service account, or `None` if the pod has no service account token.
fn in_cluster() -> Option<Client> {
    let configured = Config::incluster().map_err(|error| error.to_string());
    match configured.and_then(|config| client(config).map_err(|error| error.to_string())) {
        Ok(client) => Some(client),
        Err(error) => {
            tracing::warn!(%error, "cannot use the pod's service account; kcp-webhook runs without API \
                access");
            None
        }
    }
}
