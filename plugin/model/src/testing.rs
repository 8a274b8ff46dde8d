//! Control planes and related objects for tests, and the generated pages of the book.

pub mod change;
pub mod diagnosis;
pub mod machine;
pub mod objects;
pub mod page;
pub mod plan;
pub mod snapshot;
