//! The decision of each verb that writes: pure, of what was read and the time.

pub mod machine;
pub mod rollout;
pub mod scale;
pub mod upgrade;
