//! Tests with one control plane and a server with a fixed response for each path.

use std::time::Duration;

use http::Method;
use kcp_api::Object as _;

use crate::reads::management::{read_control_plane_name, read_from_management};
use crate::{
    Connection, Error, ReadLimit,
    reader::Reader,
    testing::{
        example::{answer, groups},
        failure,
    },
};
use kcp_control_plane::{
    certificates::Purpose,
    snapshot::{
        Deletion, Failure, Forbidden, HealthCheck, Reading, Snapshot, management::RemediationTrigger,
    },
};

const LIMIT: ReadLimit = ReadLimit::per_read(Duration::from_secs(10));

/// Runs `read` on a server that responds with 403 to each path that contains this text.
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
                path => answer(path),
            }
        });
        read(&Reader::discover(&connection).await.expect("groups")).await
    })
}

fn of(forbidden: &'static str, name: &str) -> Result<Snapshot, Error> {
    served(forbidden, async |reader| {
        read_from_management(reader, "d", name, LIMIT).await
    })
}

fn names<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

fn machines(management: &Snapshot) -> Vec<&str> {
    let machines = management.machines.iter();
    machines.map(kcp_api::Object::name).collect()
}

#[test]
fn everything_there_is_to_know() {
    let management = of("/nothing", "c1-cp").expect("it is read");
    assert_eq!(machines(&management), ["m1", "m2", "m3"]);
    let Reading::Read(cluster) = &management.cluster else {
        panic!("{:?}", management.cluster);
    };
    assert_eq!((cluster.name(), cluster.control_plane()), ("c1", Some("c1-cp")));
    let endpoint = cluster
        .spec
        .control_plane_endpoint
        .as_ref()
        .map(ToString::to_string);
    assert_eq!(endpoint.as_deref(), Some("edge.example.com:6443"));
    let unowned = management.unowned_machines().map(kcp_api::Object::name);
    assert_eq!(unowned.collect::<Vec<_>>(), ["m3"]);
    assert_eq!(
        management.deletions,
        [Deletion {
            machine: "m2".to_owned(),
            started_at: "2026-08-21T10:00:00Z".parse().expect("a time"),
            waits_for: names(["finalizer machine.cluster.x-k8s.io"]),
        }]
    );
    assert_eq!(
        management.health_checks,
        Reading::Read(vec![HealthCheck {
            name: "h1".to_owned(),
            trigger: Some(RemediationTrigger::AtMostPercent(100)),
            targets: names(["m1", "m2", "m3"]).into_iter().collect(),
            node_startup_timeout: Some(Duration::from_secs(600)),
            ..HealthCheck::default()
        }])
    );
    let secrets = names(["c1-etcd", "c1-kubeconfig"]).into_iter().collect();
    assert_eq!(management.secrets, Reading::Read(secrets));
    assert_eq!(management.unowned_secrets, ["c1-etcd".to_owned()].into());
    assert_eq!(management.has_kubeconfig, Some(true));
    assert_eq!(management.failed_reads, []);
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
            is_from_workload_cluster: false,
        }),
        ..Failure::default()
    }
}

#[test]
fn each_part_fails_alone() {
    let whole = of("/nothing", "c1-cp").expect("it is read");
    let assert_read = |path: &'static str, change: &dyn Fn(&mut Snapshot)| {
        let mut expected = whole.clone();
        change(&mut expected);
        assert_eq!(of(path, "c1-cp").expect("the rest is read"), expected, "{path}");
    };
    assert_read("/clusters/", &|expected| {
        let resource = "clusters.cluster.x-k8s.io";
        expected.cluster = Reading::Failed(refused("Cluster/c1", "get", resource, "clusters \"c1\""));
    });
    assert_read("/machinehealthchecks", &|expected| {
        let resource = "machinehealthchecks.cluster.x-k8s.io";
        let failure = refused("MachineHealthCheck", "list", resource, "machinehealthchecks");
        expected.health_checks = Reading::Failed(failure);
    });
    let secret = |name: &str| {
        refused(
            &format!("Secret/{name}"),
            "get",
            "secrets",
            &format!("secrets \"{name}\""),
        )
    };
    assert_read("/secrets/c1-sa", &|expected| {
        expected.failed_reads = vec![secret("c1-sa")];
    });
    assert_read("/secrets/c1-kubeconfig", &|expected| {
        expected.failed_reads = vec![secret("c1-kubeconfig")];
        expected.secrets = Reading::Read(names(["c1-etcd"]).into_iter().collect());
        if let Reading::Read(certificates) = &mut expected.certificates {
            certificates.retain(|certificate| certificate.purpose != Purpose::AdminKubeconfig);
        }
        expected.has_kubeconfig = None;
    });
    assert_read("/secrets/", &|expected| {
        expected.secrets = Reading::Failed(secret("c1-kubeconfig"));
        expected.certificates = Reading::Failed(secret("c1-kubeconfig"));
        expected.unowned_secrets.clear();
        expected.has_kubeconfig = None;
        expected.has_etcd_ca = None;
    });
    assert_read("/kubeadmconfigs", &|expected| {
        let resource = "kubeadmconfigs.bootstrap.cluster.x-k8s.io";
        expected.failed_reads = vec![refused("KubeadmConfig", "list", resource, "kubeadmconfigs")];
    });
    assert_read("/dockermachines", &|expected| {
        let resource = "dockermachines.infrastructure.cluster.x-k8s.io";
        expected.failed_reads = vec![refused("DockerMachine", "list", resource, "dockermachines")];
    });
    assert_read("/machines", &|expected| {
        expected.failed_reads = vec![refused(
            "Machine",
            "list",
            "machines.cluster.x-k8s.io",
            "machines",
        )];
        expected.machines.clear();
        expected.machines_of_other_owners.clear();
        expected.deletions.clear();
        expected.health_checks = Reading::Read(vec![HealthCheck {
            name: "h1".to_owned(),
            trigger: Some(RemediationTrigger::AtMostPercent(100)),
            node_startup_timeout: Some(Duration::from_secs(600)),
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
            read_control_plane_name(reader, "d", name, LIMIT).await
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
            "cluster \"bare\" in namespace \"d\" does not refer to a control plane",
        ),
        (
            "none",
            "cannot get clusters \"none\" in namespace \"d\": not found",
        ),
    ] {
        assert_eq!(of_cluster(cluster), Err(expected.to_owned()));
    }
}
