//! Control planes and related objects for tests.

pub mod change;
pub mod machine;
pub mod objects;
pub mod plan;
pub mod snapshot;
