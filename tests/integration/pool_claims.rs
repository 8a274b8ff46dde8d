//! Claims of clusters that Hive makes. The tests write what Hive would write.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::fs;

use anyhow::Context as _;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait::until;
use serde_json::json;

use crate::hosts::Hosts;
use crate::objects::written;
use crate::pool::document;
use crate::shared::with_management_cluster;

/// The Secret's value is base64 of this.
const KUBECONFIG: &str = "kind: Config\n";

/// Creates an installed cluster of the pool, with an admin kubeconfig.
async fn installed_cluster(hosts: &Hosts, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "admin", "namespace": name},
        "stringData": {"kubeconfig": KUBECONFIG},
    });
    let cluster = json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
        "metadata": {"name": name, "namespace": name},
        "spec": {
            "baseDomain": "example.com", "clusterName": name, "platform": {}, "installed": true,
            "clusterMetadata": {"adminKubeconfigSecretRef": {"name": "admin"}, "clusterID": "id", "infraID": "infra"},
            "clusterPoolRef": {"namespace": hosts.namespace, "poolName": "hosts"},
        },
    });
    written(&hosts.kubectl, "create", &[namespace, secret, cluster], &[])
        .await
        .unwrap();
}

/// Waits for a claim and assigns a cluster to it, in the order in which Hive writes.
async fn assign(hosts: &Hosts, claim: &str, cluster: &str) {
    until("the claim exists", || async {
        hosts.own("clusterclaim", claim).await.context("no claim yet")
    })
    .await
    .unwrap();
    let of_claim = json!({"spec": {"clusterPoolRef": {"claimName": claim}}});
    let deployment = format!("clusterdeployment/{cluster}");
    hosts.patch(&deployment, cluster, &of_claim).await;
    let assigned = json!({"spec": {"namespace": cluster}});
    let claim = format!("clusterclaim/{claim}");
    hosts.patch(&claim, hosts.namespace, &assigned).await;
}

#[test]
fn a_claim_prints_the_kubeconfig_of_its_cluster() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-claim-kubeconfig", 1).await;
        installed_cluster(&hosts, "pool-claim-kubeconfig-x").await;
        let (claimed, ()) = tokio::join!(
            hosts.lease(
                "paris",
                &["--claim", "--hive=yes", "--wait=2m", "-o", "kubeconfig"]
            ),
            assign(&hosts, "paris", "pool-claim-kubeconfig-x")
        );
        assert_eq!(
            (claimed.code, claimed.stdout.as_str()),
            (0, KUBECONFIG),
            "{claimed}"
        );
        assert!(hosts.own("clusterclaim", "paris").await.is_some());
    });
}

#[test]
fn exec_with_a_claim_runs_the_command_and_deletes_the_claim() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-claim-exec", 1).await;
        installed_cluster(&hosts, "pool-claim-exec-x").await;
        let script = "cat \"$KCP_KUBECONFIG\"; echo \"$KCP_CLUSTER_CLAIM $KCP_CLUSTER_DEPLOYMENT\"; exit 3";
        let options = [
            "--cluster-deployment",
            "paris",
            "--claim",
            "--hive=yes",
            "--wait=2m",
        ];
        let arguments = [&options[..], &["--", "sh", "-c", script]].concat();
        let (ran, ()) = tokio::join!(
            hosts.pool("exec", &arguments),
            assign(&hosts, "paris", "pool-claim-exec-x")
        );
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (3, "kind: Config\nparis pool-claim-exec-x\n"),
            "{ran}"
        );
        assert_eq!(hosts.own("clusterclaim", "paris").await, None);
    });
}

#[test]
fn requests_name_the_program_its_version_and_the_platform() {
    with_management_cluster(async |management: &ManagementCluster| {
        let hosts = Hosts::create(management, "pool-user-agent", 1).await;
        hosts.leases("paris").await;
        let agents = management
            .api()
            .user_agents("pool-user-agent", "clusterdeploymentcustomizations")
            .unwrap();
        let expected = format!(
            "kubectl-kcp/{} ({}/{})",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            std::env::consts::ARCH
        );
        assert!(agents.contains(&expected), "{agents:?}");
    });
}

