//! Leases and releases by users with different permissions.

use std::time::Duration;

use http::Method;
use kcp_client::{Connection, testing::failure};
use kcp_pool::{
    acquire::{LeaseRequest, Selection, acquire, wait::WaitLimit},
    hive::HiveMode,
    objects::Holder,
    release::{
        self,
        decision::{ReleaseRequest, ReleaseTarget},
    },
    store::Store,
    testing::objects::pool_object,
};
use serde_json::{Value, json};

use crate::commands::pool::{
    InstallConfigSource, lease::document::PoolLease, parse_wait, release::PoolRelease,
};
use crate::document::Versioned;

const PATH: &str = "/apis/hive.openshift.io/v1";

/// A pool `p` with one entry `a`, and the response to a list of all ClusterDeployments.
fn connection(entry_status: &Value, deployments: &(u16, Value)) -> Connection {
    let entry = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "status": entry_status});
    let deployments = deployments.clone();
    Connection::canned(move |method, path| {
        if path.starts_with("/apis/authentication.k8s.io/") {
            return (201, json!({"status": {"userInfo": {"username": "ci"}}}));
        }
        if path.starts_with("/apis/apps/") {
            return not_found();
        }
        if path.starts_with("/apis/coordination.k8s.io/") {
            return (200, json!({"items": []}));
        }
        let path = path.strip_prefix(PATH).unwrap();
        match (method, path) {
            (&Method::GET, "/namespaces/d/clusterpools/p") => {
                (200, pool_object("p", &json!({"inventory": [{"name": "a"}]})))
            }
            (&Method::GET, "/clusterdeployments" | "/namespaces/us/clusterdeployments/us") => {
                deployments.clone()
            }
            (&Method::GET, "/hiveconfigs") => (200, json!({"items": []})),
            (&Method::GET, "/namespaces/d/clusterdeploymentcustomizations") => {
                (200, json!({"items": [entry]}))
            }
            (&Method::GET, "/namespaces/d/clusterdeploymentcustomizations/a") => (200, entry.clone()),
            (&Method::PATCH, "/namespaces/d/clusterpools/p/status") => (200, json!({})),
            (&Method::PATCH, path) if path.ends_with("/clusterdeployments/us") => (200, json!({})),
            (&Method::PATCH, "/namespaces/d/clusterdeploymentcustomizations/a/status") => {
                (200, entry.clone())
            }
            other => panic!("{other:?}"),
        }
    })
}

fn not_found() -> (u16, Value) {
    let (code, mut status) = failure(404, "NotFound", "not found");
    status["details"] = json!({});
    (code, status)
}

fn forbidden() -> (u16, Value) {
    let message = "clusterdeployments.hive.openshift.io is forbidden: User \"ci\" cannot list resource \
                   \"clusterdeployments\" in API group \"hive.openshift.io\" at the cluster scope";
    failure(403, "Forbidden", message)
}

/// ClusterDeployments of pool `p` that use `a`.
fn made_with_a(metadata: &Value) -> (u16, Value) {
    let reference = json!({
        "namespace": "d", "poolName": "p", "clusterDeploymentCustomization": {"name": "a"},
    });
    let deployment = json!({"metadata": metadata, "spec": {"clusterPoolRef": reference}});
    (200, json!({"items": [deployment]}))
}

fn run<T>(work: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(work())
}

fn lease(deployments: &(u16, Value)) -> Value {
    run(async || {
        let connection = connection(&json!({}), deployments);
        let store = Store::new(&connection, "kubectl-kcp");
        let request = LeaseRequest {
            holder: Holder {
                pool: "p",
                cluster_deployment: "us",
            },
            count: 1,
            ttl: None,
            cluster: None,
            install_config: None,
            must_be_new: false,
            selection: Selection::default(),
            hive: HiveMode::Auto,
            overtaken: &[],
        };
        let answer = acquire(&store, request).await.unwrap();
        serde_json::to_value(Versioned(PoolLease::new(&answer))).unwrap()
    })
}

#[test]
fn a_lease_says_that_clusters_could_not_be_listed() {
    let lease = lease(&forbidden());
    assert_eq!(lease["customization"]["name"], "a");
    assert_eq!(
        lease["warnings"],
        json!([
            "could not check whether a cluster already uses a: cannot list clusterdeployments in all namespaces: \
             forbidden for user \"ci\"; check with: kubectl auth can-i list clusterdeployments.hive.openshift.io -A"
        ])
    );
}

#[test]
fn a_lease_depends_on_the_listed_clusters() {
    let none = (200, json!({"items": []}));
    let not_served = (404, Value::String("404 page not found".to_owned()));
    for deployments in [none, not_served] {
        let lease = lease(&deployments);
        assert_eq!(lease["customization"]["name"], "a", "{deployments:?}");
        assert_eq!(lease.get("warnings"), None, "{deployments:?}");
    }
    let used = lease(&made_with_a(&json!({"name": "them", "namespace": "them"})));
    assert_eq!(used["reason"], "exhausted");
    assert_eq!(used["entries"][0]["state"], "referenced");
}

/// The release of `a`, which `us` holds, with this response to a list of ClusterDeployments.
fn release(deployments: &(u16, Value)) -> Value {
    release_by(deployments, false)
}

