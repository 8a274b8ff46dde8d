//! The decision of each verb that writes.

pub mod machine;
pub mod rollout;
pub mod scale;
pub mod upgrade;
