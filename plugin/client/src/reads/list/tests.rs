//! Tests with a few control planes and a server with a fixed response for each path.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use kcp_api::{Object as _, machine::Bootstrap};
use serde_json::{Value, json};

use crate::{
    Connection, Error, ReadLimit,
    reader::Reader,
    reads::{
        NO_NAME_ARGUMENT,
        list::{check_namespace_exists, list},
    },
    testing::failure,
};
use kcp_control_plane::snapshot::{Failure, Forbidden, Reading, Snapshot};

fn groups() -> Value {
    let groups = ["cluster.x-k8s.io", "controlplane.cluster.x-k8s.io"].map(|name| {
        let version = json!({"groupVersion": format!("{name}/v1beta2"), "version": "v1beta2"});
        json!({"name": name, "versions": [version], "preferredVersion": version})
    });
    json!({"groups": groups})
}

fn control_plane(namespace: &str, name: &str, cluster: &str) -> Value {
    json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
        "metadata": {"namespace": namespace, "name": name, "labels": {"cluster.x-k8s.io/cluster-name": cluster}},
        "spec": {"replicas": 3, "version": "v1.34.1", "kubeadmConfigSpec": {
            "users": [{"passwd": "sesame"}],
            "clusterConfiguration": {"certificateValidityPeriodDays": 3650, "dns": {"imageTag": "v1"}},
        }},
    })
}

fn machine(namespace: &str, name: &str, cluster: &str, owner: Option<&str>) -> Value {
    let owners: Vec<Value> = owner
        .map(|owner| json!({"kind": "KubeadmControlPlane", "name": owner, "controller": true}))
        .into_iter()
        .collect();
    json!({
        "metadata": {"namespace": namespace, "name": name, "ownerReferences": owners, "labels": {"role": "any"}},
        "spec": {"clusterName": cluster},
    })
}

fn listed_at(kind: &str) -> Value {
    match kind {
        "kubeadmcontrolplanes" => json!([
            control_plane("b", "kcp", "c1"),
            control_plane("a", "kcp2", "c2"),
            control_plane("a", "kcp1", "c1"),
        ]),
        "machines" => json!([
            machine("a", "unowned", "c1", None),
            machine("a", "owned", "c1", Some("kcp1")),
            machine("a", "of-another", "c1", Some("other")),
            machine("b", "elsewhere", "c1", Some("kcp")),
        ]),
        "clusters" => json!([
            {"metadata": {"namespace": "a", "name": "c1"}, "spec": {"paused": true}},
            {"metadata": {"namespace": "b", "name": "c1"}, "spec": {}},
        ]),
        "machinehealthchecks" => json!([
            {"metadata": {"namespace": "b", "name": "h"},
                "spec": {"clusterName": "c1", "selector": {"matchLabels": {"role": "any"}}}},
        ]),
        _ => panic!("{kind} is not asked for"),
    }
}

/// Reads the control planes of all namespaces from a server that answers each page of a list with `page`, which gets the
/// kind and the number of the page.
fn read_pages(
    page: impl Fn(&str, usize) -> (u16, Value) + Send + Sync + 'static,
) -> Result<Vec<Snapshot>, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let read: Mutex<BTreeMap<String, usize>> = Mutex::default();
        let connection = Connection::canned(move |_, path| {
            if path == "/apis" {
                return (200, groups());
            }
            if path.contains("/deployments") {
                return failure(404, "NotFound", "no");
            }
            let kind = path.rsplit_once('/').map_or("", |(_, kind)| kind);
            let mut read = read.lock().expect("no thread panics");
            let number = read.entry(kind.to_owned()).or_default();
            *number += 1;
            page(kind, *number)
        });
        let reader = Reader::discover(&connection).await?;
        list(&reader, None, None, ReadLimit::per_read(Duration::from_secs(10))).await
    })
}

/// One object per page, sorted by namespace.
fn page_of_one(kind: &str, number: usize) -> (u16, Value) {
    let mut objects = listed_at(kind);
    let objects = objects.as_array_mut().expect("a list");
    objects.sort_by_key(|object| object["metadata"]["namespace"].to_string());
    let next = if number < objects.len() { "next" } else { "" };
    let items = [objects[number - 1].take()];
    (200, json!({"metadata": {"continue": next}, "items": items}))
}

