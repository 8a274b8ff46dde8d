//! How many clusters a pool may have, and which are stale.

pub mod capacity;
pub mod staleness;
