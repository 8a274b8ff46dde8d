//! Builders and fakes for tests.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "used by tests alone"
)]

// Needs the clock of tokio's tests, which the feature does not enable.
#[cfg(test)]
pub mod attempts;
pub mod fake;
pub mod objects;
pub mod plans;
pub mod reports;
#[cfg(test)]
mod simulation;
pub mod states;
