//! Memory for bodies of several frames, some of which the server keeps for later bodies.
//!
//! Allocators return large memory to the kernel, and the page faults of new memory take a third of the time of a review of
//! 300 KB.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::limits::{KEPT_VECTOR_BYTES, MIN_KEPT_BODY_BYTES};

/// Vectors of [`KEPT_VECTOR_BYTES`]. The content of an earlier body stays in them, but no safe code can read it.
pub(super) struct Vectors {
    /// The maximum number of vectors, kept and in use.
    max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kept: Vec<Vec<u8>>,
    in_use: usize,
}

impl Vectors {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            state: Mutex::default(),
        })
    }

    /// Returns an empty vector for a body of `length` bytes. It is kept later, unless the body is too small or too large, or
    /// other bodies use all vectors that may be kept.
    pub(super) fn for_body(self: &Arc<Self>, length: usize) -> BodyVector {
        match self.take(length) {
            Some(bytes) => BodyVector {
                bytes,
                owner: Some(self.clone()),
            },
            None => BodyVector {
                bytes: Vec::with_capacity(length),
                owner: None,
            },
        }
    }

    fn take(&self, length: usize) -> Option<Vec<u8>> {
        if !(MIN_KEPT_BODY_BYTES..=KEPT_VECTOR_BYTES).contains(&length) {
            return None;
        }
        let mut state = self.state();
        if state.in_use >= self.max {
            return None;
        }
        state.in_use += 1;
        let kept = state.kept.pop();
        drop(state);
        Some(kept.unwrap_or_else(|| Vec::with_capacity(KEPT_VECTOR_BYTES)))
    }

    fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut state = self.state();
        state.in_use -= 1;
        // A body without an announced length can have grown.
        if bytes.capacity() <= KEPT_VECTOR_BYTES {
            state.kept.push(bytes);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of a body.
pub(super) struct BodyVector {
    pub(super) bytes: Vec<u8>,
    /// Where the vector is kept; `None` if it is freed.
    owner: Option<Arc<Vectors>>,
}

impl Drop for BodyVector {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            owner.give_back(mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 2;

    /// The numbers of vectors that are kept and in use.
    fn counts(vectors: &Vectors) -> (usize, usize) {
        let state = vectors.state();
        (state.kept.len(), state.in_use)
    }

    #[test]
    fn a_body_uses_the_vector_of_an_earlier_body() {
        let vectors = Vectors::new(MAX);
        let mut earlier = vectors.for_body(MIN_KEPT_BODY_BYTES);
        earlier.bytes.extend_from_slice(b"earlier");
        assert_eq!(counts(&vectors), (0, 1));
        let memory = earlier.bytes.as_ptr();
        drop(earlier);
        assert_eq!(counts(&vectors), (1, 0));
        let later = vectors.for_body(KEPT_VECTOR_BYTES);
        assert_eq!(counts(&vectors), (0, 1));
        assert_eq!((later.bytes.as_slice(), later.bytes.as_ptr()), (&[][..], memory));
    }

    #[test]
    fn the_number_of_vectors_is_limited() {
        let vectors = Vectors::new(MAX);
        let mut bodies: Vec<_> = (0..=MAX).map(|_| vectors.for_body(MIN_KEPT_BODY_BYTES)).collect();
        assert_eq!(counts(&vectors), (0, MAX));
        // All vectors that may be kept were in use before the last body.
        drop(bodies.pop());
        assert_eq!(counts(&vectors), (0, MAX));
        drop(bodies);
        assert_eq!(counts(&vectors), (MAX, 0));
        drop(vectors.for_body(MIN_KEPT_BODY_BYTES));
        assert_eq!(counts(&vectors), (MAX, 0));
    }

    #[test]
    fn only_vectors_of_large_bodies_are_kept() {
        let vectors = Vectors::new(MAX);
        for length in [0, MIN_KEPT_BODY_BYTES - 1, KEPT_VECTOR_BYTES + 1] {
            let body = vectors.for_body(length);
            assert_eq!(body.bytes.capacity(), length);
            drop(body);
            assert_eq!(counts(&vectors), (0, 0), "{length}");
        }
    }

    #[test]
    fn no_vectors_are_kept_without_a_limit_above_zero() {
        let vectors = Vectors::new(0);
        drop(vectors.for_body(MIN_KEPT_BODY_BYTES));
        assert_eq!(counts(&vectors), (0, 0));
    }

    #[test]
    fn a_vector_that_has_grown_is_not_kept() {
        let vectors = Vectors::new(MAX);
        let mut grown = vectors.for_body(MIN_KEPT_BODY_BYTES);
        grown.bytes.resize(KEPT_VECTOR_BYTES + 1, 0);
        drop(grown);
        assert_eq!(counts(&vectors), (0, 0));
    }
}
