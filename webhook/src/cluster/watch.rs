//! Lists and watches a kind, and updates its cache.
//!
//! This module does not use kube-runtime, which needs more memory. With 3,000 objects of each of four kinds (4 KB
//! each, debug build), the watches and caches add 13 MiB at their peak. kube's `watcher` that fills the same caches
//! adds 19 MiB, its reflector with types that decode only the cached fields 32 MiB, and its reflector with
//! `DynamicObject`s 405 MiB. The `watcher` also reads pages of any size, whereas this watch stops at
//! [`MAX_RESPONSE_BYTES`].

use std::{convert::Infallible, sync::Arc, time::Duration};

use hyper::{Request, StatusCode, header};
use jiff::Timestamp;
use kcp_api::kind::{self, Kind};
use kube::client::Body;
use tokio::{
    sync::Mutex,
    time::{self, Instant},
};

use super::{
    cache::{Cache, CacheState, Cached},
    events::{Event, Lines, Named, Page},
    kinds::Caches,
    live_reads::{ApiServer, Projection},
    read_error::{ReadError, parse_status},
};
use crate::{
    limits::{LIST_PAGE_SIZE, MAX_CACHED_OBJECTS, MAX_RESPONSE_BYTES},
    net::{
        body::{self, BufferedBody},
        shares::Peer,
    },
    tasks::Tasks,
};

/// The time limit for one page of a list, or for the response headers of a watch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The API server ends a watch after this many seconds. The webhook then checks for a newer API version.
const WATCH_SECONDS: u64 = 290;

/// A watch that has no event for this long counts as failed. The API server sends a bookmark every 60 to 75 s
/// (k8s.io/apiserver, `pkg/storage/cacher/cacher.go`, `defaultBookmarkFrequency`).
const EVENT_TIMEOUT: Duration = Duration::from_secs(160);

/// The delay before the first retry. Each later delay is twice as long.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// How often the webhook checks whether the API server now serves a kind that it did not serve.
const ABSENT_RETRY: Duration = Duration::from_secs(30);

/// Starts one watch for each cached kind.
pub(super) fn spawn_all(server: &ApiServer, caches: &Caches, tasks: &mut Tasks) {
    // List one kind after the other, because a page of each kind at the same time would need several times the memory.
    let listing = Arc::new(Mutex::new(()));
    spawn(
        server,
        tasks,
        &listing,
        kind::KUBEADM_CONTROL_PLANE,
        &caches.control_planes,
    );
    spawn(server, tasks, &listing, kind::CLUSTER, &caches.clusters);
    spawn(server, tasks, &listing, kind::CLUSTER_POOL, &caches.pools);
    spawn(
        server,
        tasks,
        &listing,
        kind::CLUSTER_DEPLOYMENT_CUSTOMIZATION,
        &caches.customizations,
    );
    spawn(
        server,
        tasks,
        &listing,
        kind::CLUSTER_DEPLOYMENT,
        &caches.cluster_deployments,
    );
}

fn spawn<T: Cached>(
    server: &ApiServer,
    tasks: &mut Tasks,
    listing: &Arc<Mutex<()>>,
    kind: Kind,
    cache: &Arc<Cache<T>>,
) {
    let watch = Watch {
        server: server.clone(),
        kind,
        cache: cache.clone(),
        listing: listing.clone(),
        retry: FIRST_RETRY,
    };
    watch.set(CacheState::Starting);
    tasks.spawn(kind.plural, watch.run());
}

struct Watch<T> {
    server: ApiServer,
    kind: Kind,
    cache: Arc<Cache<T>>,
    listing: Arc<Mutex<()>>,
    retry: Duration,
}

/// Why a list or a watch stopped.
enum Stopped {
    NotServed,
    Failed(ReadError),
}

impl From<ReadError> for Stopped {
    fn from(error: ReadError) -> Self {
        Self::Failed(error)
    }
}

impl<T: Cached> Watch<T> {
    async fn run(mut self) {
        loop {
            let Err(stopped) = self.list_and_watch().await;
            let plural = self.kind.plural;
            let retry = match stopped {
                Stopped::NotServed => {
                    self.confirm();
                    if self.cache.state().0 != CacheState::Absent {
                        self.cache.clear("");
                        self.set(CacheState::Absent);
                        tracing::info!(
                            kind = plural,
                            "the API server does not serve this kind; kcp-webhook assumes that there are no \
                             objects of this kind"
                        );
                    }
                    ABSENT_RETRY
                }
                Stopped::Failed(error) => {
                    let state = CacheState::Failing(error.label());
                    // Log once for each reason, not for each retry.
                    if self.set(state) != state {
                        tracing::warn!(
                            kind = plural,
                            %error,
                            "cannot watch this kind; each review reads the objects from the API server \
                             until the watch works"
                        );
                    }
                    let retry = self.retry;
                    self.retry = (retry * 2).min(LONGEST_RETRY);
                    retry
                }
            };
            time::sleep(retry).await;
            self.server.metrics.count_watch_restart(plural);
        }
    }

    /// Lists and watches until one of them fails.
    async fn list_and_watch(&mut self) -> Result<Infallible, Stopped> {
        loop {
            let version = self.version().await?;
            let mut seen = self.list(&version).await?;
            while self.version().await? == version {
                seen = self.watch(&version, seen).await?;
            }
        }
    }

    async fn version(&self) -> Result<String, Stopped> {
        let reads = self.server.reads_within(REQUEST_TIMEOUT);
        let version = reads.discover_current_version(self.kind.group).await;
        version.map_err(stop_reason)
    }

