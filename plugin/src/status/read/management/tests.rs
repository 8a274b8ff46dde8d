//! One control plane, and a server that answers each path as told.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{control_plane_of, management};
use crate::{
    cluster::{Connection, Error, ReadLimit, canned::failure},
    control_plane::Reader,
    status::observed::{
        Failure, Management, Reading,
        management::{ClusterLink, Deletion, HealthCheck},
        reading::Forbidden,
    },
};

const LIMIT: ReadLimit = ReadLimit::each(Duration::from_secs(10));

fn groups() -> Value {
    let groups = [
        "cluster",
        "controlplane.cluster",
        "bootstrap.cluster",
        "infrastructure.cluster",
    ]
    .map(|name| {
        let name = format!("{name}.x-k8s.io");
        let version = json!({"groupVersion": format!("{name}/v1beta2"), "version": "v1beta2"});
        json!({"name": name, "versions": [version], "preferredVersion": version})
    });
    json!({"groups": groups})
}

fn machine(name: &str, change: Value) -> Value {
    let mut machine = json!({
        "metadata": {"name": name, "namespace": "d",
            "labels": {"cluster.x-k8s.io/cluster-name": "c1", "cluster.x-k8s.io/control-plane": ""},
            "ownerReferences": [{"kind": "KubeadmControlPlane", "name": "c1-cp", "controller": true}]},
        "spec": {"clusterName": "c1",
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerMachine", "name": name}},
    });
    if let Value::Object(change) = change {
        machine["metadata"]
            .as_object_mut()
            .expect("an object")
            .extend(change);
    }
    machine
}

/// What the server has at a path, none where nothing is.
fn object(path: &str) -> Option<Value> {
    let kind = path.rsplit_once("/namespaces/d/").map_or("", |(_, kind)| kind);
    Some(match kind {
        "kubeadmcontrolplanes/c1-cp" => json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
            "metadata": {"name": "c1-cp", "namespace": "d", "labels": {"cluster.x-k8s.io/cluster-name": "c1"}},
            "spec": {"replicas": 3, "version": "v1.34.1"},
        }),
        "kubeadmcontrolplanes/alone" => json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
            "metadata": {"name": "alone", "namespace": "d"}, "spec": {},
        }),
        "clusters/c1" => json!({"metadata": {"name": "c1"}, "spec": {
            "controlPlaneRef": {"kind": "KubeadmControlPlane", "name": "c1-cp"},
            "controlPlaneEndpoint": {"host": "edge.example.com", "port": 6443}}}),
        "clusters/other" => json!({"metadata": {"name": "other"}, "spec": {
            "controlPlaneRef": {"kind": "RKE2ControlPlane", "name": "other-cp"}}}),
        "clusters/bare" => json!({"metadata": {"name": "bare"}}),
        "machines" => json!({"items": [
            machine("m3", json!({"ownerReferences": []})),
            machine("m2", json!({"deletionTimestamp": "2026-08-21T10:00:00Z",
                "finalizers": ["machine.cluster.x-k8s.io"]})),
            machine("m1", json!({})),
            machine("m0", json!({"ownerReferences": [
                {"kind": "KubeadmControlPlane", "name": "other", "controller": true}]})),
        ]}),
        "machinehealthchecks" => {
            let check = |name: &str, cluster: &str| {
                let labels = json!({"cluster.x-k8s.io/control-plane": ""});
                json!({"metadata": {"name": name},
                    "spec": {"clusterName": cluster, "selector": {"matchLabels": labels}}})
            };
            json!({"items": [check("h1", "c1"), check("h2", "c2")]})
        }
        "kubeadmconfigs" | "dockermachines" => json!({"items": []}),
        "secrets/c1-kubeconfig" | "secrets/c1-etcd" => {
            json!({"kind": "PartialObjectMetadata", "metadata": {"name": "any"}})
        }
        _ => return None,
    })
}

/// The API's words for an object that is not there.
fn not_found() -> (u16, Value) {
    let (code, mut status) = failure(404, "NotFound", "not found");
    status["details"] = json!({"name": "any"});
    (code, status)
}

/// Runs on a server that forbids each path with such a part.
fn served<T>(forbidden: &'static str, read: impl AsyncFnOnce(&Reader<'_>) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let connection = Connection::canned(move |method, path| {
            assert_eq!(method, Method::GET);
            match path {
                "/apis" => (200, groups()),
                path if path.contains(forbidden) => {
                    failure(403, "Forbidden", "x is forbidden: User \"bob\" cannot")
                }
                path => object(path).map_or_else(not_found, |object| (200, object)),
            }
        });
        read(&Reader::discover(&connection).await.expect("groups")).await
    })
}

fn of(forbidden: &'static str, name: &str) -> Result<Management, Error> {
    served(forbidden, async |reader| {
        management(reader, "d", name, LIMIT).await
    })
}

fn names<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

fn machines(management: &Management) -> Vec<&str> {
    let machines = management.control_plane.machines.iter();
    machines.map(|machine| machine.machine.name.as_str()).collect()
}

