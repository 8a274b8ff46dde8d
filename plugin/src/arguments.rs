//! Arguments that commands share: global flags, and parsers of values.
//!
//! Each command defines its own arguments.

mod dry_run;
pub mod global;
pub mod invocation;
mod kubectl_only;
pub mod name;
mod value;
pub mod wrong_word;

pub use dry_run::DryRun;
pub use global::Global;
pub use kcp_client::parse_namespace;
pub use kcp_control_plane::duration::{self, format_duration, parse_duration};
pub use kubectl_only::KubectlOnly;
pub use name::{
    ControlPlaneName, parse_cluster_pool, parse_control_plane, parse_customization, parse_machine,
    parse_node, parse_object_name,
};
pub use value::{
    parse_image, parse_label, parse_reason, parse_request_timeout, parse_timeout, parse_timestamp,
};
