//! Reads from the API server until a deadline.

use std::{sync::Arc, time::Duration};

use hyper::{Request, header};
use kube::{Client, client::Body};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{self, Instant};

use super::{
    read_error::{ReadError, parse_status},
    shared_reads::SharedReads,
    subject::is_path_segment,
    versions::Versions,
};
use crate::{
    limits::{
        BUSY_DELAY, LIVE_READ_TIMEOUT, MAX_BUFFERED_RESPONSE_BYTES, MAX_CONCURRENT_READS, MAX_RESPONSE_BYTES,
    },
    metrics::Metrics,
    net::{
        body::{self, BufferedBody},
        shares::{Peer, Shares},
    },
};

/// What to read, and for which client: a path of the API, and how much of each object at that path. Two clients never share a
/// read, because one client would then wait until the other client's share is free.
type Target = (String, Projection, Peer);

/// The result of a read. Reviews that read the same path share this result, even if it is an error that the
/// API server returned.
type SharedResponse = Result<Arc<BufferedBody>, ReadError>;

/// The API server that the webhook reads from, or the reason why it reads from none.
#[derive(Clone)]
pub(super) struct ApiServer {
    /// The client, or the reason why there is none.
    pub(super) client: Result<Client, ReadError>,
    pub(super) versions: Arc<Versions>,
    /// The memory for responses.
    pub(super) memory: Arc<Shares>,
    reads: Arc<SharedReads<Target, SharedResponse>>,
    pub(super) metrics: Arc<Metrics>,
}

impl ApiServer {
    pub(super) fn new(client: Result<Client, ReadError>, metrics: Arc<Metrics>) -> Self {
        Self {
            client,
            versions: Arc::default(),
            memory: Shares::new(MAX_BUFFERED_RESPONSE_BYTES),
            reads: Arc::new(SharedReads::new(MAX_CONCURRENT_READS)),
            metrics,
        }
    }

    pub(super) fn reads_within(&self, limit: Duration) -> LiveReads<'_> {
        self.reads_for(ReadLimits {
            peer: Peer::SELF,
            deadline: Instant::now() + limit,
        })
    }

    pub(super) const fn reads_for(&self, limits: ReadLimits) -> LiveReads<'_> {
        LiveReads {
            server: self,
            peer: limits.peer,
            deadline: limits.deadline,
        }
    }
}

/// The limits on the live reads of a review.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    /// The client of the review. The live reads count against the share of this client.
    pub(crate) peer: Peer,
    pub(crate) deadline: Instant,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            peer: Peer::SELF,
            deadline: Instant::now() + LIVE_READ_TIMEOUT,
        }
    }
}

/// A request that creates an object.
pub(super) fn post(path: &str, object: &Value) -> Result<Request<Body>, ReadError> {
    Request::post(path)
        .header(header::ACCEPT, Projection::Whole.accept_header())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(object.to_string().into_bytes()))
        .map_err(|error| ReadError::Failed(error.to_string()))
}

/// Live reads that share a deadline, such as those of one review.
pub(crate) struct LiveReads<'s> {
    pub(super) server: &'s ApiServer,
    peer: Peer,
    pub(super) deadline: Instant,
}

/// How much of each object the API server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Projection {
    Whole,
    /// Only the metadata of each object: an object can take a megabyte, but its name takes only a few bytes.
    Metadata,
}

impl Projection {
    pub(super) const fn accept_header(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        }
    }
}

impl LiveReads<'_> {
    /// A control plane as JSON, in the given API version.
    pub(crate) async fn read_control_plane(
        &self,
        version: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<BufferedBody>, ReadError> {
        if ![version, namespace, name].into_iter().all(is_path_segment) {
            return Err(ReadError::BadName);
        }
        let path = format!(
            "/apis/controlplane.cluster.x-k8s.io/{version}/namespaces/{namespace}/kubeadmcontrolplanes/{name}"
        );
        self.read(&path, Projection::Whole).await
    }

    pub(super) async fn read_object<T: DeserializeOwned>(
        &self,
        path: &str,
        projection: Projection,
    ) -> Result<T, ReadError> {
        let answer = self.read(path, projection).await?;
        serde_json::from_slice(answer.as_bytes()).map_err(|error| ReadError::from_json_error(&error))
    }

    /// Reads a path of the API, and counts the read. Names in `path` must have passed [`is_path_segment`].
    pub(super) async fn read(
        &self,
        path: &str,
        projection: Projection,
    ) -> Result<Arc<BufferedBody>, ReadError> {
        let target = (path.to_owned(), projection, self.peer);
        let read = async || match self.get(path, projection).await {
            // Do not share this error, because only this review's deadline has passed.
            Err(ReadError::TooSlow) => Err(ReadError::TooSlow),
            answer => Ok(answer.map(Arc::new)),
        };
        let read = match &self.server.client {
            Ok(_) => {
                let shared = self.server.reads.get(&target, self.peer, read);
                let shared = time::timeout_at(self.deadline, shared).await;
                shared.unwrap_or(Err(ReadError::TooSlow)).flatten()
            }
            // Return before a timer is created, because a timer needs an async runtime.
            Err(error) => Err(error.clone()),
        };
        self.server
            .metrics
            .count_live_read(read.as_ref().map_or_else(ReadError::label, |_| "ok"));
        read
    }

    /// Reads a path. While the API server is busy, for example because it has just started, sends the read again until the
    /// deadline.
    pub(super) async fn get(&self, path: &str, projection: Projection) -> Result<BufferedBody, ReadError> {
        loop {
            let request = Request::get(path)
                .header(header::ACCEPT, projection.accept_header())
                .body(Body::empty())
                .map_err(|error| ReadError::Failed(error.to_string()))?;
            match self.send(path, request).await {
                Err(ReadError::Busy(_)) if Instant::now() + BUSY_DELAY < self.deadline => {
                    time::sleep(BUSY_DELAY).await;
                }
                answer => return answer,
            }
        }
    }

    pub(super) async fn send(&self, path: &str, request: Request<Body>) -> Result<BufferedBody, ReadError> {
        let client = self.server.client.as_ref().map_err(Clone::clone)?;
        let answer = time::timeout_at(self.deadline, client.send(request))
            .await
            .map_err(|_| ReadError::TooSlow)?
            .map_err(|error| ReadError::from_request_error(&error))?;
        let code = answer.status();
        let share = self.server.memory.open(Peer::SELF);
        let answer = body::read(answer.into_body(), MAX_RESPONSE_BYTES, self.deadline, share)
            .await
            .map_err(ReadError::from_body_error)?;
        if code.is_success() {
            return Ok(answer);
        }
        let status = parse_status(code, answer.as_bytes());
        self.server.versions.forget_unserved(path, &status);
        Err(ReadError::from_status(&status))
    }
}
