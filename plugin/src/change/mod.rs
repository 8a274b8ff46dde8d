//! How every verb changes a control plane or a Machine.
//!
//! - [`engine`]: reads, lets the verb decide, writes, and records an Event
//! - [`report`]: prints the result

pub mod arguments;
pub mod engine;
pub mod report;

#[cfg(test)]
mod tests;
