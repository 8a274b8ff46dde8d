//! `machine`: changes one Machine of a control plane.

pub mod first;
pub mod prefer_delete;
pub mod remediate;
pub mod replace;
