//! `kubectl kcp pool status` on the real API server: holders, problems, and changes while it watches.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use anyhow::ensure;
use kcp_tests::wait::until;
use serde_json::{Value, json};

use crate::hosts::Hosts;
use crate::objects::written;
use crate::schema;
use crate::shared::with_management_cluster;

impl Hosts {
    /// The exit code and the document, which matches its schema.
    async fn status(&self, arguments: &[&str], file: &str) -> (i32, Value) {
        let ended = self.run(&[&["status", "-o", "json"], arguments].concat()).await;
        assert_eq!(ended.stderr, "", "{ended}");
        let document = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended}"));
        schema::holds(file, &document).unwrap();
        (ended.code, document)
    }
}

#[test]
fn status_reports_the_holder_of_each_entry() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-status", 1).await;
        let lease = ["lease", "hosts", "--cluster-deployment", "paris", "--ttl", "1h"];
        let leased = hosts.run(&lease).await;
        assert_eq!(leased.code, 0, "{leased}");
        let entry = hosts.object("clusterdeploymentcustomization", "host-0", hosts.namespace);
        let entry = entry.await.unwrap();
        let record = hosts.record_of("host-0").await.unwrap();
        let (code, document) = hosts.status(&["hosts"], "poolstatus.json").await;
        let expected = json!({
            "apiVersion": "kubectl-kcp.dev/v1alpha1", "kind": "PoolStatus",
            "metadata": {"namespace": "pool-status", "name": "hosts"},
            "runByHive": false,
            "concludedFrom": "the cluster has neither a HiveConfig nor Deployment hive/hive-controllers",
            "deleting": false, "version": document["version"],
            "capacity": {"size": 1, "inventory": 1, "clusters": 0, "unclaimed": 0, "installing": 0, "deleting": 0,
                "stale": 0},
            "entries": [{
                "name": "host-0", "state": "held", "inInventory": true, "holder": "paris", "pool": "hosts",
                "since": entry["status"]["conditions"][0]["lastTransitionTime"],
                "expires": record["deadline"], "leaseId": record["id"], "user": record["user"],
            }],
            "claims": [], "clusters": [], "waiting": [], "queue": [], "problems": [],
        });
        assert_eq!((code, &document), (0, &expected));

        // Other tests have pools too, and the exit code depends on the worst verdict.
        let (code, all) = hosts.status(&["-A"], "poolstatuslist.json").await;
        let pools = all["items"].as_array().unwrap();
        let is_well = |pool: &Value| pool["problems"].as_array().unwrap().is_empty();
        assert_eq!(code, i32::from(!pools.iter().all(is_well)), "{all:#}");
        let is_own = |pool: &&Value| pool["metadata"]["namespace"] == hosts.namespace;
        assert_eq!(pools.iter().filter(is_own).collect::<Vec<_>>(), [&document]);

        let named = hosts.run(&["status", "-o", "name"]).await;
        assert_eq!((named.code, named.stdout.as_str()), (0, ""), "nothing is free");
    });
}

#[test]
fn status_with_a_problem_exits_with_1() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-status-wrong", 2).await;
        let delete = ["delete", "clusterdeploymentcustomization", "host-1", "-n"];
        let delete = delete.into_iter().chain([hosts.namespace]);
        hosts.kubectl.succeed(delete).await.unwrap();
        let (code, document) = hosts.status(&["hosts"], "poolstatus.json").await;
        let message = "the inventory lists this customization, but the customization does not exist";
        let missing = json!([{"kind": "missing", "object": "cdc/host-1", "message": message}]);
        assert_eq!((code, &document["problems"]), (1, &missing));
        let list = hosts.run(&["status"]).await;
        let expected = "NAME    SIZE   CLUSTERS   ENTRIES   FREE   PROBLEMS\n\
                        hosts   1      0          2         1      missing\n\n\
                        POOL    ENTRY    STATE\n\
                        hosts   host-0   free\n\
                        hosts   host-1   missing\n";
        assert_eq!((list.code, list.stdout.as_str()), (1, expected));
        let free = hosts.run(&["status", "-o", "name"]).await;
        let name = "clusterdeploymentcustomization.hive.openshift.io/host-0\n";
        assert_eq!((free.code, free.stdout.as_str()), (1, name));
    });
}

