//! What a review does not carry: objects that are kept and watched, and live reads for all else.
//!
//! - `view`: fills the view that rules asked for
//! - `subject`: the object that is judged
//! - `list`: live reads of lists
//! - `versions`: in which version a group is read
//! - `watch`: keeps the caches up to date
//! - `kinds`: which kinds are watched, and what is kept of them
//! - `events`: what the API server sends of them
//! - `cache`: what is known of one kind
//! - `read_error`: why something could not be read

mod cache;
mod events;
mod kinds;
mod list;
mod read_error;
mod subject;
mod versions;
mod view;
mod watch;

use std::{env, path::Path, sync::Arc, time::Duration};

use hyper::{Request, header};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::{
    sync::Semaphore,
    time::{self, Instant},
};

use self::{
    kinds::Caches,
    read_error::{failed, refused, status, unread},
    subject::is_path_segment,
    versions::Versions,
};
use crate::{
    body::{self, Whole},
    limits::{ANSWER_BYTES, ANSWERS_BYTES, LIVE_READS},
    metrics::Metrics,
};

pub(crate) use self::{cache::State, read_error::ReadError, subject::Subject, view::Source, watch::keep_up};

/// API access that was asked for and cannot be had.
#[derive(Debug, Error)]
#[error("cannot use the kubeconfig {file}: {error}")]
pub struct AccessError {
    file: String,
    error: String,
}

/// The API server, as far as we may ask it.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Option<Client>,
    versions: Arc<Versions>,
    caches: Arc<Caches>,
    /// Of the bytes that all answers may hold, those that are free.
    held: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

/// The live reads of one review, which end together.
pub(crate) struct LiveReads<'c> {
    cluster: &'c Cluster,
    deadline: Instant,
}

/// How much of an object is wanted.
#[derive(Clone, Copy, Debug)]
enum Projection {
    Whole,
    /// Metadata alone, of each member of a list: an object can be a megabyte, and its name is a few bytes.
    Metadata,
}

impl Projection {
    const fn accept(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        }
    }

    const fn accept_of_watch(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        }
    }
}

impl Cluster {
    pub(crate) fn new(client: Option<Client>, metrics: Arc<Metrics>) -> Self {
        Self {
            client,
            versions: Arc::default(),
            caches: Arc::default(),
            held: Arc::new(Semaphore::new(ANSWERS_BYTES)),
            metrics,
        }
    }

    /// Finds out how to reach the API server: by `kubeconfig`, else as a pod, else not at all. Nothing is sent yet.
    pub(crate) async fn connect(
        kubeconfig: Option<&Path>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, AccessError> {
        let client = match kubeconfig {
            Some(file) => {
                let failed = |error: String| AccessError {
                    file: file.display().to_string(),
                    error,
                };
                let parsed = Kubeconfig::read_from(file).map_err(|error| failed(error.to_string()))?;
                let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
                    .await
                    .map_err(|error| failed(error.to_string()))?;
                Some(client(config).map_err(|error| failed(error.to_string()))?)
            }
            None if env::var_os("KUBERNETES_SERVICE_HOST").is_some() => in_cluster(),
            None => None,
        };
        Ok(Self::new(client, metrics))
    }

    /// Whether there is an API server to ask.
    pub(crate) fn has_access(&self) -> bool {
        self.client.is_some()
    }

    /// Reads for one review, from now on.
    pub(crate) fn reads(&self) -> LiveReads<'_> {
        self.reads_within(LIVE_READS)
    }

    fn reads_within(&self, limit: Duration) -> LiveReads<'_> {
        LiveReads {
            cluster: self,
            deadline: Instant::now() + limit,
        }
    }

    /// As if these objects had been listed.
    #[cfg(test)]
    pub(crate) fn knows(&self, objects: &[serde_json::Value]) {
        self.caches.fill(objects);
    }

    /// How far the cache of each kind is, and how many objects it holds.
    pub(crate) fn caches(&self) -> [(&'static str, State, usize); 4] {
        self.caches.states()
    }

    /// A control plane as it was at a resource version, as JSON in a version of the reviewer's choice; none if it is
    /// not that one which is kept.
    pub(crate) fn control_plane_at(
        &self,
        version: &str,
        namespace: &str,
        name: &str,
        resource_version: &str,
    ) -> Option<Arc<str>> {
        let kept = self.caches.control_planes.last_seen(version, namespace, name)?;
        (&*kept.resource_version == resource_version).then_some(kept.text)
    }
}

impl LiveReads<'_> {
    /// A control plane as it is now, as JSON, in a version of the reviewer's choice.
    pub(crate) async fn control_plane(
        &self,
        version: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Whole<'_>, ReadError> {
        if ![version, namespace, name].into_iter().all(is_path_segment) {
            return Err(ReadError::BadName);
        }
        let path = format!(
            "/apis/controlplane.cluster.x-k8s.io/{version}/namespaces/{namespace}/kubeadmcontrolplanes/{name}"
        );
        self.read(&path, Projection::Whole).await
    }

    async fn object<T: DeserializeOwned>(&self, path: &str, projection: Projection) -> Result<T, ReadError> {
        let answer = self.read(path, projection).await?;
        serde_json::from_slice(answer.as_bytes()).map_err(|error| ReadError::Unusable(error.to_string()))
    }

    /// What is at a path of the API, as JSON. What goes into a path has passed [`is_path_segment`].
    async fn read(&self, path: &str, projection: Projection) -> Result<Whole<'_>, ReadError> {
        let read = self.get(path, projection).await;
        self.cluster
            .metrics
            .live_read(read.as_ref().map_or_else(ReadError::label, |_| "ok"));
        read
    }

    async fn get(&self, path: &str, projection: Projection) -> Result<Whole<'_>, ReadError> {
        let client = self.cluster.client.as_ref().ok_or(ReadError::NoAccess)?;
        let request = Request::get(path)
            .header(header::ACCEPT, projection.accept())
            .body(Body::empty())
            .map_err(|error| ReadError::Failed(error.to_string()))?;
        let answer = time::timeout_at(self.deadline, client.send(request))
            .await
            .map_err(|_| ReadError::TooSlow)?
            .map_err(|error| failed(&error))?;
        let code = answer.status();
        let answer = body::read(
            answer.into_body(),
            ANSWER_BYTES,
            self.deadline,
            &self.cluster.held,
        )
        .await
        .map_err(unread)?;
        if code.is_success() {
            return Ok(answer);
        }
        let refusal = status(code, answer.as_bytes());
        self.cluster.versions.learn(path, &refusal);
        Err(refused(&refusal))
    }
}

fn client(mut config: Config) -> kube::Result<Client> {
    // On by default: up to 15 retries, beyond any deadline of ours.
    config.default_retry = false;
    Client::try_from(config)
}

/// A pod without a service account's token serves all the same.
fn in_cluster() -> Option<Client> {
    let configured = Config::incluster().map_err(|error| error.to_string());
    match configured.and_then(|config| client(config).map_err(|error| error.to_string())) {
        Ok(client) => Some(client),
        Err(error) => {
            tracing::warn!(%error, "this pod has no usable service account");
            None
        }
    }
}
