//! Shares one response of the API server between the reviews that read the same path.
//!
//! A review must see what is stored when it reads, so it never joins a read that has been sent already: it waits for that
//! one to end, and shares the next with all others that wait. So each path has at most one read in progress.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Mutex as Turn, OnceCell, Semaphore};

/// The reads in progress, and those that wait for them.
pub(super) struct SharedReads<K, V> {
    /// Limits the reads of all paths.
    free: Semaphore,
    lines: Mutex<HashMap<K, Callers<V>>>,
}

/// The callers of one path.
struct Callers<V> {
    count: usize,
    line: Arc<Line<V>>,
}

/// The reads of one path.
struct Line<V> {
    /// Held by the read in progress.
    turn: Turn<()>,
    /// The next read, which has not been sent.
    next: Mutex<Arc<OnceCell<V>>>,
}

impl<V> Line<V> {
    /// Callers from now on share the read after this one.
    fn depart(&self, departing: &Arc<OnceCell<V>>) {
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
            line: Arc::new(Line {
                turn: Turn::default(),
                next: Mutex::default(),
            }),
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> SharedReads<K, V> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            free: Semaphore::new(limit),
            lines: Mutex::default(),
        }
    }

    /// The result of `read`, or of the same read by another caller that was sent after this call. A failed read is not
    /// shared: the next caller reads itself.
    pub(super) async fn get<E>(&self, key: &K, read: impl AsyncFnOnce() -> Result<V, E>) -> Result<V, E> {
        let line = self.enter(key);
        let _leaves = Leaves { reads: self, key };
        let shared = lock(&line.next).clone();
        shared
            .get_or_try_init(|| async {
                let _turn = line.turn.lock().await;
                // Nothing closes the semaphore.
                let _permit = self.free.acquire().await;
                line.depart(&shared);
                read().await
            })
            .await
            .cloned()
    }

    fn enter(&self, key: &K) -> Arc<Line<V>> {
        let mut lines = lock(&self.lines);
        let callers = lines.entry(key.clone()).or_default();
        callers.count += 1;
        callers.line.clone()
    }
}

/// Forgets a path when its last caller leaves, by cancellation too.
struct Leaves<'r, K: Eq + Hash, V> {
    reads: &'r SharedReads<K, V>,
    key: &'r K,
}

impl<K: Eq + Hash, V> Drop for Leaves<'_, K, V> {
    fn drop(&mut self) {
        let mut lines = lock(&self.reads.lines);
        if let Some(callers) = lines.get_mut(self.key) {
            callers.count -= 1;
            if callers.count == 0 {
                lines.remove(self.key);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
