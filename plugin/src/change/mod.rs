//! Changes a control plane or a Machine, for all verbs.
//!
//! - [`engine`]: reads, calls the verb's decision, writes, and records an Event
//! - [`report`]: prints the result

pub mod arguments;
pub mod engine;
pub mod report;

#[cfg(test)]
mod tests;