    /// Fills the cache with a new list, and returns the resource version to watch from.
    async fn list(&self, version: &str) -> Result<String, Stopped> {
        let mut next = String::new();
        loop {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("limit", &LIST_PAGE_SIZE.to_string())
                .append_pair("continue", &next)
                .finish();
            let path = format!("{}?{query}", self.path(version));
            let _turn = self.listing.lock().await;
            let reads = self.server.reads_within(REQUEST_TIMEOUT);
            let answer = reads.get(&path, Projection::Whole).await.map_err(stop_reason)?;
            let page: Page<'_> = serde_json::from_slice(answer.as_bytes())
                .map_err(|error| ReadError::from_json_error(&error))?;
            if next.is_empty() {
                self.cache.clear(version);
            }
            for item in page.items.into_iter().flatten() {
                self.put(item.get())?;
            }
            let (_, objects) = self.cache.state();
            if objects > MAX_CACHED_OBJECTS {
                return Err(ReadError::TooMany(MAX_CACHED_OBJECTS).into());
            }
            if page.metadata.next.is_empty() {
                return Ok(page.metadata.resource_version);
            }
            next = page.metadata.next;
        }
    }

    /// Updates the cache with the events after `resource_version` until the API server ends the watch. Returns the
    /// resource version of the last event.
    async fn watch(&mut self, version: &str, mut resource_version: String) -> Result<String, Stopped> {
        let mut lines = self.open(version, &resource_version).await?;
        let objects = self.cache.state().1;
        if self.set(CacheState::Synced) != CacheState::Synced {
            tracing::info!(kind = self.kind.plural, version, objects, "watching");
        }
        let since = Instant::now();
        loop {
            self.confirm();
            let line = time::timeout(EVENT_TIMEOUT, lines.next())
                .await
                .map_err(|_| ReadError::Failed("the API server sent no watch event in time".to_owned()))??;
            let Some(line) = line else {
                // If the watch ended immediately, return an error, so that it is restarted after a delay.
                return if since.elapsed() > FIRST_RETRY {
                    Ok(resource_version)
                } else {
                    Err(ReadError::Failed("the API server ended the watch immediately".to_owned()).into())
                };
            };
            resource_version = match Event::decode(line)? {
                Event::Put(object) => self.put(object)?,
                Event::Removed(object) => {
                    let metadata = decode_name(object)?.metadata;
                    self.cache.remove(&metadata.namespace, &metadata.name);
                    metadata.resource_version
                }
                Event::Bookmark(object) => decode_name(object)?.metadata.resource_version,
            };
            self.count();
            if since.elapsed() > LONGEST_RETRY {
                self.retry = FIRST_RETRY;
            }
        }
    }

    async fn open(&self, version: &str, resource_version: &str) -> Result<Lines<Body>, ReadError> {
        let client = self.server.client.as_ref().map_err(Clone::clone)?;
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("watch", "true")
            .append_pair("allowWatchBookmarks", "true")
            .append_pair("timeoutSeconds", &WATCH_SECONDS.to_string())
            .append_pair("resourceVersion", resource_version)
            .finish();
        let request = Request::get(format!("{}?{query}", self.path(version)))
            .header(header::ACCEPT, Projection::Whole.accept_header())
            .body(Body::empty())
            .map_err(|error| ReadError::Failed(error.to_string()))?;
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let answer = time::timeout_at(deadline, client.send(request))
            .await
            .map_err(|_| ReadError::TooSlow)?
            .map_err(|error| ReadError::from_request_error(&error))?;
        let code = answer.status();
        if code == StatusCode::OK {
            return Ok(Lines::new(answer.into_body()));
        }
        let share = self.server.memory.open(Peer::SELF);
        let body = body::read(answer.into_body(), MAX_RESPONSE_BYTES, deadline, share).await;
        let text = body.as_ref().map_or(&[][..], BufferedBody::as_bytes);
        Err(ReadError::from_status(&parse_status(code, text)))
    }

    /// Caches an object, and returns its resource version.
    fn put(&self, object: &str) -> Result<String, ReadError> {
        let metadata = decode_name(object)?.metadata;
        self.cache.put(&metadata.namespace, &metadata.name, object);
        Ok(metadata.resource_version)
    }

    fn path(&self, version: &str) -> String {
        format!("/apis/{}/{version}/{}", self.kind.group, self.kind.plural)
    }

    /// Records that the API server has just confirmed that the cache is up to date.
    fn confirm(&self) {
        self.server
            .metrics
            .confirm_cache(self.kind.plural, Timestamp::now());
    }

    fn set(&self, state: CacheState) -> CacheState {
        let before = self.cache.set(state);
        self.count();
        before
    }

    fn count(&self) {
        let (state, objects) = self.cache.state();
        self.server
            .metrics
            .set_cache_state(self.kind.plural, state.is_known(), objects);
    }
}

fn decode_name(object: &str) -> Result<Named, ReadError> {
    serde_json::from_str(object).map_err(|error| ReadError::from_json_error(&error))
}

/// Returns why a list or a watch stopped. `NotFound` means that the API server does not serve the kind: it finds no such group or
/// list.
fn stop_reason(error: ReadError) -> Stopped {
    match error {
        ReadError::NotFound => Stopped::NotServed,
        error => Stopped::Failed(error),
    }
}

#[cfg(test)]
mod tests;
