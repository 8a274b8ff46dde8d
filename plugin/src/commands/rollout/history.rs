//! `rollout history`: the generations of existing Machines, oldest first, and the Events about them and about deleted Machines.
//!
//! Cluster API keeps no record of rollouts, so nothing is known of deleted Machines once their Events have expired.
//!
//! - [`generation`]: groups Machines, with the reasons why they are outdated
//! - [`document`], [`screen`]: the JSON and the text

pub mod document;
pub mod generation;
pub mod screen;

pub use generation::{Generation, History, history};