#[test]
fn everything_there_is_to_know() {
    let management = of("/nothing", "c1-cp").expect("it is read");
    assert_eq!(machines(&management), ["m1", "m2", "m3"]);
    assert_eq!(
        management.cluster,
        Reading::Read(ClusterLink {
            name: "c1".to_owned(),
            control_plane_kind: Some("KubeadmControlPlane".to_owned()),
            control_plane_name: Some("c1-cp".to_owned()),
            endpoint: Some("edge.example.com:6443".to_owned()),
        })
    );
    assert_eq!(management.unowned, ["m3"]);
    assert_eq!(
        management.deletions,
        [Deletion {
            machine: "m2".to_owned(),
            since: "2026-08-21T10:00:00Z".parse().expect("a time"),
            waits_for: names(["finalizer machine.cluster.x-k8s.io"]),
        }]
    );
    assert_eq!(
        management.health_checks,
        Reading::Read(vec![HealthCheck {
            name: "h1".to_owned(),
            targets: names(["m1", "m2", "m3"]).into_iter().collect(),
            ..HealthCheck::default()
        }])
    );
    let secrets = names(["c1-etcd", "c1-kubeconfig"]).into_iter().collect();
    assert_eq!(management.secrets, Reading::Read(secrets));
    assert_eq!(management.control_plane.cluster.has_kubeconfig, Some(true));
    assert_eq!(management.unread, []);
}

fn refused(object: &str, verb: &str, resource: &str, cannot: &str) -> Failure {
    Failure {
        object: object.to_owned(),
        message: format!("cannot {verb} {cannot} in namespace \"d\": forbidden for user \"bob\""),
        hint: Some(format!("check with: kubectl auth can-i {verb} {resource} -n d")),
        forbidden: Some(Forbidden {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: Some("d".to_owned()),
            in_workload_cluster: false,
        }),
    }
}

#[test]
fn each_part_fails_alone() {
    let whole = of("/nothing", "c1-cp").expect("it is read");
    let with = |path: &'static str, change: &dyn Fn(&mut Management)| {
        let mut expected = whole.clone();
        change(&mut expected);
        assert_eq!(of(path, "c1-cp").expect("the rest is read"), expected, "{path}");
    };
    with("/clusters/", &|expected| {
        let resource = "clusters.cluster.x-k8s.io";
        expected.cluster = Reading::Failed(refused("Cluster/c1", "get", resource, "clusters \"c1\""));
        let cluster = &mut expected.control_plane.cluster;
        (cluster.infrastructure_ready, cluster.has_endpoint) = (true, true);
    });
    with("/machinehealthchecks", &|expected| {
        let resource = "machinehealthchecks.cluster.x-k8s.io";
        let failure = refused("MachineHealthCheck", "list", resource, "machinehealthchecks");
        expected.health_checks = Reading::Failed(failure);
    });
    with("/secrets/c1-sa", &|expected| {
        expected.secrets = Reading::Failed(refused("Secret/c1-sa", "get", "secrets", "secrets \"c1-sa\""));
        expected.control_plane.cluster.has_kubeconfig = None;
    });
    with("/kubeadmconfigs", &|expected| {
        let resource = "kubeadmconfigs.bootstrap.cluster.x-k8s.io";
        expected.unread = vec![refused("KubeadmConfig", "list", resource, "kubeadmconfigs")];
    });
    with("/dockermachines", &|expected| {
        let resource = "dockermachines.infrastructure.cluster.x-k8s.io";
        expected.unread = vec![refused("DockerMachine", "list", resource, "dockermachines")];
    });
    with("/machines", &|expected| {
        expected.unread = vec![refused(
            "Machine",
            "list",
            "machines.cluster.x-k8s.io",
            "machines",
        )];
        expected.control_plane.machines.clear();
        expected.unowned.clear();
        expected.deletions.clear();
        expected.health_checks = Reading::Read(vec![HealthCheck {
            name: "h1".to_owned(),
            ..HealthCheck::default()
        }]);
    });
}

#[test]
fn without_the_control_plane_there_is_nothing_to_tell() {
    let forbidden = of("/kubeadmcontrolplanes/", "c1-cp").expect_err("forbidden");
    assert!(matches!(forbidden, Error::Forbidden { .. }), "{forbidden:?}");
    let missing = of("/nothing", "none").expect_err("not there");
    assert_eq!(
        missing.to_string(),
        "cannot get kubeadmcontrolplanes \"none\" in namespace \"d\": not found"
    );
}

#[test]
fn one_without_a_cluster_has_nothing_around_it() {
    let management = of("/nothing", "alone").expect("it is read");
    assert_eq!(management.cluster, Reading::NotYet);
    assert_eq!(management.health_checks, Reading::NotYet);
    assert_eq!(management.secrets, Reading::NotYet);
}

#[test]
fn a_cluster_leads_to_its_control_plane() {
    let of_cluster = |name: &str| {
        let found = served("/nothing", async |reader| {
            control_plane_of(reader, "d", name, LIMIT).await
        });
        found.map_err(|error| error.to_string())
    };
    assert_eq!(of_cluster("c1"), Ok("c1-cp".to_owned()));
    for (cluster, expected) in [
        (
            "other",
            "cluster \"other\" in namespace \"d\" has a RKE2ControlPlane, not a KubeadmControlPlane",
        ),
        (
            "bare",
            "cluster \"bare\" in namespace \"d\" refers to no control plane",
        ),
        (
            "none",
            "cannot get clusters \"none\" in namespace \"d\": not found",
        ),
    ] {
        assert_eq!(of_cluster(cluster), Err(expected.to_owned()));
    }
}
