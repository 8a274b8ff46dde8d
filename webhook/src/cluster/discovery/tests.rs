use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use kcp_api::names::group;
use serde_json::{Value, json};
use tokio::{task::yield_now, time::advance};

use super::*;
use crate::{cluster::ClusterReader, metrics::Metrics, testing::api_server};

/// An API server that serves `version` of Cluster API, and the paths that were requested.
fn served(version: &'static str) -> (ClusterReader, Arc<Mutex<Vec<String>>>) {
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
    (
        ClusterReader::new(Some(client), Arc::new(Metrics::new())),
        requested,
    )
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
async fn a_version_is_used_while_it_is_read_again_once_per_interval() {
    let (cluster, requested) = served("v1beta1");
    let version = async || {
        cluster
            .start_reads(crate::cluster::ReadLimits::default())
            .discover_version(group::CLUSTER)
            .await
            .unwrap()
    };
    let at_once = tokio::join!(version(), version(), version());
    assert_eq!(at_once, ("v1beta1".into(), "v1beta1".into(), "v1beta1".into()));
    advance(Duration::from_millis(29_999)).await;
    version().await;
    assert_eq!(count(&requested, "/apis/cluster.x-k8s.io"), 1);
    advance(Duration::from_millis(1)).await;
    let at_once = tokio::join!(version(), version(), version());
    assert_eq!(at_once, ("v1beta1".into(), "v1beta1".into(), "v1beta1".into()));
    assert_eq!(count(&requested, "/apis/cluster.x-k8s.io"), 1);
    while count(&requested, "/apis/cluster.x-k8s.io") < 2 {
        yield_now().await;
    }
    version().await;
    assert_eq!(count(&requested, "/apis/cluster.x-k8s.io"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_does_not_delay_reads_for_five_minutes() {
    let is_down = Arc::new(AtomicBool::new(false));
    let down = is_down.clone();
    let client = api_server(move |_| {
        let is_down = down.load(Relaxed);
        async move {
            if is_down {
                std::future::pending::<()>().await;
            }
            (
                200,
                json!({"versions": [{"version": "v1beta2"}], "preferredVersion": {"version": "v1beta2"}}),
            )
        }
    });
    let cluster = ClusterReader::new(Some(client), Arc::new(Metrics::new()));
    let version = async || {
        let started = time::Instant::now();
        let version = cluster
            .start_reads(crate::cluster::ReadLimits::default())
            .discover_version(group::CLUSTER)
            .await;
        (version.ok(), started.elapsed())
    };
    assert_eq!(version().await.0.as_deref(), Some("v1beta2"));
    is_down.store(true, Relaxed);
    advance(Duration::from_secs(299)).await;
    assert_eq!(version().await, (Some("v1beta2".to_owned()), Duration::ZERO));
    advance(Duration::from_secs(1)).await;
    assert_eq!(version().await.0, None);
}

#[tokio::test(start_paused = true)]
async fn discovers_the_version_again_when_a_kind_is_not_served() {
    let (cluster, requested) = served("v1beta2");
    let reads = cluster.start_reads(crate::cluster::ReadLimits::default());
    let read = async |path: &str| reads.get(path, Projection::Whole).await.map(drop).unwrap_err();
    reads.discover_version(group::CLUSTER).await.unwrap();
    // A missing object does not mean that its kind is not served. Other groups do not matter either.
    for path in [
        "/apis/cluster.x-k8s.io/missing",
        "/apis/hive.openshift.io/v1/x",
        "/api/v1/x",
    ] {
        assert!(matches!(read(path).await, ReadError::NotFound), "{path}");
        reads.discover_version(group::CLUSTER).await.unwrap();
        assert_eq!(count(&requested, "/apis/cluster.x-k8s.io"), 1, "{path}");
    }
    assert!(matches!(
        read("/apis/cluster.x-k8s.io/v1beta2/x").await,
        ReadError::NotFound
    ));
    reads.discover_version(group::CLUSTER).await.unwrap();
    assert_eq!(count(&requested, "/apis/cluster.x-k8s.io"), 2);
}

#[tokio::test(start_paused = true)]
async fn does_not_remember_a_failed_discovery() {
    let (cluster, requested) = served("v1beta2");
    for times in 1..3 {
        cluster
            .start_reads(crate::cluster::ReadLimits::default())
            .discover_version(group::CONTROL_PLANE)
            .await
            .unwrap_err();
        assert_eq!(count(&requested, "/apis/controlplane.cluster.x-k8s.io"), times);
    }
}

#[tokio::test]
async fn reports_served_versions_that_are_not_registered() {
    let metrics = Arc::new(Metrics::new());
    let client = api_server(|path| async move {
        let with_kind = json!({"resources": [{"name": "kubeadmcontrolplanes"}]});
        match path.as_str() {
            "/apis/controlplane.cluster.x-k8s.io" => (
                200,
                json!({
                    "versions": [{"version": "v1beta3"}, {"version": "v1beta2"}, {"version": "v1"},
                        {"version": "v1beta1"}, {"version": "v2"}],
                    "preferredVersion": {"version": "v1beta2"},
                }),
            ),
            "/apis/controlplane.cluster.x-k8s.io/v1beta3" => (200, with_kind),
            "/apis/controlplane.cluster.x-k8s.io/v1" => (200, json!({"resources": [{"name": "others"}]})),
            _ => (500, json!("no")),
        }
    });
    let cluster = ClusterReader::new(Some(client), metrics.clone());
    assert_eq!(
        cluster
            .start_reads(crate::cluster::ReadLimits::default())
            .discover_version(group::CONTROL_PLANE)
            .await
            .unwrap(),
        "v1beta2"
    );
    assert_eq!(cluster.unregistered_versions(), ["v1beta3", "v2"]);
    let metrics = metrics.encode().unwrap();
    for version in ["v1beta3", "v2"] {
        let line = format!("kcp_webhook_unregistered_version{{version=\"{version}\"}} 1\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
    assert_eq!(
        metrics.matches("kcp_webhook_unregistered_version{").count(),
        2,
        "{metrics}"
    );
}
