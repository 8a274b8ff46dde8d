//! Control planes and their surroundings to test with.

pub mod change;
pub mod machine;
pub mod objects;
pub mod plan;
pub mod snapshot;
