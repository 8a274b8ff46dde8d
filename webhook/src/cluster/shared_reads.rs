//! Shares one response of the API server between the reviews that read the same path.
//!
//! A review must see the state that is stored when it reads, so it never shares a read that has already been sent. It
//! waits until that read ends, and shares the next read with all reviews that also wait. So each path has at most one
//! read in progress.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Mutex as Turn, OnceCell};

use crate::net::shares::{Peer, Shares};

/// The reads in progress, by path, and the number of callers that wait for them.
pub(super) struct SharedReads<K, V> {
    /// Limits the number of reads of all paths together.
    free: Arc<Shares>,
    paths: Mutex<HashMap<K, Callers<V>>>,
}

/// The number of callers that read one path, and the reads of that path.
struct Callers<V> {
    count: usize,
    path_reads: Arc<PathReads<V>>,
}

/// The read of one path that is in progress, and the next read of that path.
struct PathReads<V> {
    /// The lock that the read in progress holds.
    turn: Turn<()>,
    /// The next read, which has not been sent yet.
    next: Mutex<Arc<OnceCell<V>>>,
}

impl<V> PathReads<V> {
    /// Makes later callers share the next read instead of `departing`, which is about to be sent.
    fn close_to_new_callers(&self, departing: &Arc<OnceCell<V>>) {
        let mut next = lock(&self.next);
        if Arc::ptr_eq(&next, departing) {
            *next = Arc::default();
        }
    }
}

impl<V> Default for Callers<V> {
    fn default() -> Self {
        Self {
            count: 0,
            path_reads: Arc::new(PathReads {
                turn: Turn::default(),
                next: Mutex::default(),
            }),
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> SharedReads<K, V> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            free: Shares::new(limit),
            paths: Mutex::default(),
        }
    }

    /// Returns the result of `read`. If another caller sends a read of the same path after this call begins, returns the result
    /// of that read instead. A failed read is not shared: the next caller sends its own read.
    pub(super) async fn get<E>(
        &self,
        key: &K,
        peer: Peer,
        read: impl AsyncFnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        let path_reads = self.enter(key);
        let _guard = PathGuard { reads: self, key };
        let shared = lock(&path_reads.next).clone();
        shared
            .get_or_try_init(|| async {
                let _turn = path_reads.turn.lock().await;
                let _share = self.free.wait_for(peer, 1).await;
                path_reads.close_to_new_callers(&shared);
                read().await
            })
            .await
            .cloned()
    }

    fn enter(&self, key: &K) -> Arc<PathReads<V>> {
        let mut paths = lock(&self.paths);
        let callers = paths.entry(key.clone()).or_default();
        callers.count += 1;
        callers.path_reads.clone()
    }
}

/// Forgets a path when its last caller has finished or has been cancelled.
struct PathGuard<'r, K: Eq + Hash, V> {
    reads: &'r SharedReads<K, V>,
    key: &'r K,
}

impl<K: Eq + Hash, V> Drop for PathGuard<'_, K, V> {
    fn drop(&mut self) {
        let mut paths = lock(&self.reads.paths);
        if let Some(callers) = paths.get_mut(self.key) {
            callers.count -= 1;
            if callers.count == 0 {
                paths.remove(self.key);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
