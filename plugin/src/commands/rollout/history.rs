//! `rollout history`: the generations of existing Machines, oldest first.
//!
//! Cluster API keeps no record of rollouts, so deleted Machines are unknown.
//!
//! - [`generation`]: groups Machines, with the reasons why they are outdated
//! - [`document`], [`screen`]: the JSON and the text

pub mod document;
pub mod generation;
pub mod screen;

pub use generation::{Generation, History, history};
