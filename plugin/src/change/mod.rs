//! What every change of a control plane goes through.
//!
//! - [`situation`]: what it is judged on, read at one time
//! - [`guard`]: whether it may go ahead, by what it comes to
//! - [`ownership`]: who else writes the fields that it writes
//! - [`consent`]: all of these and the rules, together
//! - [`event`]: what tells of it afterwards
//! - [`arguments`]: how it is written, and told
//! - [`output`]: what scripts are given of it
//! - [`telling`]: saying what came of it

pub mod arguments;
pub mod consent;
pub mod event;
pub mod guard;
pub mod output;
pub mod ownership;
pub mod situation;
pub mod telling;

#[cfg(test)]
pub(crate) mod example;
