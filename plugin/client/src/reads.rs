//! Reads the facts on which the commands decide. Each part is read separately. A part that cannot be read is recorded
//! with its error.
//!
//! One control plane:
//!
//! - [`observe`]: from all sources at the same time
//! - [`management`]: from the management cluster; [`planned`]: its Machines and their infrastructure and bootstrap objects;
//!   [`template`]: its infrastructure template; [`workers`], [`topology`]: the workers and the class of its Cluster;
//!   [`certificates`], [`secret`]: its Secrets
//! - [`workload_and_etcd`]: the workload cluster ([`workload`]) and, through it, [`etcd`], with credentials from Secrets
//! - [`component_logs`]: the logs of its components, from the kubelets
//! - [`change`], [`machine`]: what decides whether it, or one of its Machines, may be changed
//! - [`diagnosis`]: all that is known about one Machine
//! - [`first_machine`]: what exists only on the Node of the first Machine; [`drain`]: what decides how Nodes are drained
//! - [`rollout_events`], [`failed_writes`]: the Events about it
//!
//! Several control planes, and other things:
//!
//! - [`list`]: all control planes of one or all namespaces, from the management cluster; [`kept`]: what a program keeps that reads
//!   them again and again
//! - [`controller_lease`], [`extensions`], [`versions`]: Cluster API's controllers, runtime extensions and programs
//! - [`deprecated_apis`]: which deprecated APIs clients use; [`leader_migration`]: the controller managers and their Leases
//! - [`audit`], [`bundle`], [`validation`]: what these commands check or store
//! - [`node`]: the Nodes of the cluster that the kubeconfig selects; [`node_removal`], [`node_join`]: what decides whether a Node
//!   leaves or joins; [`cluster_info`], [`api_servers`]: how a host finds the cluster
//! - [`webhook`], [`anchor`]: how kcp-webhook is registered and installed
//! - [`names`]: names for the completion of a command line
//! - [`time_limits`]: divides a command's time among its reads; [`failure`]: describes errors for a report

pub mod anchor;
pub mod api_servers;
pub mod audit;
pub mod bundle;
pub mod certificates;
pub mod change;
pub mod cluster_info;
pub mod component_logs;
pub mod controller_lease;
pub mod deprecated_apis;
pub mod diagnosis;
pub mod drain;
pub mod etcd;
pub mod extensions;
pub mod failed_writes;
pub mod failure;
pub mod first_machine;
pub mod kept;
pub mod leader_migration;
pub mod list;
pub mod machine;
pub mod management;
pub mod names;
pub mod node;
pub mod node_join;
pub mod node_removal;
pub mod observe;
pub mod planned;
pub mod rollout_events;
pub mod secret;
pub mod template;
pub mod time_limits;
pub mod topology;
pub mod validation;
pub mod versions;
pub mod webhook;
pub mod workers;
pub mod workload;
pub mod workload_and_etcd;

use std::time::{Duration, Instant};

pub use kept::Kept;
pub use list::{check_namespace_exists, for_each, list};
pub use management::{read_control_plane_name, read_from_management};
pub use observe::{observe, unread_snapshot};
pub use workload_and_etcd::{Excluded, MachineByNode, WorkloadTarget, read_workload_and_etcd};

use crate::{Action, Connection, Error, ReadLimit, reader::Reader};

/// If `status` has no argument NAME, it does not read Secrets, the workload cluster or etcd.
/// [`Reading::Excluded`](kcp_control_plane::snapshot::Reading::Excluded) then contains this text instead of a flag.
pub const NO_NAME_ARGUMENT: &str = "no NAME";

/// The default of the flag `--timeout`.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum percentage of a command's time that one read may take, so that a read that hangs leaves time for the
/// workload cluster and etcd.
const MAX_PERCENT_FOR_ONE_READ: u32 = 30;

/// Returns the time limit for reads of one control plane, in a command that may run for `timeout` from now.
pub fn limit_per_control_plane(timeout: Duration) -> ReadLimit {
    ReadLimit::per_read(timeout * MAX_PERCENT_FOR_ONE_READ / 100).ending_at(Instant::now() + timeout)
}

/// Returns the time limit for lists, in a command that may run for `timeout` from now. No other read waits for a list.
pub fn list_limit(timeout: Duration) -> ReadLimit {
    ReadLimit::per_read(timeout).ending_at(Instant::now() + timeout)
}

/// Finds out which API versions the management cluster serves.
pub async fn discover(connection: &Connection, limit: ReadLimit) -> Result<Reader<'_>, Error> {
    let action = Action::path("get", "/apis");
    connection
        .run_with_limit(limit.for_first_read(), &action, Reader::discover(connection))
        .await
}
