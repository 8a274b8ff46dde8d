//! Changes a control plane or a Machine, in the same way for all verbs.
//!
//! - [`confirmation`]: asks before a change that deletes or replaces something
//! - [`engine`]: reads, calls the verb's decision, writes, and records an Event
//! - [`replacement`]: announces the replacement of a Machine, and refuses other changes during it
//! - [`report`]: prints the result; [`diff`]: the fields that a write changes

pub mod arguments;
pub mod confirmation;
pub(crate) mod diff;
pub mod engine;
mod replacement;
pub mod report;

#[cfg(test)]
mod tests;
