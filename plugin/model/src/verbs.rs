//! The decisions of the commands that write: one for each command.

pub mod ca_rotation;
pub mod etcd;
pub mod machine;
pub mod node;
pub mod reconcile;
pub mod rollout;
pub mod scale;
pub mod upgrade;
pub mod upgrade_path;
