//! What kubeadm has kept for Machines that join.

use jiff::Timestamp;

use crate::checks::{
    components::WORKLOAD,
    judgement::{Judgement, Unjudged, need},
    rollout::has_pending_change,
    turnover::is_turning,
};
use crate::{inspection::Finding, snapshot::Observed};

/// `v1.34.1` of `v1.34.1+vendor.1`.
fn release(version: &str) -> &str {
    version.split_once('+').map_or(version, |(release, _)| release)
}

/// Whether a Machine that joins gets static pods of the version that is asked for: `kubeadm join` takes it from
/// `ConfigMap` `kubeadm-config`, into which the controller writes it when a rollout begins, and at no other time (Cluster
/// API v1.14, `UpdateClusterConfiguration`).
pub fn version(observed: &Observed, now: Timestamp) -> Judgement {
    let workload = need(&observed.workload, WORKLOAD)?;
    let Some(kept) = need(&workload.kubeadm_version, "kubeadm-config")? else {
        return Err(Unjudged::skipped(
            "the workload cluster's kubeadm-config names no version",
        ));
    };
    let plan = &observed.management.control_plane;
    let asked = &plan.spec.version;
    if release(kept) == release(asked) {
        return Ok(Vec::new());
    }
    let object = "ConfigMap/kubeadm-config";
    let message = format!("names {kept}, and {asked} is asked for");
    if has_pending_change(observed, now) || is_turning(observed, now) {
        return Ok(vec![Finding::info(object, message)]);
    }
    let message = format!("{message}: a Machine that joins gets static pods of {kept}");
    let control_plane = &plan.control_plane;
    Ok(vec![Finding::warn(object, message).hint(format!(
        "the controller writes it when a rollout begins: kubectl kcp rollout start {} -n {}",
        control_plane.name, control_plane.namespace
    ))])
}
