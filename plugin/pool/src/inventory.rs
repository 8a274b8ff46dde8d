//! Counts a pool's clusters against its limits, and finds stale clusters.

pub mod capacity;
pub mod staleness;
