//! Whether a change is complete, and what it waits for.

pub mod goal;
pub mod obstacle;
