//! The decisions of the verbs of `rollout`: replace all Machines, now or later; undo a change; pause and resume a
//! control plane.

pub mod cancel;
pub mod pause;
pub mod start;
pub mod undo;

use kcp_api::KubeadmControlPlane;

use crate::plan::messages::up_to_date_count;

/// The progress of a rollout, as the control plane reports it. `None` if no rollout is in progress.
pub(in crate::verbs) fn progress(control_plane: &KubeadmControlPlane) -> Option<String> {
    let is_in_progress = control_plane.status.initialized && control_plane.is_rolling_out();
    is_in_progress.then(|| {
        let status = &control_plane.status;
        let counts = up_to_date_count(status.up_to_date_replicas, control_plane.desired_replicas());
        format!("a rollout is in progress: {counts}")
    })
}
