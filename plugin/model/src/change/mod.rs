//! Whether a change may be written, and what a verb decides.

pub mod decision;
pub mod ownership;
pub mod preflight;
pub mod quorum_guard;
