//! Keeps a cache up to date: lists a kind, then watches it.
//!
//! Our own, and not kube's reflector, which keeps each object's whole metadata, and decodes an object that does not
//! have its definition's types into an error that ends the list. Here an object is pruned while it is decoded, one
//! page of one kind is held at a time, and what fails is named.

use std::{convert::Infallible, sync::Arc, time::Duration};

use hyper::{Request, StatusCode, header};
use kube::client::Body;
use tokio::{
    sync::Mutex,
    time::{self, Instant},
};

use super::{
    Cluster, ReadError,
    cache::{Cache, Kept, State},
    events::{Event, Lines, Named, Page, unusable},
    failed,
    kinds::{CLUSTER, CONTROL_PLANE, CUSTOMIZATION, Kind, POOL},
    refused, status,
};
use crate::{
    body,
    limits::{ANSWER_BYTES, KEPT_OBJECTS, PAGE_OBJECTS},
    tasks::Tasks,
};

/// One page of a list, or the head of a watch's answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The API server ends a watch after this many seconds, which is when we look for a newer version of the API.
const WATCH_SECONDS: u64 = 290;

/// Without a line for so long a connection is dead. The API server sends a bookmark every 60 to 75 s
/// (k8s.io/apiserver, `pkg/storage/cacher/cacher.go`, `defaultBookmarkFrequency`).
const SILENCE: Duration = Duration::from_secs(160);

/// Between a failure and the next try, doubled each time.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Between two looks for a kind that is not served.
const ABSENT: Duration = Duration::from_secs(30);

/// Keeps all caches of a cluster up to date. Without API access there is nothing to do.
pub(crate) fn keep_up(cluster: &Cluster, tasks: &mut Tasks) {
    if !cluster.has_access() {
        return;
    }
    // Pages of several kinds at a time would take several times the memory.
    let listing = Arc::new(Mutex::new(()));
    let caches = &cluster.caches;
    spawn(cluster, tasks, &listing, CONTROL_PLANE, &caches.control_planes);
    spawn(cluster, tasks, &listing, CLUSTER, &caches.clusters);
    spawn(cluster, tasks, &listing, POOL, &caches.pools);
    spawn(cluster, tasks, &listing, CUSTOMIZATION, &caches.customizations);
}

fn spawn<T: Kept>(
    cluster: &Cluster,
    tasks: &mut Tasks,
    listing: &Arc<Mutex<()>>,
    kind: Kind,
    cache: &Arc<Cache<T>>,
) {
    let watch = Watch {
        cluster: cluster.clone(),
        kind,
        cache: cache.clone(),
        listing: listing.clone(),
        pause: SHORTEST_PAUSE,
    };
    watch.set(State::Starting);
    tasks.spawn(kind.plural, watch.run());
}

struct Watch<T> {
    cluster: Cluster,
    kind: Kind,
    cache: Arc<Cache<T>>,
    listing: Arc<Mutex<()>>,
    pause: Duration,
}

/// How a cache stopped being up to date.
enum Lost {
    NotServed,
    Failed(ReadError),
}

impl From<ReadError> for Lost {
    fn from(error: ReadError) -> Self {
        Self::Failed(error)
    }
}

impl<T: Kept> Watch<T> {
    async fn run(mut self) {
        loop {
            let Err(lost) = self.follow().await;
            let plural = self.kind.plural;
            let pause = match lost {
                Lost::NotServed => {
                    if self.cache.state().0 != State::Absent {
                        self.cache.clear("");
                        self.set(State::Absent);
                        tracing::info!(
                            kind = plural,
                            "the API server does not serve this kind: there are none"
                        );
                    }
                    ABSENT
                }
                Lost::Failed(error) => {
                    let state = State::Failing(error.label());
                    // Once for each reason, not for each try.
                    if self.set(state) != state {
                        tracing::warn!(kind = plural, %error, "not watched; read live for each review until it is");
                    }
                    let pause = self.pause;
                    self.pause = (pause * 2).min(LONGEST_PAUSE);
                    pause
                }
            };
            time::sleep(pause).await;
            self.cluster.metrics.watch_restarted(plural);
        }
    }

    /// Lists and watches until that fails.
    async fn follow(&mut self) -> Result<Infallible, Lost> {
        loop {
            let version = self.version().await?;
            let mut seen = self.list(&version).await?;
            while self.version().await? == version {
                seen = self.watch(&version, seen).await?;
            }
        }
    }

    async fn version(&self) -> Result<String, Lost> {
        let reads = self.cluster.reads_within(ANSWER);
        reads.version(self.kind.group).await.map_err(lost)
    }