/// The test writes what Hive would write to a claim.
#[test]
fn a_claim_waits_for_its_cluster_and_is_deleted() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "pool-claim", 1).await;
        let refused = hosts.lease("paris", &["--claim", "-o", "json"]).await;
        assert_eq!(
            (refused.code, &document(&refused)["reason"]),
            (1, &json!("blocked")),
            "{refused}"
        );
        let late = hosts
            .lease("paris", &["--claim", "--hive=yes", "--wait=1s", "-o", "json"])
            .await;
        assert_eq!(
            (late.code, &document(&late)["reason"]),
            (1, &json!("timeout")),
            "{late}"
        );
        assert_eq!(hosts.own("clusterclaim", "paris").await, None);
        let kept = hosts
            .lease("paris", &["--claim", "--hive=yes", "--wait=1s", "--keep"])
            .await;
        assert_eq!(kept.code, 1, "{kept}");
        assert!(hosts.own("clusterclaim", "paris").await.is_some());

        let cluster = json!({
            "apiVersion": "hive.openshift.io/v1",
            "kind": "ClusterDeployment",
            "metadata": {"name": "pool-claim-x", "namespace": "pool-claim-x"},
            "spec": {
                "baseDomain": "example.com", "clusterName": "pool-claim-x", "platform": {"none": {}},
                "clusterPoolRef": {
                    "namespace": "pool-claim", "poolName": "hosts",
                    "clusterDeploymentCustomization": {"name": "host-0"},
                },
            },
        });
        management.create_namespace("pool-claim-x").await.unwrap();
        let file = hosts.kubectl.scratch_file("claimed-cluster.json");
        fs::write(&file, cluster.to_string()).unwrap();
        hosts
            .kubectl
            .succeed(["create", "-f", &file.display().to_string()])
            .await
            .unwrap();
        let answer = json!({"spec": {"namespace": "pool-claim-x"}});
        hosts.patch("clusterclaim/paris", "pool-claim", &answer).await;
        let others = hosts
            .lease("paris", &["--claim", "--hive=yes", "--wait=1s", "-o", "json"])
            .await;
        let why = "ClusterClaim paris refers to ClusterDeployment pool-claim-x, but the ClusterDeployment \
            does not refer to the claim; the claim remains, because it existed before this command";
        assert_eq!(others.code, 1, "{others}");
        let message = document(&others)["message"].to_string();
        assert!(message.contains(why), "{message}");

        let claimed_by = json!({"spec": {"clusterPoolRef": {"claimName": "paris"}}});
        let (claimed, ()) = tokio::join!(
            hosts.lease("paris", &["--claim", "--hive=yes", "--wait=2m", "-o", "json"]),
            hosts.patch("clusterdeployment/pool-claim-x", "pool-claim-x", &claimed_by)
        );
        assert_eq!(claimed.code, 0, "{claimed}");
        let claimed = document(&claimed);
        assert_eq!(claimed["claim"]["name"], "paris");
        assert_eq!(claimed["clusterDeployment"]["name"], "pool-claim-x");
        assert_eq!(claimed["customization"]["name"], "host-0");
        let id = claimed["leaseId"].as_str().unwrap();

        let environment = hosts
            .lease("paris", &["--claim", "--hive=yes", "-o", "env"])
            .await;
        assert_eq!(
            environment.stdout,
            format!(
                "KCP_NAMESPACE=pool-claim\nKCP_POOL=hosts\nKCP_CLUSTER_DEPLOYMENT=pool-claim-x\n\
                 KCP_CUSTOMIZATION=host-0\nKCP_CLUSTER_CLAIM=paris\nKCP_LEASE_ID={id}\n"
            ),
            "{environment}"
        );

        let kept = hosts.release("pool-claim-x", &["--hive=yes", "-o", "json"]).await;
        assert_eq!(
            (kept.code, &document(&kept)["reason"]),
            (1, &json!("blocked")),
            "{kept}"
        );
        let message = "releasing ClusterClaim paris destroys ClusterDeployment pool-claim-x, which uses \
                       customization host-0; to release the claim anyway, add --delete-cluster";
        assert_eq!(document(&kept)["message"], message);
        let released = hosts
            .release("pool-claim-x", &["--hive=yes", "--delete-cluster", "--yes"])
            .await;
        assert_eq!(
            released.stdout, "clusterclaim.hive.openshift.io/paris deleted\n",
            "{released}"
        );
        assert_eq!(hosts.own("clusterclaim", "paris").await, None);
    });
}
