//! Metrics of the last snapshots of etcd.

use jiff::Timestamp;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

/// The last snapshot of a control plane's etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastSnapshot {
    pub(crate) namespace: String,
    pub(crate) control_plane: String,
    /// Whether a snapshot is recorded.
    pub(crate) is_recorded: bool,
    /// When the snapshot was complete. Without one, when the control plane was created.
    pub(crate) time: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SnapshotLabels {
    namespace: String,
    control_plane: String,
    recorded: &'static str,
}

/// The metric of the last snapshots, with one series for each control plane.
#[derive(Default)]
pub(super) struct SnapshotGauges(Family<SnapshotLabels, Gauge>);

impl SnapshotGauges {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "kcp_webhook_etcd_snapshot_timestamp_seconds",
            "Completion time of the last recorded snapshot of a control plane's etcd, in seconds since 1970; if no snapshot is \
             recorded, the creation time of the control plane, with recorded=false",
            self.0.clone(),
        );
    }

    /// Replaces the snapshots of all control planes.
    pub(super) fn set(&self, snapshots: Vec<LastSnapshot>) {
        self.0.clear();
        for snapshot in snapshots {
            let labels = SnapshotLabels {
                namespace: snapshot.namespace,
                control_plane: snapshot.control_plane,
                recorded: if snapshot.is_recorded { "true" } else { "false" },
            };
            self.0.get_or_create(&labels).set(snapshot.time.as_second());
        }
    }
}
