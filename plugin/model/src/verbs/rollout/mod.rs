//! Decisions of `kubectl kcp rollout`.

pub mod cancellation;
pub mod decision;
pub mod pausing;
pub mod permission;
pub mod progress;
pub mod schedule;
