//! The record of the last snapshot of a control plane's etcd, in an annotation of the control plane. No I/O.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{KubeadmControlPlane, Object as _, names::annotation};

/// How far in the future the time of a record may be. The time comes from the clock of another API server.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// The last snapshot of a control plane's etcd, as the value of the annotation `etcd-snapshot`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SnapshotRecord {
    /// The uid of the control plane. A control plane that was created from a copied manifest has a different
    /// uid.
    pub uid: String,
    /// When the snapshot was complete.
    pub completed: Timestamp,
    /// The name of the member's node, or `host:port` of an external etcd.
    pub member: String,
    /// The size of the snapshot in bytes.
    pub bytes: u64,
    /// The file or the object with the snapshot. Absent if the snapshot went to stdout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

impl SnapshotRecord {
    /// Reads the annotation of the control plane with this uid. `None` if the record is not valid, or belongs to another control
    /// plane.
    pub fn parse(text: &str, uid: &str) -> Option<Self> {
        let record: Self = serde_json::from_str(text).ok()?;
        (record.uid == uid).then_some(record)
    }

    /// The record of a control plane. `None` if the record is missing or not valid, belongs to another control
    /// plane, or is from the future.
    pub fn from_control_plane(control_plane: &KubeadmControlPlane, now: Timestamp) -> Option<Self> {
        let record = control_plane.annotation(annotation::ETCD_SNAPSHOT)?;
        Self::parse(record, control_plane.uid()).filter(|record| is_possible(record.completed, now))
    }
}

/// Whether a snapshot can have been complete at this time: it is at most `CLOCK_TOLERANCE` in the future.
pub fn is_possible(completed: Timestamp, now: Timestamp) -> bool {
    completed.duration_since(now) <= CLOCK_TOLERANCE
}