    /// Fills the cache anew; gives the resource version from which to watch.
    async fn list(&self, version: &str) -> Result<String, Lost> {
        let mut next = String::new();
        loop {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("limit", &PAGE_OBJECTS.to_string())
                .append_pair("continue", &next)
                .finish();
            let path = format!("{}?{query}", self.path(version));
            let _turn = self.listing.lock().await;
            let reads = self.cluster.reads_within(ANSWER);
            let answer = reads.get(&path, self.kind.projection).await.map_err(lost)?;
            let page: Page<'_> =
                serde_json::from_slice(answer.as_bytes()).map_err(|error| unusable(&error))?;
            if next.is_empty() {
                self.cache.clear(version);
            }
            for item in page.items.into_iter().flatten() {
                self.put(item.get())?;
            }
            let (_, objects) = self.cache.state();
            if objects > KEPT_OBJECTS {
                return Err(ReadError::TooMany(KEPT_OBJECTS).into());
            }
            if page.metadata.next.is_empty() {
                return Ok(page.metadata.resource_version);
            }
            next = page.metadata.next;
        }
    }

    /// Takes in what changes from `seen` on until the API server ends the watch; gives what was seen last.
    async fn watch(&mut self, version: &str, mut seen: String) -> Result<String, Lost> {
        let mut lines = self.open(version, &seen).await?;
        let objects = self.cache.state().1;
        if self.set(State::Synced) != State::Synced {
            tracing::info!(kind = self.kind.plural, version, objects, "watched");
        }
        let since = Instant::now();
        loop {
            let line = time::timeout(SILENCE, lines.next())
                .await
                .map_err(|_| ReadError::Failed("the watch fell silent".to_owned()))??;
            let Some(line) = line else {
                // One that ends as soon as it begins is not begun again without a pause.
                return if since.elapsed() > SHORTEST_PAUSE {
                    Ok(seen)
                } else {
                    Err(ReadError::Failed("the watch ended at once".to_owned()).into())
                };
            };
            seen = match Event::read(line)? {
                Event::Put(object) => self.put(object)?,
                Event::Removed(object) => {
                    let metadata = named(object)?.metadata;
                    self.cache.remove(&metadata.namespace, &metadata.name);
                    metadata.resource_version
                }
                Event::Bookmark(object) => named(object)?.metadata.resource_version,
            };
            self.count();
            if since.elapsed() > LONGEST_PAUSE {
                self.pause = SHORTEST_PAUSE;
            }
        }
    }

    async fn open(&self, version: &str, seen: &str) -> Result<Lines<Body>, ReadError> {
        let client = self.cluster.client.as_ref().ok_or(ReadError::NoAccess)?;
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("watch", "true")
            .append_pair("allowWatchBookmarks", "true")
            .append_pair("timeoutSeconds", &WATCH_SECONDS.to_string())
            .append_pair("resourceVersion", seen)
            .finish();
        let request = Request::get(format!("{}?{query}", self.path(version)))
            .header(header::ACCEPT, self.kind.projection.accept_of_watch())
            .body(Body::empty())
            .map_err(|error| ReadError::Failed(error.to_string()))?;
        let deadline = Instant::now() + ANSWER;
        let answer = time::timeout_at(deadline, client.send(request))
            .await
            .map_err(|_| ReadError::TooSlow)?
            .map_err(|error| failed(&error))?;
        let code = answer.status();
        if code == StatusCode::OK {
            return Ok(Lines::new(answer.into_body()));
        }
        let body = body::read(answer.into_body(), ANSWER_BYTES, deadline, &self.cluster.held).await;
        let text = body.as_ref().map_or(&[][..], body::Whole::as_bytes);
        Err(refused(&status(code, text)))
    }

    /// Takes in an object; gives its resource version.
    fn put(&self, object: &str) -> Result<String, ReadError> {
        let metadata = named(object)?.metadata;
        self.cache.put(&metadata.namespace, &metadata.name, object);
        Ok(metadata.resource_version)
    }

    fn path(&self, version: &str) -> String {
        format!("/apis/{}/{version}/{}", self.kind.group, self.kind.plural)
    }

    fn set(&self, state: State) -> State {
        let before = self.cache.set(state);
        self.count();
        before
    }

    fn count(&self) {
        let (state, objects) = self.cache.state();
        self.cluster
            .metrics
            .cached(self.kind.plural, state.is_known(), objects);
    }
}

fn named(object: &str) -> Result<Named, ReadError> {
    serde_json::from_str(object).map_err(|error| unusable(&error))
}

/// Of a kind that is not served, its group or its list is not found.
fn lost(error: ReadError) -> Lost {
    match error {
        ReadError::NotFound => Lost::NotServed,
        error => Lost::Failed(error),
    }
}

#[cfg(test)]
mod tests;
