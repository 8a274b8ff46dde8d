//! Why a part is not there.

use kcp_control_plane::snapshot::Reading;

/// Why nothing was read, for people; none where it was.
pub(super) fn absence<T>(reading: &Reading<T>) -> Option<String> {
    match reading {
        Reading::Read(_) => None,
        Reading::Excluded { flag } => Some(format!("not asked ({flag})")),
        Reading::NotYet => Some("not there yet: no Machine has come up".to_owned()),
        Reading::OutOfReach(failure) => Some(format!(
            "out of reach from here: {}: {}",
            failure.object, failure.message
        )),
        Reading::Failed(failure) => Some(format!(
            "could not be read: {}: {}",
            failure.object, failure.message
        )),
    }
}
