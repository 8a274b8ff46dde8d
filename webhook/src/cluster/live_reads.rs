//! Reads from the API server until a deadline.

use std::{sync::Arc, time::Duration};

use hyper::{Request, header};
use kube::{Client, client::Body};
use serde::de::DeserializeOwned;
use tokio::{
    sync::Semaphore,
    time::{self, Instant},
};

use super::{
    read_error::{ReadError, status},
    subject::is_path_segment,
    versions::Versions,
};
use crate::{
    body::{self, BufferedBody},
    limits::{ANSWER_BYTES, ANSWERS_BYTES},
    metrics::Metrics,
};

/// The API server to read from, if there is one.
#[derive(Clone)]
pub(super) struct ApiServer {
    pub(super) client: Option<Client>,
    pub(super) versions: Arc<Versions>,
    /// The bytes that answers in memory may still take.
    pub(super) free_bytes: Arc<Semaphore>,
    pub(super) metrics: Arc<Metrics>,
}

impl ApiServer {
    pub(super) fn new(client: Option<Client>, metrics: Arc<Metrics>) -> Self {
        Self {
            client,
            versions: Arc::default(),
            free_bytes: Arc::new(Semaphore::new(ANSWERS_BYTES)),
            metrics,
        }
    }

    pub(super) const fn has_access(&self) -> bool {
        self.client.is_some()
    }

    pub(super) fn reads_within(&self, limit: Duration) -> LiveReads<'_> {
        LiveReads {
            server: self,
            deadline: Instant::now() + limit,
        }
    }
}

/// Live reads that share a deadline, such as those of one review.
pub(crate) struct LiveReads<'s> {
    pub(super) server: &'s ApiServer,
    pub(super) deadline: Instant,
}

/// How much of an object the API server sends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Projection {
    Whole,
    /// Only metadata, of each member of a list: an object can take a megabyte, and its name takes a few bytes.
    Metadata,
}

impl Projection {
    const fn accept(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        }
    }

    pub(super) const fn accept_of_watch(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        }
    }
}

impl LiveReads<'_> {
    /// A control plane as JSON, in the given API version.
    pub(crate) async fn control_plane(
        &self,
        version: &str,
        namespace: &str,
        name: &str,
    ) -> Result<BufferedBody<'_>, ReadError> {
        if ![version, namespace, name].into_iter().all(is_path_segment) {
            return Err(ReadError::BadName);
        }
        let path = format!(
            "/apis/controlplane.cluster.x-k8s.io/{version}/namespaces/{namespace}/kubeadmcontrolplanes/{name}"
        );
        self.read(&path, Projection::Whole).await
    }

    pub(super) async fn object<T: DeserializeOwned>(
        &self,
        path: &str,
        projection: Projection,
    ) -> Result<T, ReadError> {
        let answer = self.read(path, projection).await?;
        serde_json::from_slice(answer.as_bytes()).map_err(|error| ReadError::Unusable(error.to_string()))
    }

    /// Reads a path of the API, and counts the read. Names in `path` must have passed [`is_path_segment`].
    async fn read(&self, path: &str, projection: Projection) -> Result<BufferedBody<'_>, ReadError> {
        let read = self.get(path, projection).await;
        self.server
            .metrics
            .live_read(read.as_ref().map_or_else(ReadError::label, |_| "ok"));
        read
    }

    pub(super) async fn get(
        &self,
        path: &str,
        projection: Projection,
    ) -> Result<BufferedBody<'_>, ReadError> {
        let client = self.server.client.as_ref().ok_or(ReadError::NoAccess)?;
        let request = Request::get(path)
            .header(header::ACCEPT, projection.accept())
            .body(Body::empty())
            .map_err(|error| ReadError::Failed(error.to_string()))?;
        let answer = time::timeout_at(self.deadline, client.send(request))
            .await
            .map_err(|_| ReadError::TooSlow)?
            .map_err(|error| ReadError::of_request(&error))?;
        let code = answer.status();
        let answer = body::read(
            answer.into_body(),
            ANSWER_BYTES,
            self.deadline,
            &self.server.free_bytes,
        )
        .await
        .map_err(ReadError::of_body)?;
        if code.is_success() {
            return Ok(answer);
        }
        let status = status(code, answer.as_bytes());
        self.server.versions.forget_unserved(path, &status);
        Err(ReadError::of_status(&status))
    }
}
