//! Finds out whether the control plane controller runs, from its leader election Lease. Checks of other topics report it.

use jiff::Timestamp;
use kcp_api::names::lease;

use crate::{
    snapshot::{ControllerLease, Snapshot},
    staleness::{age, format_age},
};

/// The duration of a Lease that does not specify one. This is Cluster API's default.
const LEASE_SECONDS: u64 = 60;

/// Describes, after a semicolon, what the Lease says about the controller. Empty if the Lease was not read.
pub fn controller_state(observed: &Snapshot, now: Timestamp) -> String {
    let Some(lease) = observed.controller_lease.read() else {
        return String::new();
    };
    let Some(ControllerLease {
        holder,
        renewed,
        duration_seconds,
        ..
    }) = lease
    else {
        return format!("; the controller has no Lease in namespace {}", lease::NAMESPACE);
    };
    match (holder, renewed) {
        (Some(holder), Some(renewed)) => {
            let limit = duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            let since = age(*renewed, now);
            if since.as_secs() > limit.unwrap_or(LEASE_SECONDS) {
                format!(
                    "; the controller has stopped: {holder} last renewed its Lease {} ago",
                    format_age(*renewed, now)
                )
            } else {
                format!("; the controller runs as {holder}: see its log")
            }
        }
        _ => "; no process holds the controller's Lease".to_owned(),
    }
}