#[test]
fn pages_of_one_object_give_the_same_control_planes_as_one_page() {
    assert_eq!(
        read_pages(page_of_one).expect("they are read"),
        read(None, "nothing").expect("they are read")
    );
}

#[test]
fn a_page_that_cannot_be_read_makes_its_kind_unknown_from_its_namespace_on() {
    let listed = read_pages(|kind, number| match (kind, number) {
        // The Machine of namespace b.
        ("machines", 4) => failure(403, "Forbidden", "no"),
        _ => page_of_one(kind, number),
    });
    let unread: Vec<(String, usize)> = listed
        .expect("the rest is read")
        .iter()
        .map(|observed| {
            (
                observed.control_plane.name().to_owned(),
                observed.failed_reads.len(),
            )
        })
        .collect();
    assert_eq!(
        unread,
        [
            ("kcp1".to_owned(), 1),
            ("kcp2".to_owned(), 1),
            ("kcp".to_owned(), 1)
        ],
        "more Machines of namespace a could be on that page"
    );
    let error = read_pages(|kind, number| match (kind, number) {
        ("kubeadmcontrolplanes", 3) => failure(403, "Forbidden", "no"),
        _ => page_of_one(kind, number),
    });
    assert!(matches!(error, Err(Error::Forbidden { .. })), "{error:?}");
}

/// For each control plane: its name, and the messages of the objects that could not be read.
fn unread_of(listed: &[Snapshot]) -> Vec<(&str, Vec<&str>)> {
    let unread = listed.iter().map(|observed| {
        let readings = [observed.cluster.failure(), observed.health_checks.failure()];
        let failures = readings.into_iter().flatten().chain(&observed.failed_reads);
        let messages = failures.map(|failure| failure.message.as_str());
        (observed.control_plane.name(), messages.collect())
    });
    unread.collect()
}

/// Lists objects of which one, described by the kind and the index in the list, has been changed.
fn read_with(
    kind: &'static str,
    index: usize,
    change: impl Fn(&mut Value) + Send + Sync + 'static,
) -> Vec<Snapshot> {
    let listed = read_pages(move |plural, _| {
        let mut objects = listed_at(plural);
        if plural == kind {
            change(&mut objects[index]);
        }
        (200, json!({"metadata": {}, "items": objects}))
    });
    listed.expect("they are read")
}

#[test]
fn an_object_that_cannot_be_decoded_makes_only_its_own_cluster_unknown() {
    let message = "cannot list machines in all namespaces: the response cannot be decoded: a/owned: spec.version: found \
                   number 1.35, expected a string";
    let wrong_version = |machine: &mut Value| machine["spec"]["version"] = json!(1.35);
    let listed = read_with("machines", 1, wrong_version);
    let [first, second, third] = listed.as_slice() else {
        panic!("three");
    };
    assert_eq!(
        first
            .failed_reads
            .iter()
            .map(|failure| &*failure.object)
            .collect::<Vec<_>>(),
        ["Machine"]
    );
    assert_eq!(unread_of(std::slice::from_ref(first)), [("kcp1", vec![message])]);
    assert_eq!(names(std::slice::from_ref(first)), [("kcp1", vec![])]);
    // Its Cluster does not exist.
    assert_eq!(second.failed_reads, []);
    assert_eq!(unread_of(std::slice::from_ref(third)), [("kcp", vec![])]);
    assert_eq!(names(std::slice::from_ref(third)), [("kcp", vec!["elsewhere"])]);

    let listed = read_with("clusters", 0, |cluster| {
        cluster["spec"] = json!({"paused": "yes"});
    });
    let failed: Vec<bool> = listed
        .iter()
        .map(|observed| observed.cluster.failure().is_some())
        .collect();
    assert_eq!(failed, [true, true, false], "the second one does not exist");

    let listed = read_with("machinehealthchecks", 0, |check| {
        check["spec"]["selector"] = json!([]);
    });
    let failed: Vec<bool> = listed
        .iter()
        .map(|observed| observed.health_checks.failure().is_some())
        .collect();
    assert_eq!(failed, [false, false, true]);
}