fn release_by(deployments: &(u16, Value), force: bool) -> Value {
    run(async || {
        let connection = connection(
            &json!({"clusterDeploymentRef": {"name": "us"}, "clusterPoolRef": {"name": "p"}}),
            deployments,
        );
        let store = Store::new(&connection, "kubectl-kcp");
        let target = ReleaseTarget::Pool("p".to_owned());
        let request = ReleaseRequest {
            target: &target,
            cluster_deployment: "us",
            id: None,
            force,
            delete_cluster: false,
            hive: HiveMode::Auto,
        };
        let release = release::release(&store, &request).await.unwrap();
        serde_json::to_value(Versioned(PoolRelease::new(&release))).unwrap()
    })
}

#[test]
fn a_customization_that_a_cluster_uses_is_not_released() {
    let finalizers = json!(["hive.openshift.io/deprovision"]);
    let deleted = "2026-11-21T05:00:00Z";
    let alive = json!({"name": "us", "namespace": "n", "finalizers": finalizers});
    let mut deprovisioning = alive.clone();
    deprovisioning["deletionTimestamp"] = json!(deleted);
    let mut ours = deprovisioning.clone();
    ours["finalizers"] = json!(["kubectl-kcp.dev/pool-lease", "example.com/dns"]);
    for (metadata, message, left) in [
        (
            alive,
            "ClusterDeployment us still uses a, so a was not released; delete the ClusterDeployment, and \
             then run the command again: kubectl delete clusterdeployments.hive.openshift.io us -n n",
            "ClusterDeployment us in namespace n still uses a; others can lease a once the \
             ClusterDeployment no longer exists",
        ),
        (
            deprovisioning,
            "ClusterDeployment us uses a and is being deleted, with finalizers hive.openshift.io/deprovision; \
             wait until the ClusterDeployment is deleted: kubectl wait --for=delete --timeout=1h clusterdeployments.hive.openshift.io/us -n n",
            "ClusterDeployment us in namespace n is being deleted, but still uses a; others can lease a \
             once the ClusterDeployment no longer exists",
        ),
        (
            json!({"name": "them", "namespace": "t"}),
            "ClusterDeployment them still uses a, so a was not released; delete the ClusterDeployment, and \
             then run the command again: kubectl delete clusterdeployments.hive.openshift.io them -n t",
            "ClusterDeployment them in namespace t still uses a; others can lease a once the \
             ClusterDeployment no longer exists",
        ),
        (
            ours,
            "ClusterDeployment us uses a and is being deleted, with finalizers example.com/dns; run the \
             command again once other controllers have removed the finalizers",
            "ClusterDeployment us in namespace n is being deleted, but still uses a; others can lease a \
             once the ClusterDeployment no longer exists",
        ),
    ] {
        let kept = release(&made_with_a(&metadata));
        assert_eq!(kept["customizations"], json!([]));
        assert_eq!(kept["reason"], "blocked");
        assert_eq!(kept["message"], message);
        let forced = release_by(&made_with_a(&metadata), true);
        assert_eq!(forced["customizations"], json!([{"name": "a"}]));
        assert_eq!(forced["warnings"], json!([left]));
    }
}

#[test]
fn a_customization_that_no_cluster_uses_is_released() {
    let ended_cluster = json!({
        "name": "us", "namespace": "us", "finalizers": ["kubectl-kcp.dev/pool-lease"],
        "deletionTimestamp": "2026-11-21T05:00:00Z",
    });
    let none = (200, json!({"items": []}));
    for deployments in [none, made_with_a(&ended_cluster)] {
        let release = release(&deployments);
        assert_eq!(
            release["customizations"],
            json!([{"name": "a"}]),
            "{deployments:?}"
        );
        assert_eq!(release.get("reason"), None, "{deployments:?}");
        assert_eq!(release.get("warnings"), None, "{deployments:?}");
    }
}

/// An account that is not allowed to list clusters once freed an entry in use, and leased it again.
#[test]
fn only_force_releases_a_customization_that_a_cluster_may_use() {
    let refused = release(&forbidden());
    assert_eq!(
        (&refused["customizations"], &refused["reason"]),
        (&json!([]), &json!("blocked"))
    );
    assert_eq!(
        refused["message"],
        "a cluster may still use a, and you are not allowed to list clusterdeployments.hive.openshift.io to \
         check this; if you use --force, the next holder may install over a cluster that is in use"
    );
    let forced = release_by(&forbidden(), true);
    assert_eq!(forced["customizations"], json!([{"name": "a"}]));
    assert_eq!(
        forced["warnings"],
        json!([
            "could not check whether the cluster still uses a: cannot list clusterdeployments in all namespaces: \
             forbidden for user \"ci\"; check with: kubectl auth can-i list clusterdeployments.hive.openshift.io -A"
        ])
    );
}

#[test]
fn an_install_config_comes_from_a_file_or_a_secret() {
    for (text, expected) in [
        ("secret/a", InstallConfigSource::Secret("a".to_owned())),
        ("a.yaml", InstallConfigSource::File("a.yaml".into())),
        ("-", InstallConfigSource::File("-".into())),
        ("./secret/a", InstallConfigSource::File("./secret/a".into())),
    ] {
        assert_eq!(text.parse(), Ok(expected));
    }
}

#[test]
fn the_limit_of_a_wait_is_optional() {
    assert_eq!(parse_wait(""), Ok(WaitLimit::Unlimited));
    assert_eq!(parse_wait("2m"), Ok(WaitLimit::AtMost(Duration::from_secs(120))));
    assert!(parse_wait("long").is_err());
}
