//! `machine`: one Machine of a control plane.

pub mod danger;
#[cfg(any(test, feature = "testing"))]
pub mod example;
pub mod prefer_delete;
pub mod remediate;
pub mod replace;
pub mod snapshot;
