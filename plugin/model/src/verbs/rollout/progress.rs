//! How far a rollout is that is in progress, by what the control plane itself says.

use crate::control_plane::ControlPlane;

/// For people; none where no rollout is in progress.
pub fn progress(control_plane: &ControlPlane) -> Option<String> {
    let is_in_progress = control_plane.initialized && control_plane.is_rolling_out();
    is_in_progress.then(|| {
        format!(
            "a rollout is in progress: {} of {} Machines are up to date",
            control_plane.up_to_date_replicas,
            control_plane.desired()
        )
    })
}
