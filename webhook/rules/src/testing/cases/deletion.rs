//! Cases of the rules in [`crate::topics::deletion`].

use crate::{
    testing::case::Case,
    view::{Cluster, View},
};

fn view(deleting: bool, workers: &[&str], terminating: bool) -> View {
    let cluster = Cluster {
        name: "example".to_owned(),
        is_deleting: deleting,
        ..Cluster::default()
    };
    View {
        cluster: Some(cluster).into(),
        worker_machines: workers
            .iter()
            .map(|&worker| worker.to_owned())
            .collect::<Vec<_>>()
            .into(),
        namespace_terminating: terminating.into(),
        ..View::default()
    }
}

const MOVED: &str = r#"{"metadata":{"annotations":{"clusterctl.cluster.x-k8s.io/delete-for-move":""}}}"#;
const DELETING: &str = r#"{"metadata":{"deletionTimestamp":"2026-06-01T11:00:00Z"}}"#;

pub(super) const CASES: &[Case] = &[
    Case::delete(
        "rejects_deletion_with_workers",
        "{}",
        &[("control-plane-in-use", "spec")],
    )
    .with_view(|| view(false, &["worker-1"], false)),
    Case::delete("accepts_deletion_without_workers", "{}", &[]).with_view(|| view(false, &[], false)),
    Case::delete("accepts_deletion_with_its_cluster", "{}", &[])
        .with_view(|| view(true, &["worker-1"], false)),
    Case::delete("accepts_deletion_with_its_namespace", "{}", &[])
        .with_view(|| view(false, &["worker-1"], true)),
    Case::delete("accepts_deletion_without_cluster", "{}", &[]).with_view(|| View {
        cluster: Some(None),
        ..view(false, &["worker-1"], false)
    }),
    Case::delete("accepts_deletion_after_move", MOVED, &[]).with_view(|| view(false, &["worker-1"], false)),
    Case::delete("accepts_second_deletion", DELETING, &[]).with_view(|| view(false, &["worker-1"], false)),
    Case::delete("accepts_deletion_when_nothing_can_be_read", "{}", &[]),
];
