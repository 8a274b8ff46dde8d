//! Finds out from the control plane controller's leader election Lease whether the controller is running.
//! Checks in other files report the result.

use std::time::Duration;

use jiff::Timestamp;
use kcp_api::names::lease;

use crate::{
    snapshot::{ControllerLease, Reading, Snapshot},
    staleness::{age, format_age},
};

/// The duration of a Lease that does not specify one. This is Cluster API's default.
const LEASE_SECONDS: u64 = 60;

/// How long a Lease must have been expired before the controller counts as stopped. Another instance acquires
/// the Lease within seconds, but clocks differ.
const EXPIRED_LIMIT: Duration = Duration::from_secs(2 * 60);

/// The last holder of an expired Lease, and when it was renewed. `None` if the controller runs, or if the Lease was not read.
pub fn stopped_holder(lease: &Reading<Option<ControllerLease>>, now: Timestamp) -> Option<(&str, Timestamp)> {
    let lease = lease.value()?.as_ref()?;
    let (holder, renewed) = (lease.holder.as_deref()?, lease.renewed?);
    let seconds = lease
        .duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    let holds = Duration::from_secs(seconds.unwrap_or(LEASE_SECONDS));
    (age(renewed, now) > holds.saturating_add(EXPIRED_LIMIT)).then_some((holder, renewed))
}

/// The end of a message: a semicolon, and what the Lease says about the controller. Empty if the Lease was
/// not read.
pub fn controller_suffix(observed: &Snapshot, now: Timestamp) -> String {
    let Some(lease) = observed.controller_lease.value() else {
        return String::new();
    };
    let Some(ControllerLease {
        holder,
        renewed,
        duration_seconds,
        ..
    }) = lease
    else {
        return format!(
            "; the controller has no Lease in namespace {}",
            lease::CONTROL_PLANE_NAMESPACE
        );
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
                format!("; the controller is running: see the log of {holder}")
            }
        }
        _ => "; no process holds the controller's Lease".to_owned(),
    }
}
