use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{task::yield_now, time::advance};

use super::*;
use crate::{
    cluster::{
        Cluster,
        versions::{CLUSTER_API, CONTROL_PLANES},
    },
    metrics::Metrics,
    testing::api_server,
};

/// An API server that serves `version` of Cluster API, and the paths that were requested.
fn served(version: &'static str) -> (Cluster, Arc<Mutex<Vec<String>>>) {
    let requested = Arc::new(Mutex::new(Vec::new()));
    let seen = requested.clone();
    let client = api_server(move |path| {
        seen.lock().unwrap().push(path.clone());
        async move {
            // Lets concurrent reads start.
            yield_now().await;
            match path.as_str() {
                "/apis/cluster.x-k8s.io" => (
                    200,
                    json!({"versions": [{"version": "v1alpha4"}, {"version": version}],
                        "preferredVersion": {"version": "v1alpha4"}}),
                ),
                "/apis/cluster.x-k8s.io/missing" => (404, not_found(&json!({"name": "missing"}))),
                "/apis/controlplane.cluster.x-k8s.io" => (500, json!("down")),
                _ => (404, Value::Null),
            }
        }
    });
    (Cluster::new(Some(client), Arc::new(Metrics::new())), requested)
}

fn not_found(details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
        "reason": "NotFound", "message": "not found", "details": details})
}

fn count(requested: &Mutex<Vec<String>>, path: &str) -> usize {
    requested
        .lock()
        .unwrap()
        .iter()
        .filter(|requested| *requested == path)
        .count()
}

#[tokio::test(start_paused = true)]
async fn concurrent_reads_discover_a_version_once_per_interval() {
    let (cluster, requested) = served("v1beta1");
    let version = async || cluster.reads().version(CLUSTER_API).await.unwrap();
    let at_once = tokio::join!(version(), version(), version());
    assert_eq!(at_once, ("v1beta1".into(), "v1beta1".into(), "v1beta1".into()));
    advance(Duration::from_millis(29_999)).await;
    version().await;
    assert_eq!(count(&requested, "/apis/cluster.x-k8s.io"), 1);
    advance(Duration::from_millis(1)).await;
    version().await;
    assert_eq!(count(&requested, "/apis/cluster.x-k8s.io"), 2);
}

#[tokio::test(start_paused = true)]
async fn discovers_the_version_again_when_a_kind_is_not_served() {
    let (cluster, requested) = served("v1beta2");
    let reads = cluster.reads();
    let read = async |path: &str| reads.get(path, Projection::Whole).await.map(drop).unwrap_err();
    reads.version(CLUSTER_API).await.unwrap();
    // A missing object does not mean that its kind is not served. Other groups do not matter either.
    for path in [
        "/apis/cluster.x-k8s.io/missing",
        "/apis/hive.openshift.io/v1/x",
        "/api/v1/x",
    ] {
        assert!(matches!(read(path).await, ReadError::NotFound), "{path}");
        reads.version(CLUSTER_API).await.unwrap();
        assert_eq!(count(&requested, "/apis/cluster.x-k8s.io"), 1, "{path}");
    }
    assert!(matches!(
        read("/apis/cluster.x-k8s.io/v1beta2/x").await,
        ReadError::NotFound
    ));
    reads.version(CLUSTER_API).await.unwrap();
    assert_eq!(count(&requested, "/apis/cluster.x-k8s.io"), 2);
}

#[tokio::test(start_paused = true)]
async fn does_not_remember_a_failed_discovery() {
    let (cluster, requested) = served("v1beta2");
    for times in 1..3 {
        cluster.reads().version(CONTROL_PLANES).await.unwrap_err();
        assert_eq!(count(&requested, "/apis/controlplane.cluster.x-k8s.io"), times);
    }
}

#[tokio::test]
async fn notes_served_versions_of_control_planes_that_are_not_listed() {
    let client = api_server(|path| {
        let resources = |name: &str| (200, json!({"resources": [{"name": name}]}));
        let answer = match path.as_str() {
            "/apis/controlplane.cluster.x-k8s.io" => (
                200,
                json!({"versions": [{"version": "v1"}, {"version": "v1beta3"}, {"version": "v1beta2"}],
                    "preferredVersion": {"version": "v1"}}),
            ),
            "/apis/controlplane.cluster.x-k8s.io/v1" => resources("kubeadmcontrolplanes"),
            "/apis/controlplane.cluster.x-k8s.io/v1beta3" => resources("others"),
            _ => (500, json!("no")),
        };
        std::future::ready(answer)
    });
    let metrics = Arc::new(Metrics::new());
    let cluster = Cluster::new(Some(client), metrics.clone());
    assert_eq!(cluster.reads().version(CONTROL_PLANES).await.unwrap(), "v1beta2");
    assert_eq!(cluster.unlisted_versions(), ["v1".to_owned()].into());
    assert!(
        metrics
            .encode()
            .unwrap()
            .contains("kcp_webhook_unlisted_control_plane_versions 1\n")
    );
}
