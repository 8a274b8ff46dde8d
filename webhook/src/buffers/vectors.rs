//! The memory for bodies of several frames. The server keeps some of it for later bodies.
//!
//! Allocators return large memory to the kernel, and the page faults of new memory take a third of the time of a review of
//! 300 KB.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::limits::{KEPT_VECTOR_BYTES, MIN_KEPT_BODY_BYTES};

/// The vectors that the server keeps, each of [`KEPT_VECTOR_BYTES`]. The content of an earlier body stays in them, but no safe
/// code can read it.
pub(super) struct KeptVectors {
    /// The maximum number of these vectors, including those that bodies use.
    max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: Vec<Vec<u8>>,
    /// The number of bodies that use one of these vectors.
    in_use: usize,
}

impl KeptVectors {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            state: Mutex::default(),
        })
    }

    /// Returns an empty vector for a body of `length` bytes. After the body, the vector is kept, unless the body is too small or
    /// too large, or other bodies already use the maximum number.
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
        let free = state.free.pop();
        drop(state);
        Some(free.unwrap_or_else(|| Vec::with_capacity(KEPT_VECTOR_BYTES)))
    }

    fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut state = self.state();
        state.in_use -= 1;
        // A body without an announced length can have grown.
        if bytes.capacity() <= KEPT_VECTOR_BYTES {
            state.free.push(bytes);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of a body.
pub(super) struct BodyVector {
    pub(super) bytes: Vec<u8>,
    /// Where the vector goes after the body; `None` if it is not kept.
    owner: Option<Arc<KeptVectors>>,
}

#[cfg(test)]
impl BodyVector {
    pub(super) fn is_kept(&self) -> bool {
        self.owner.is_some()
    }
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

    /// The numbers of kept vectors that are free and in use.
    fn counts(vectors: &KeptVectors) -> (usize, usize) {
        let state = vectors.state();
        (state.free.len(), state.in_use)
    }

    #[test]
    fn a_body_uses_the_vector_of_an_earlier_body() {
        let vectors = KeptVectors::new(MAX);
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
        let vectors = KeptVectors::new(MAX);
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
        let vectors = KeptVectors::new(MAX);
        for length in [0, MIN_KEPT_BODY_BYTES - 1, KEPT_VECTOR_BYTES + 1] {
            let body = vectors.for_body(length);
            assert_eq!(body.bytes.capacity(), length);
            drop(body);
            assert_eq!(counts(&vectors), (0, 0), "{length}");
        }
    }

    #[test]
    fn a_maximum_of_zero_keeps_no_vectors() {
        let vectors = KeptVectors::new(0);
        drop(vectors.for_body(MIN_KEPT_BODY_BYTES));
        assert_eq!(counts(&vectors), (0, 0));
    }

    #[test]
    fn a_vector_that_has_grown_is_not_kept() {
        let vectors = KeptVectors::new(MAX);
        let mut grown = vectors.for_body(MIN_KEPT_BODY_BYTES);
        grown.bytes.resize(KEPT_VECTOR_BYTES + 1, 0);
        drop(grown);
        assert_eq!(counts(&vectors), (0, 0));
    }
}
