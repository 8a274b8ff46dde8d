//! Reads what `status` decides about. Each part is read by itself and may fail by itself: what could not be read is a
//! part of what was seen.
//!
//! - [`observe`]: one control plane, from all sources at the same time
//! - [`management`]: the management cluster about one control plane
//! - [`list`]: about all of a namespace, or of all namespaces
//! - [`workload_and_etcd`]: the workload cluster ([`workload`]), and [`etcd`] through it, by way of Secrets ([`secret`])
//! - [`time_limits`]: how the time that a command has is shared out
//! - [`failure`]: what an error means to somebody who reads a report

pub mod change;
pub mod etcd;
pub mod failure;
pub mod list;
pub mod machine;
pub mod management;
pub mod observe;
pub mod planned;
pub mod secret;
pub mod time_limits;
pub mod workers;
pub mod workload;
pub mod workload_and_etcd;

#[cfg(any(test, feature = "testing"))]
pub mod example;

use std::time::{Duration, Instant};

pub use list::{list, namespace_exists};
pub use management::{control_plane_of, management};
pub use observe::{observe, unread};
pub use workload_and_etcd::{Excluded, MachineByNode, Target, workload_and_etcd};

use crate::{Action, Connection, Error, ReadLimit, reader::Reader};

/// What is left out where no control plane is named, as [`Reading::Excluded`](kcp_control_plane::snapshot::Reading::Excluded) has
/// it: the Secrets, the workload cluster and etcd.
pub const WITHOUT_NAME: &str = "no NAME";

/// How long a command may take that says nothing.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most that one read of one control plane may take of a command's time, in percent: one that does not end leaves
/// time for the workload cluster and etcd.
const SHARE_OF_ONE_READ: u32 = 30;

/// How long the reads of one control plane may take, in a command that may take `timeout` from now on.
pub fn limit_of_one(timeout: Duration) -> ReadLimit {
    ReadLimit::each(timeout * SHARE_OF_ONE_READ / 100).until(Instant::now() + timeout)
}

/// How long the reads of a list may take, in a command that may take `timeout` from now on. Nothing waits for a list but
/// its own end.
pub fn limit_of_list(timeout: Duration) -> ReadLimit {
    ReadLimit::each(timeout).until(Instant::now() + timeout)
}

/// Asks which versions to use.
///
/// # Errors
/// When the cluster does not answer in time, or does not have Cluster API.
pub async fn discover(connection: &Connection, limit: ReadLimit) -> Result<Reader<'_>, Error> {
    let action = Action::path("get", "/apis");
    connection
        .within(limit.for_the_first(), &action, Reader::discover(connection))
        .await
}
