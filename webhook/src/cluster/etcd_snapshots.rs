//! When the last snapshot of each control plane's etcd was recorded.

use jiff::Timestamp;
use kcp_api::snapshot_record::is_possible;

use super::kinds::Caches;
use crate::metrics::LastSnapshot;

/// The maximum number of control planes that have a time series. If there are more, those with the oldest snapshots have one.
const MAX_CONTROL_PLANES: usize = 2_000;

impl Caches {
    /// The last snapshot of each control plane; empty while the cache is not synced.
    pub(super) fn last_snapshots(&self, now: Timestamp) -> Vec<LastSnapshot> {
        let mut snapshots = Vec::new();
        self.control_planes.for_each(|namespace, name, control_plane| {
            let recorded = control_plane
                .snapshot
                .filter(|completed| is_possible(*completed, now));
            // Without a recorded snapshot, count from the creation of the control plane: all of its data could be lost.
            if let Some(time) = recorded.or(control_plane.created) {
                snapshots.push(LastSnapshot {
                    namespace: namespace.to_owned(),
                    control_plane: name.to_owned(),
                    is_recorded: recorded.is_some(),
                    time,
                });
            }
        });
        snapshots.sort_by_key(|snapshot| snapshot.time);
        snapshots.truncate(MAX_CONTROL_PLANES);
        snapshots
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kcp_rules::testing::case::NOW;
    use serde_json::{Value, json};

    use super::{Caches, MAX_CONTROL_PLANES};

    fn control_plane(name: &str, created: &str, record: Option<(&str, &str)>) -> Value {
        let mut metadata =
            json!({"name": name, "namespace": "prod", "uid": "u1", "creationTimestamp": created});
        if let Some((uid, completed)) = record {
            let record = json!({"uid": uid, "completed": completed, "member": "n1", "bytes": 544});
            metadata["annotations"] = json!({"kubectl-kcp.dev/etcd-snapshot": record.to_string()});
        }
        json!({"kind": "KubeadmControlPlane", "metadata": metadata, "spec": {}, "status": {}})
    }

    fn snapshots(objects: &[Value]) -> Vec<(String, bool, String)> {
        let caches = Caches::default();
        caches.fill(objects);
        let now: Timestamp = NOW.parse().unwrap();
        caches
            .last_snapshots(now)
            .into_iter()
            .map(|snapshot| {
                assert_eq!(snapshot.namespace, "prod");
                (
                    snapshot.control_plane,
                    snapshot.is_recorded,
                    snapshot.time.to_string(),
                )
            })
            .collect()
    }

    #[test]
    fn only_a_valid_record_of_the_same_control_plane_counts() {
        let created = "2026-01-01T00:00:00Z";
        let completed = "2026-05-01T00:00:00Z";
        let mut broken = control_plane("broken", created, None);
        broken["metadata"]["annotations"] = json!({"kubectl-kcp.dev/etcd-snapshot": "{"});
        let expected = |name: &str, is_recorded, time: &str| (name.to_owned(), is_recorded, time.to_owned());
        assert_eq!(
            snapshots(&[
                control_plane("saved", created, Some(("u1", completed))),
                control_plane("copied", created, Some(("u2", completed))),
                control_plane("future", created, Some(("u1", "2999-01-01T00:00:00Z"))),
                control_plane("never", created, None),
                broken,
            ]),
            [
                expected("broken", false, created),
                expected("copied", false, created),
                expected("future", false, created),
                expected("never", false, created),
                expected("saved", true, completed),
            ]
        );
    }

    #[test]
    fn the_oldest_snapshots_count_beyond_the_limit() {
        let many = (0..=MAX_CONTROL_PLANES).map(|number| {
            let day = 1 + number % 28;
            let completed = format!("2026-05-{day:02}T00:00:00Z");
            control_plane(
                &format!("c{number}"),
                "2026-01-01T00:00:00Z",
                Some(("u1", &completed)),
            )
        });
        let mut all: Vec<Value> = many.collect();
        all.push(control_plane("oldest", "2025-01-01T00:00:00Z", None));
        let counted = snapshots(&all);
        assert_eq!(counted.len(), MAX_CONTROL_PLANES);
        assert_eq!(counted[0].0, "oldest");
    }
}
