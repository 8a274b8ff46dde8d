//! Each verb as a user with exactly the role of `manifests/samples/pool-lessee.yaml`, and with one permission less. The
//! kind `HiveConfig` is served, but no object of it exists.

#![expect(
    clippy::indexing_slicing,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use anyhow::{Context as _, Result, ensure};
use http::Request;
use jiff::{SignedDuration, Timestamp};
use kcp_tests::pools::command::CommandOutput;
use kcp_tests::pools::pool::Pool;
use kcp_tests::pools::server::PoolServer;
use kcp_tests::pools::stand_in_hive::StandInHive;
use kcp_tests::wait::until;
use kcp_tests::{manifests, products};
use serde_json::{Value, json};

use crate::roles::without;
use crate::shared::with_pools;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Commands after `pool`, with the placeholder `USER`.
const LEASE: &str = "lease hosts --cluster-deployment USER --no-cluster";
const HOLD: &str = "lease hosts --cluster-deployment USER --no-cluster --customization host-1";
const WAIT: &str =
    "lease hosts --cluster-deployment USER-waits --no-cluster --customization host-1 --wait=10s";
const RENEW: &str = "renew hosts --cluster-deployment USER";
const RELEASE: &str = "release hosts --cluster-deployment USER";
const EXEC: &str = "exec hosts -- true";
const CLEAN: &str = "exec hosts --clean -- true";
const CLEAN_IN_VAIN: &str = "exec hosts --clean -- false";
const LIST: &str = "status hosts -o name";
const STATUS: &str = "status hosts";
const LEASE_CLAIM: &str = "lease hosts --cluster-deployment USER --claim --hive=yes";
const RENEW_CLAIM: &str = RENEW;
const RELEASE_CLAIM: &str = "release hosts --cluster-deployment USER --delete-cluster --yes --hive=yes";
const EXEC_CLAIM: &str = "exec hosts --claim --hive=yes --subject user:USER -- true";

