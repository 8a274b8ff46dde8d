//! `rollout history`: the generations of Machines that are there, oldest first.
//!
//! Cluster API keeps no record of rollouts: a Machine that is gone has taken what it was made from with it.
//!
//! - [`generation`]: which Machines belong together, and why they are out of date
//! - [`document`], [`screen`]: the JSON and the text

pub mod document;
pub mod generation;
pub mod screen;

pub use generation::{Generation, History, history};
