//! Builders and fakes for tests.

pub mod fake;
pub mod objects;
pub mod plans;
pub mod reports;
pub mod states;
