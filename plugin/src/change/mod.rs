//! Changes a control plane or a Machine, for all verbs.
//!
//! - [`engine`]: reads, calls the verb's decision, writes, and records an Event
//! - [`replacement`]: announces the replacement of a Machine, and refuses other changes during it
//! - [`report`]: prints the result

pub mod arguments;
pub mod engine;
mod replacement;
pub mod report;

#[cfg(test)]
mod tests;
