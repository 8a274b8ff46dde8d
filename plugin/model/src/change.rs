//! Decides whether a change may be written.

pub mod cluster_write;
pub mod confirmation;
pub mod decision;
pub mod preflight;
pub mod quorum_guard;
pub mod replaceable;
pub mod replacement;