#[test]
fn an_object_that_cannot_be_decoded_and_names_no_cluster_makes_its_namespace_unknown() {
    let changes: [fn(&mut Value); 3] = [
        |machine| machine["spec"]["clusterName"] = json!(1),
        |machine| machine["spec"] = json!("c1"),
        |machine| {
            machine["spec"]["version"] = json!(1.35);
            machine["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] = json!("c2");
        },
    ];
    for change in changes {
        let listed = read_with("machines", 1, change);
        let unread: Vec<usize> = listed
            .iter()
            .map(|observed| observed.failed_reads.len())
            .collect();
        assert_eq!(unread, [1, 1, 0]);
    }
}

#[test]
fn a_control_plane_that_cannot_be_decoded_is_listed_as_unread() {
    let listed = read_with("kubeadmcontrolplanes", 2, |control_plane| {
        control_plane["spec"]["replicas"] = json!("3");
    });
    let failures: Vec<(&str, Vec<&Failure>)> = listed
        .iter()
        .map(|observed| {
            (
                observed.control_plane.name(),
                observed.failed_reads.iter().collect(),
            )
        })
        .collect();
    let failure = Failure {
        object: "KubeadmControlPlane/kcp1".to_owned(),
        message:
            "cannot list kubeadmcontrolplanes in all namespaces: the response cannot be decoded: a/kcp1: \
                  spec.replicas: found string \"3\", expected an integer"
                .to_owned(),
        hint: None,
        ..Failure::default()
    };
    assert_eq!(
        failures,
        [("kcp1", vec![&failure]), ("kcp2", vec![]), ("kcp", vec![])]
    );
    assert_eq!(names(&listed)[0], ("kcp1", vec!["owned", "unowned"]));
    let without_namespace = read_pages(|plural, _| {
        let mut objects = listed_at(plural);
        if plural == "kubeadmcontrolplanes" {
            objects[0] = json!({"metadata": {"name": "kcp"}, "spec": 1});
        }
        (200, json!({"items": objects}))
    });
    let error = without_namespace.expect_err("it may belong to any namespace");
    assert!(matches!(error, Error::Malformed { .. }), "{error:?}");
}

#[test]
fn pages_that_are_not_sorted_by_namespace_are_an_error() {
    let listed = read_pages(|kind, number| {
        let reversed = match (kind, number) {
            ("machines", 1) => 4,
            ("machines", 4) => 1,
            _ => number,
        };
        let (code, mut page) = page_of_one(kind, reversed);
        page["metadata"]["continue"] = page_of_one(kind, number).1["metadata"]["continue"].take();
        (code, page)
    });
    assert_eq!(
        listed.expect_err("Machines may be missing").to_string(),
        "cannot list machines in all namespaces: the API server did not sort the pages of the list by namespace"
    );
}

/// Reads from a server that forbids one kind.
fn read(namespace: Option<&str>, forbidden: &'static str) -> Result<Vec<Snapshot>, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let namespace_path = namespace.map(|namespace| format!("/namespaces/{namespace}/"));
        let namespace_path = Arc::new(namespace_path);
        let connection = Connection::canned(move |_, path| {
            if path == "/apis" {
                return (200, groups());
            }
            if path.contains("/deployments") {
                return failure(404, "NotFound", "no");
            }
            assert!(
                namespace_path.iter().all(|part| path.contains(part.as_str())),
                "{path}"
            );
            match path.rsplit_once('/').map_or("", |(_, kind)| kind) {
                kind if kind == forbidden => failure(403, "Forbidden", "no"),
                kind => (200, json!({"items": listed_at(kind)})),
            }
        });
        let reader = Reader::discover(&connection).await?;
        list(
            &reader,
            namespace,
            None,
            ReadLimit::per_read(Duration::from_secs(10)),
        )
        .await
    })
}

fn names(listed: &[Snapshot]) -> Vec<(&str, Vec<&str>)> {
    let names = listed.iter().map(|observed| {
        let machines = observed.machines.iter();
        let machines = machines.map(kcp_api::Object::name);
        (observed.control_plane.name(), machines.collect())
    });
    names.collect()
}

