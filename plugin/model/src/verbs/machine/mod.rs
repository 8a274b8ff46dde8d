//! Decisions of `kubectl kcp machine`.

pub mod danger;
pub mod decision;

#[cfg(any(test, feature = "testing"))]
pub mod example;
pub mod leader;
pub mod object;
pub mod obstacle;
pub mod ownership;
pub mod preference;
pub mod remediation;
pub mod replacement;
pub mod situation;
