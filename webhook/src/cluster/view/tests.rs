//! Reads each part of a view from complete objects, with fields that no rule reads.

use std::sync::Arc;

use kcp_rules::view::{self, Part, View};
use serde_json::{Value, json};

use super::Subject;
use crate::{
    cluster::{ClusterReader, Source},
    metrics::Metrics,
    testing::api_server,
};

fn object(name: &str, rest: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "prod", "creationTimestamp": "2026-05-01T00:00:00Z", "uid": "1"},
        "spec": {"clusterName": "edge", "unread": {"deep": [1, 2]}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    });
    merge(&mut object, rest);
    object
}

fn merge(target: &mut Value, rest: Value) {
    match (target, rest) {
        (Value::Object(target), Value::Object(rest)) => {
            for (key, value) in rest {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, rest) => *target = rest,
    }
}

fn list(items: &[Value]) -> (u16, Value) {
    (
        200,
        json!({"kind": "List", "metadata": {"resourceVersion": "7"}, "items": items}),
    )
}

fn answer(path: &str) -> (u16, Value) {
    const CLUSTER_API: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/prod";
    const HIVE: &str = "/apis/hive.openshift.io/v1";
    let group = |version: &str| {
        (
            200,
            json!({"versions": [{"version": "v1beta1"}, {"version": version}], "preferredVersion": {"version": "v1beta1"}}),
        )
    };
    match path {
        "/apis/hive.openshift.io" => (
            200,
            json!({"versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}}),
        ),
        "/apis/cluster.x-k8s.io"
        | "/apis/controlplane.cluster.x-k8s.io"
        | "/apis/bootstrap.cluster.x-k8s.io" => group("v1beta2"),
        "/api/v1/namespaces/prod" => (
            200,
            object("prod", json!({"spec": {"finalizers": ["kubernetes"]}})),
        ),
        path if path == format!("{CLUSTER_API}/machines") => list(&[
            object(
                "m1",
                json!({
                    "metadata": {"ownerReferences": [
                        {"kind": "KubeadmControlPlane", "name": "cp", "controller": true}
                    ]},
                    "spec": {"version": "v1.34.2"},
                    "status": {"nodeRef": {"name": "n1"}}
                }),
            ),
            object(
                "of-another",
                json!({"metadata": {"ownerReferences": [
                    {"kind": "KubeadmControlPlane", "name": "before", "controller": true}
                ]}}),
            ),
        ]),
        "/apis/bootstrap.cluster.x-k8s.io/v1beta2/namespaces/prod/kubeadmconfigs" => list(&[
            object("plain", json!({"spec": {"joinConfiguration": {}}})),
            object(
                "migrating",
                json!({"spec": {"clusterConfiguration": {"controllerManager": {"extraArgs": [
                    {"name": "enable-leader-migration", "value": "true"}]}}}}),
            ),
        ]),
        path if path == format!("{CLUSTER_API}/machinepools") => (
            200,
            json!({"kind": "PartialObjectMetadataList", "metadata": {}, "items": null}),
        ),
        path if path == format!("{CLUSTER_API}/clusters/edge") => (
            200,
            object(
                "edge",
                json!({"spec": {"paused": true, "controlPlaneRef": {"kind": "KubeadmControlPlane", "name": "cp"}}}),
            ),
        ),
        "/apis/controlplane.cluster.x-k8s.io/v1beta2/namespaces/prod/kubeadmcontrolplanes" => {
            list(&[object("cp", json!({}))])
        }
        path if path == format!("{HIVE}/namespaces/prod/clusterpools") => list(&[
            object("cp", json!({"spec": {"inventory": [{"name": "mine"}]}})),
            object("other", json!({"spec": {"inventory": [{"name": "foo"}]}})),
        ]),
        path if path == format!("{HIVE}/namespaces/prod/clusterdeploymentcustomizations") => {
            list(&[object("foo", json!({}))])
        }
        path if path == format!("{HIVE}/clusterdeployments") => list(&[
            object(
                "c1",
                json!({"spec": {"clusterPoolRef": {"namespace": "prod", "poolName": "cp", "claimName": "",
                    "clusterDeploymentCustomization": {"name": "foo"}}}}),
            ),
            object(
                "elsewhere",
                json!({"spec": {"clusterPoolRef": {"namespace": "x", "poolName": "cp"}}}),
            ),
        ]),
        "/apis/coordination.k8s.io/v1/namespaces/prod/leases/kcp-pool-cp" => (
            200,
            object(
                "kcp-pool-cp",
                json!({"spec": {"holderIdentity": "us", "renewTime": "2026-05-01T00:00:00.000000Z",
                    "leaseDurationSeconds": 60}}),
            ),
        ),
        _ => (
            404,
            json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": path}),
        ),
    }
}

fn everything() -> impl Iterator<Item = Part> {
    let parts = Part::ALL.iter().copied();
    parts.filter(|part| *part != Part::MayOverride)
}

async fn read(cluster: Option<&str>) -> View {
    let client = api_server(|path| async move { answer(&path) });
    let reader = ClusterReader::new(Some(client), Arc::new(Metrics::new()));
    let subject = Subject::new("prod", "cp", cluster).unwrap();
    let reads = reader.start_reads(crate::cluster::ReadLimits::default());
    let parts = everything().collect();
    let filled = reader.read_view(&reads, &parts, &subject, Source::Caches);
    filled.await.view
}

#[tokio::test]
async fn reads_every_part_of_a_view() {
    let view = read(Some("edge")).await;
    let machine = view::Machine {
        name: "m1".to_owned(),
        version: Some("v1.34.2".to_owned()),
        created: "2026-05-01T00:00:00Z".parse().ok(),
        has_node: true,
        has_controller: true,
        awaits_bootstrap_data: false,
        is_deleting: false,
    };
    assert_eq!(view.machines.as_ref(), Some(&vec![machine]));
    let cluster = view::Cluster {
        name: "edge".to_owned(),
        uid: Some("1".to_owned()),
        paused: true,
        is_deleting: false,
        control_plane: Some("cp".to_owned()),
    };
    assert_eq!(view.cluster.as_ref(), Some(&Some(cluster)));
    assert_eq!(
        view.worker_machines.as_ref(),
        Some(&vec!["m1".to_owned(), "of-another".to_owned()])
    );
    assert_eq!(view.namespace_terminating.as_ref(), Some(&false));
    assert_eq!(view.control_planes.as_ref(), Some(&vec!["cp".to_owned()]));
    let pool = view::Pool {
        name: "other".to_owned(),
        inventory: vec!["foo".to_owned()],
        is_deleting: false,
    };
    assert_eq!(view.pools.as_ref(), Some(&vec![pool]));
    assert_eq!(view.customizations.as_ref(), Some(&vec!["foo".to_owned()]));
    let deployment = view::ClusterDeployment {
        namespace: "prod".to_owned(),
        name: "c1".to_owned(),
        pool_namespace: Some("prod".to_owned()),
        pool: "cp".to_owned(),
        claim: None,
        customization: Some("foo".to_owned()),
        is_deleting: false,
    };
    assert_eq!(view.cluster_deployments.as_ref(), Some(&vec![deployment]));
    let migration = view::Migration {
        leader_name: "cloud-provider-extraction-migration".to_owned(),
        controllers: None,
    };
    assert_eq!(view.migrations.as_ref(), Some(&vec![migration]));
    assert!(everything().all(|part| view.knows(part)));
}

#[tokio::test]
async fn a_control_plane_without_a_cluster_has_no_workers_but_unknown_machines() {
    let view = read(None).await;
    assert_eq!(view.machines.as_ref(), None);
    assert_eq!(view.cluster.as_ref(), Some(&None));
    assert_eq!(view.worker_machines.as_ref(), Some(&Vec::new()));
    assert_eq!(view.failures, Vec::<String>::new());
    assert_eq!(view.namespace_terminating.as_ref(), Some(&false));
}
