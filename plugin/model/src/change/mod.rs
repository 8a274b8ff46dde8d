//! What every change of a control plane goes through before it is written.

pub mod consent;
pub mod decision;
pub mod event;
pub mod guard;
pub mod ownership;
pub mod situation;

#[cfg(any(test, feature = "testing"))]
pub mod example;
