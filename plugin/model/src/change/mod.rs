//! Whether a change may be written, and what a verb decides.

pub mod conflict;
pub mod decision;
pub mod event;
#[cfg(any(test, feature = "testing"))]
pub mod example;
pub mod guard;
pub mod ownership;
pub mod preflight;
pub mod snapshot;
