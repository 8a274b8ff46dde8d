//! How every change of a control plane is written and reported.

pub mod arguments;
pub mod output;
pub mod telling;