/// What a user sees who lacks `list` on hiveconfigs.
const UNKNOWN: &str = "blocked: you are not allowed to list hiveconfigs.hive.openshift.io, so it is unknown whether Hive \
                       runs; if Hive manages pool hosts, it would revoke the lease: ask for this permission, or use \
                       --hive=no if Hive does not manage the pool\n";

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn a_lessee_needs_exactly_the_documented_permissions() {
    with_pools(async |server| {
        serve_hive_configs(server).await.unwrap();
        let pool = Pool::create(server, "lessee-role", 2).await.unwrap();
        let lessee = Lessee { server, pool: &pool };
        let mut hive = StandInHive::new(server.client(), "lessee-role", "hosts", 1).unwrap();

        let cannot = |what: &str| format!("cannot {what}");
        let without_place = |what: &str| {
            format!(
                "without a place in the queue, so lessees that ask later may be served first: cannot {what}"
            )
        };
        let entries = "clusterdeploymentcustomizations";
        let mut number = 0;
        for (resource, verb, steps) in [
            (
                "hiveconfigs",
                "list",
                vec![
                    (LEASE, 1, UNKNOWN.to_owned()),
                    (EXEC, 125, UNKNOWN.to_owned()),
                    (
                        "lease hosts --cluster-deployment USER --no-cluster --hive=no",
                        0,
                        String::new(),
                    ),
                    (RENEW, 0, String::new()),
                    (LIST, 0, String::new()),
                    (STATUS, 0, String::new()),
                    (RELEASE, 0, String::new()),
                    ("lease hosts --cluster-deployment USER --claim", 0, String::new()),
                    (
                        "release hosts --cluster-deployment USER --delete-cluster --yes",
                        0,
                        String::new(),
                    ),
                ],
            ),
            (
                "clusterpools",
                "get",
                vec![(LEASE, 2, cannot("get clusterpools"))],
            ),
            (
                entries,
                "list",
                vec![(LEASE, 2, cannot("list clusterdeploymentcustomizations"))],
            ),
            (
                entries,
                "get",
                vec![(LEASE, 2, cannot("get clusterdeploymentcustomizations"))],
            ),
            (
                "clusterdeploymentcustomizations/status",
                "patch",
                vec![(LEASE, 2, cannot("patch clusterdeploymentcustomizations"))],
            ),
            (
                "clusterdeployments",
                "list",
                vec![
                    (LEASE, 0, cannot("list clusterdeployments")),
                    (RELEASE, 0, String::new()),
                ],
            ),
            (
                "leases",
                "list",
                vec![
                    (HOLD, 0, cannot("list leases")),
                    (WAIT, 1, without_place("list leases")),
                    (STATUS, 0, cannot("list leases")),
                    (RELEASE, 0, String::new()),
                ],
            ),
            (
                "leases",
                "create",
                vec![
                    (HOLD, 0, String::new()),
                    (WAIT, 1, without_place("create leases")),
                    (RELEASE, 0, String::new()),
                ],
            ),
            (
                "leases",
                "patch",
                vec![
                    (HOLD, 0, String::new()),
                    (WAIT, 1, without_place("patch leases")),
                    (RELEASE, 0, String::new()),
                ],
            ),
            (
                "clusterclaims",
                "get",
                vec![(LEASE_CLAIM, 2, cannot("get clusterclaims"))],
            ),
            (
                "clusterclaims",
                "create",
                vec![(LEASE_CLAIM, 2, cannot("create clusterclaims"))],
            ),
            (
                "clusterclaims",
                "patch",
                vec![(EXEC_CLAIM, 125, cannot("patch clusterclaims"))],
            ),
            (
                "clusterclaims",
                "delete",
                vec![
                    (LEASE_CLAIM, 0, String::new()),
                    (RELEASE_CLAIM, 2, cannot("delete clusterclaims")),
                ],
            ),
            (
                "clusterclaims",
                "list",
                vec![(STATUS, 2, cannot("list clusterclaims"))],
            ),
            (
                "clusterdeployments",
                "get",
                vec![(LEASE_CLAIM, 2, cannot("get clusterdeployments"))],
            ),
        ] {
            number += 1;
            let user = format!("lessee-{number}");
            let missing = (resource.to_owned(), verb.to_owned());
            lessee.with_role(&user, Some(missing)).await.unwrap();
            let steps = async {
                for (command, code, message) in steps {
                    lessee.ends(&user, command, code, &message).await.unwrap();
                }
            };
            hive.serve_while(steps).await.unwrap();
        }
        lessee.with_role("jane", None).await.unwrap();
        let all = async {
            for command in [LEASE, RENEW, LIST, STATUS, RELEASE, HOLD] {
                lessee.ends("jane", command, 0, "").await.unwrap();
            }
            lessee
                .ends("jane", WAIT, 1, "1st of 1 in the queue")
                .await
                .unwrap();
            for command in [
                RELEASE,
                EXEC,
                LEASE_CLAIM,
                RENEW_CLAIM,
                STATUS,
                RELEASE_CLAIM,
                EXEC_CLAIM,
            ] {
                lessee.ends("jane", command, 0, "").await.unwrap();
            }
        };
        hive.serve_while(all).await.unwrap();
        // Only the command that may not delete its claim leaves it behind, and a command that may not read the cluster.
        let left = hive.settle(Timestamp::now()).await.unwrap();
        let names: Vec<_> = left
            .iter()
            .map(|claim| claim["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["lessee-13"]);

        pool.ask_for_cleaning().await.unwrap();
        let unlisted =
            "host-1 is not cleaned: a cluster may use it, and you are not allowed to list clusterdeployments";
        for (user, missing, steps) in [
            (
                "unseeing",
                Some(("clusterdeployments", "list")),
                vec![(HOLD, 0, ""), (RELEASE, 0, ""), (CLEAN, 1, unlisted)],
            ),
            (
                "janitor",
                None,
                vec![
                    (CLEAN, 0, "host-1 is clean, and free"),
                    (HOLD, 0, ""),
                    (RELEASE, 0, ""),
                    (
                        CLEAN_IN_VAIN,
                        1,
                        "host-1 is not clean, and cordoned: cleaning failed 3 times",
                    ),
                ],
            ),
            (
                "uncordoning",
                Some((entries, "patch")),
                vec![
                    (LEASE, 0, ""),
                    (RELEASE, 0, ""),
                    (CLEAN_IN_VAIN, 125, "cannot patch clusterdeploymentcustomizations"),
                ],
            ),
        ] {
            let missing = missing.map(|(resource, verb)| (resource.to_owned(), verb.to_owned()));
            lessee.with_role(user, missing).await.unwrap();
            for (command, code, said) in steps {
                lessee.ends(user, command, code, said).await.unwrap();
            }
        }
    });
}

struct Lessee<'s> {
    server: &'s PoolServer,
    pool: &'s Pool<'s>,
}

impl Lessee<'_> {
    /// Gives a user the roles of the manifest, without one permission, and waits until the API server knows them.
    async fn with_role(&self, user: &str, missing: Option<(String, String)>) -> Result<()> {
        let manifest = products::workspace().join("manifests/samples/pool-lessee.yaml");
        for role in manifests::read(&manifest)? {
            let mut role = match &missing {
                Some(missing) => without(&role, missing),
                None => role,
            };
            let is_of_cluster = role["metadata"]["name"] == "pool-lessee-cluster";
            let name = format!("{}-{user}", role["metadata"]["name"].as_str().context("no name")?);
            role["metadata"]["name"] = name.as_str().into();
            let binding = json!({
                "metadata": {"name": name}, "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
            });
            let bindings = if is_of_cluster {
                "clusterrolebindings".to_owned()
            } else {
                format!("namespaces/{}/rolebindings", self.pool.namespace())
            };
            create(self.server, &format!("/apis/{RBAC}/v1/clusterroles"), &role).await?;
            create(self.server, &format!("/apis/{RBAC}/v1/{bindings}"), &binding).await?;
        }
        // The namespaced role has a rule that no test removes besides the removed one, and so has the other.
        until("the API server knows the roles", || async {
            let mut checked = vec![("clusterpools", "get"), ("clusterdeployments", "get")];
            checked.push(("clusterdeployments", "list"));
            checked.push(("clusterdeploymentcustomizations", "list"));
            let mut allowed = 0;
            for (resource, verb) in checked {
                allowed += usize::from(self.may(user, resource, verb).await?);
            }
            ensure!(allowed >= 3, "{allowed} permissions");
            Ok(())
        })
        .await
    }

    async fn may(&self, user: &str, resource: &str, verb: &str) -> Result<bool> {
        let namespaced = ["clusterpools", "clusterdeploymentcustomizations"].contains(&resource);
        let review = json!({"spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": {
            "group": "hive.openshift.io", "resource": resource, "verb": verb,
            "namespace": if namespaced { self.pool.namespace() } else { "" },
        }}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = create(self.server, path, &review).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// Runs a command that must end like this, and say this on stderr.
    async fn ends(&self, user: &str, command: &str, code: i32, said: &str) -> Result<()> {
        let ended = self.run(user, command).await?;
        ensure!(ended.code == Some(code), "expected exit code {code}: {ended}");
        ensure!(ended.stderr.contains(said), "expected {said:?}: {ended}");
        Ok(())
    }

    async fn run(&self, user: &str, command: &str) -> Result<CommandOutput> {
        let command = command.replace("USER", user);
        let whereabouts = format!("pool --as {user} -n {} {command}", self.pool.namespace());
        let words: Vec<_> = whereabouts.split(' ').collect();
        self.server.plugin().run(&words, None, SignedDuration::ZERO).await
    }
}

/// Makes the API server serve the kind `HiveConfig`, with the names in Hive's own definition.
async fn serve_hive_configs(server: &PoolServer) -> Result<()> {
    let definition = json!({
        "metadata": {"name": "hiveconfigs.hive.openshift.io"},
        "spec": {
            "group": "hive.openshift.io", "scope": "Cluster",
            "names": {"kind": "HiveConfig", "listKind": "HiveConfigList", "plural": "hiveconfigs", "singular": "hiveconfig"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    create(
        server,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &definition,
    )
    .await?;
    until("the API server serves HiveConfigs", || async {
        let request = Request::get("/apis/hive.openshift.io/v1/hiveconfigs").body(Vec::new())?;
        server.client().request::<Value>(request).await?;
        let request = Request::get("/apis/hive.openshift.io/v1").body(Vec::new())?;
        let group: Value = server.client().request(request).await?;
        let resources = group["resources"].as_array().context("no resources")?;
        ensure!(resources.iter().any(|resource| resource["name"] == "hiveconfigs"));
        Ok(())
    })
    .await
}

pub(super) async fn create(server: &PoolServer, collection: &str, object: &Value) -> Result<Value> {
    let request = Request::post(collection).header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(object)?)?;
    Ok(server.client().request(request).await?)
}