#[test]
fn each_control_plane_gets_its_own() {
    let listed = read(None, "nothing").expect("they are read");
    assert_eq!(
        names(&listed),
        [
            ("kcp1", vec!["owned", "unowned"]),
            ("kcp2", vec![]),
            ("kcp", vec!["elsewhere"])
        ]
    );
    let [first, second, third] = listed.as_slice() else {
        panic!("three");
    };
    assert!(first.is_cluster_paused() && !third.is_cluster_paused());
    let unowned = first.unowned_machines().map(kcp_api::Object::name);
    assert_eq!(unowned.collect::<Vec<_>>(), ["unowned"]);
    let others = first.machines_of_other_owners.iter().map(kcp_api::Object::name);
    assert_eq!(others.collect::<Vec<_>>(), ["of-another"]);
    assert_eq!(first.health_checks, Reading::Read(Vec::new()));
    let covered: Vec<_> = third.health_checks.value().expect("read")[0]
        .targets
        .iter()
        .collect();
    assert_eq!(covered, ["elsewhere"]);
    assert_eq!(
        second.cluster,
        Reading::Failed(Failure {
            object: "Cluster/c2".to_owned(),
            message: "cannot get clusters \"c2\" in namespace \"a\": not found".to_owned(),
            hint: None,
            ..Failure::default()
        })
    );
    assert!(second.is_infrastructure_ready() && second.has_endpoint());
    for management in &listed {
        let flag = NO_NAME_ARGUMENT;
        assert_eq!(management.secrets, Reading::Excluded { flag });
        assert_eq!(management.failed_reads, []);
        // Only the fields that decide about new Machines are kept.
        assert_eq!(
            management.control_plane.spec.kubeadm_config_spec.fields,
            json!({"clusterConfiguration": {"certificateValidityPeriodDays": 3650}})
        );
        let machines = &management.machines;
        assert!(
            machines
                .iter()
                .all(|machine| machine.bootstrap == Bootstrap::Missing)
        );
    }
}

#[test]
fn one_namespace_is_asked_for_alone() {
    assert!(read(Some("a"), "nothing").is_ok());
}

#[test]
fn each_list_fails_alone() {
    let refused = |kind: &str, plural: &str| Failure {
        object: kind.to_owned(),
        message: format!("cannot list {plural} in all namespaces: forbidden"),
        hint: Some(format!(
            "check with: kubectl auth can-i list {plural}.cluster.x-k8s.io -A"
        )),
        forbidden: Some(Forbidden {
            verb: "list".to_owned(),
            resource: format!("{plural}.cluster.x-k8s.io"),
            namespace: None,
            is_from_workload_cluster: false,
        }),
        ..Failure::default()
    };
    for management in read(None, "machines").expect("the rest is read") {
        assert_eq!(management.failed_reads, [refused("Machine", "machines")]);
    }
    for management in read(None, "clusters").expect("the rest is read") {
        assert_eq!(
            management.cluster,
            Reading::Failed(refused("Cluster", "clusters"))
        );
        assert!(management.is_infrastructure_ready());
    }
    for management in read(None, "machinehealthchecks").expect("the rest is read") {
        let failure = refused("MachineHealthCheck", "machinehealthchecks");
        assert_eq!(management.health_checks, Reading::Failed(failure));
    }
    let error = read(None, "kubeadmcontrolplanes").expect_err("nothing is left");
    assert!(matches!(error, Error::Forbidden { .. }), "{error:?}");
}

#[test]
fn a_namespace_that_does_not_exist_is_an_error_unless_the_user_may_not_read_it() {
    let exists = |code: u16, reason: &'static str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let connection = Connection::canned(move |_, path| {
                assert_eq!(path, "/api/v1/namespaces/nosuch");
                let (code, mut status) = failure(code, reason, "no");
                status["details"] = json!({"name": "nosuch", "kind": "namespaces"});
                (code, status)
            });
            let limit = ReadLimit::per_read(Duration::from_secs(10));
            check_namespace_exists(&connection, "nosuch", limit).await
        })
    };
    let missing = exists(404, "NotFound").expect_err("it does not exist");
    assert_eq!(missing.to_string(), "cannot get namespaces \"nosuch\": not found");
    assert!(exists(403, "Forbidden").is_ok());
}
