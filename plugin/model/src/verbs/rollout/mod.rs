//! Decides for the verbs of `rollout`: replace all Machines, now or later; pause and resume a control plane.

pub mod cancel;
pub mod pause;
pub mod start;

use kcp_api::KubeadmControlPlane;

/// The progress of a rollout, as the control plane reports it. None if no rollout is in progress.
pub(in crate::verbs) fn progress(control_plane: &KubeadmControlPlane) -> Option<String> {
    let is_in_progress = control_plane.status.initialized && control_plane.is_rolling_out();
    is_in_progress.then(|| {
        format!(
            "a rollout is in progress: {} of {} Machines are up to date",
            control_plane.status.up_to_date_replicas,
            control_plane.desired_replicas()
        )
    })
}
