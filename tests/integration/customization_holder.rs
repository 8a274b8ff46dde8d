//! A customization serves its holder: the webhook admits the holder's cluster, also when it is deleted and applied again,
//! and denies every other.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use anyhow::ensure;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait::until;
use serde_json::{Value, json};

use crate::hosts::Hosts;
use crate::objects::write;
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "customization-holder";
const PARIS: &str = "customization-holder-paris";
const LIMA: &str = "customization-holder-lima";

fn cluster(name: &str) -> [Value; 2] {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let deployment = json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
        "metadata": {"name": name, "namespace": name},
        "spec": {
            "baseDomain": "example.com", "clusterName": name, "platform": {},
            "clusterPoolRef": {"namespace": NAMESPACE, "poolName": "hosts",
                "clusterDeploymentCustomization": {"name": "host-0"}},
        },
    });
    [namespace, deployment]
}

impl Hosts {
    async fn apply_cluster(&self, name: &str) -> CommandOutput {
        write(&self.kubectl, "apply", &cluster(name), &[]).await.unwrap()
    }

    async fn until_counted(&self, management: &ManagementCluster, counts: [(&str, u32); 4]) {
        let expected = counts.map(|(state, count)| {
            format!(
                "kcp_webhook_pool_entries{{namespace=\"{NAMESPACE}\",pool=\"hosts\",state=\"{state}\"}} {count}"
            )
        });
        until("the metrics count the entries of the pool", || async {
            let metrics = management.admission().metrics().await?;
            for line in &expected {
                ensure!(
                    metrics.lines().any(|found| found == line),
                    "{line} is not in\n{metrics}"
                );
            }
            Ok(())
        })
        .await
        .unwrap();
    }
}

#[test]
fn a_customization_serves_its_holder_only() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, NAMESPACE, 2).await;
        hosts.leases(PARIS).await;
        let held = [("held", 1), ("gone", 0), ("expired", 0), ("cordoned", 0)];
        hosts.until_counted(management, held).await;

        // The lease denies a cluster of another name, and admits its holder's.
        let denied = hosts.apply_cluster(LIMA).await;
        let leased = format!("the customization is leased by \"{PARIS}\" until ");
        assert!(
            denied.code == 1
                && denied.stderr.contains(&leased)
                && denied.stderr.contains("(customization-held-by-another)"),
            "{denied}"
        );
        let command = format!("kubectl kcp pool lease hosts --cluster-deployment {LIMA} -n {NAMESPACE}");
        assert!(denied.stderr.contains(&command), "{denied}");
        assert_eq!(hosts.apply_cluster(PARIS).await.code, 0);

        // The cluster that exists denies another, and the deletion of the customization.
        let denied = hosts.apply_cluster(LIMA).await;
        let used = format!("ClusterDeployment {PARIS} uses this customization");
        assert!(denied.code == 1 && denied.stderr.contains(&used), "{denied}");
        let delete = [
            "delete",
            "clusterdeploymentcustomization",
            "host-0",
            "-n",
            NAMESPACE,
            "--wait=false",
        ];
        let collection = format!(
            "/apis/hive.openshift.io/v1/namespaces/{NAMESPACE}/clusterdeploymentcustomizations?fieldSelector=metadata.name%3Dhost-0"
        );
        for delete in [&delete[..], &["delete", "--raw", &collection]] {
            let denied = hosts.kubectl.run(delete).await.unwrap();
            assert!(
                denied.code == 1 && denied.stderr.contains("(customization-in-use)"),
                "{denied}"
            );
        }

        // Within the grace period after its deletion, its holder may apply it again.
        let delete = ["delete", "clusterdeployment", PARIS, "-n", PARIS];
        hosts.run(&["repair", "--yes"]).await;
        hosts.kubectl.succeed(delete).await.unwrap();
        hosts.run(&["repair", "--yes"]).await;
        assert_eq!(hosts.record_of("host-0").await.unwrap()["state"], "gone");
        let gone = [("held", 0), ("gone", 1), ("expired", 0), ("cordoned", 0)];
        hosts.until_counted(management, gone).await;
        let denied = hosts.apply_cluster(LIMA).await;
        assert!(denied.code == 1 && denied.stderr.contains(&leased), "{denied}");
        assert_eq!(hosts.apply_cluster(PARIS).await.code, 0);

        // After the end, nothing is held, and the entry counts as expired until it is freed.
        hosts.kubectl.succeed(delete).await.unwrap();
        hosts
            .rewrite_record("host-0", &[("deadline", "2026-01-01T00:00:00Z")])
            .await;
        let cordon = ["cordon", "host-1", "--reason", "fan"];
        let cordoned = hosts.run(&cordon).await;
        assert_eq!(cordoned.code, 0, "{cordoned}");
        let expired = [("held", 0), ("gone", 0), ("expired", 1), ("cordoned", 1)];
        hosts.until_counted(management, expired).await;
        assert_eq!(hosts.apply_cluster(LIMA).await.code, 0);
        let delete = ["delete", "clusterdeployment", LIMA, "-n", LIMA];
        hosts.kubectl.succeed(delete).await.unwrap();
    });
}
