//! One decision for each command that writes.

pub mod leader_migration;
pub mod machine;
pub mod rollout;
pub mod scale;
pub mod upgrade;