/// It needs to read the pool and its entries, and says what else it could not see.
#[test]
fn status_names_each_missing_permission() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-status-refused", 1).await;
        let unknown = hosts.run(&["status", "guests"]).await;
        let expected = "error: cannot get clusterpools \"guests\" in namespace \"pool-status-refused\": not found\n\
                        hint: list the cluster pools of all namespaces with: kubectl get \
                        clusterpools.hive.openshift.io -A\n";
        assert_eq!((unknown.code, unknown.stderr.as_str()), (2, expected));
        let nowhere = ["kcp", "pool", "status", "-n", "pool-status-nowhere"];
        let nowhere = hosts.kubectl.run(nowhere).await.unwrap();
        assert_eq!(nowhere.code, 2, "{nowhere}");
        assert!(
            nowhere
                .stderr
                .contains("cannot get namespaces \"pool-status-nowhere\": not found"),
            "{nowhere}"
        );

        let permissions = [
            "clusterpools",
            "clusterdeploymentcustomizations",
            "clusterdeployments",
            "clusterclaims",
        ];
        let mut made = Vec::new();
        for missing in &permissions {
            let rules = permissions.iter().filter(|permission| *permission != missing);
            let rules = rules.map(|resource| rule("hive.openshift.io", resource));
            made.extend(allowed(&format!("pool-status-without-{missing}"), rules));
        }
        let all = permissions
            .iter()
            .map(|resource| rule("hive.openshift.io", resource));
        made.extend(allowed("pool-status-reader", all));
        written(&hosts.kubectl, "create", &made, &[]).await.unwrap();

        let ends = async |user: &str, code: i32, errors: &str| {
            until("the API server has learned of the role", || async {
                let ended = hosts.run(&["status", "hosts", "--as", user]).await;
                ensure!(ended.code == code && ended.stderr.starts_with(errors), "{ended}");
                Ok(())
            })
            .await
            .unwrap();
        };
        ends("pool-status-reader", 0, "").await;
        let here = "in namespace \"pool-status-refused\"";
        for (resource, code, message) in [
            (
                "clusterpools",
                2,
                format!("error: cannot get clusterpools \"hosts\" {here}"),
            ),
            (
                "clusterdeploymentcustomizations",
                2,
                format!("error: cannot list clusterdeploymentcustomizations {here}"),
            ),
            (
                "clusterdeployments",
                2,
                "warning: cannot list clusterdeployments in all namespaces".to_owned(),
            ),
            (
                "clusterclaims",
                2,
                format!("warning: cannot list clusterclaims {here}"),
            ),
        ] {
            let user = format!("pool-status-without-{resource}");
            let message = format!("{message}: forbidden for user \"{user}\"\n");
            ends(&user, code, &message).await;
        }
    });
}

fn rule(group: &str, resource: &str) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": ["list"]})
}

/// A user with a role of the same name.
pub(crate) fn allowed(user: &str, rules: impl Iterator<Item = Value>) -> [Value; 2] {
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    let rules: Vec<_> = rules.collect();
    [
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules}),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }),
    ]
}

#[test]
fn a_watch_reports_a_lease_and_ends_when_its_output_is_closed() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-status-watch", 1).await;
        let watch = ["kcp", "pool", "status", "hosts", "-n", hosts.namespace, "--watch"];
        let mut watch = hosts.kubectl.spawn(watch).unwrap();
        assert_eq!(
            untimed(&watch.line().await.unwrap()),
            "pool-status-watch/hosts: 1 entry, 0 problems"
        );
        hosts.leases("paris").await;
        assert_eq!(
            untimed(&watch.line().await.unwrap()),
            "pool-status-watch/hosts: entry host-0: free -> held for paris"
        );
        watch.close_output();
        assert_eq!(watch.exit_code().await.unwrap(), 0);
    });
}

/// A line without the time at its start.
fn untimed(line: &str) -> &str {
    let (time, what) = line.split_once("  ").unwrap();
    assert!(time.parse::<jiff::civil::Time>().is_ok(), "{line}");
    what
}
