//! Writes of clients that read the object before its last change. The API server calls the mutating webhooks before it
//! compares the versions.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::slice::from_ref;

use kcp_tests::kubectl::{CommandOutput, Kubectl};
use serde_json::{Value, json};

use crate::hosts::Hosts;
use crate::objects::{adopted, control_plane, write, written};
use crate::shared::with_management_cluster;

/// How the API server answers a write: its error up to the first colon.
fn answer(ended: &CommandOutput) -> &str {
    ended.stderr.split(':').next().unwrap_or_default()
}

const CONFLICT: &str = "Error from server (Conflict)";

async fn read(kubectl: &Kubectl, object: &str, namespace: &str) -> Value {
    let get = ["get", object, "-n", namespace, "-o", "json"];
    serde_json::from_str(&kubectl.succeed(get).await.unwrap().stdout).unwrap()
}

/// Hive's write of a cluster from a cache that lacks the claim (openshift/hive, ensureClaimAssignment).
#[test]
fn a_stale_write_without_the_claim_is_a_conflict() {
    with_management_cluster(async |management| {
        let hosts = Hosts::create(management, "stale-claim", 1).await;
        hosts.cluster("stale-claim-x", "host-0", &[]).await;
        let first = read(&hosts.kubectl, "clusterdeployment/stale-claim-x", "stale-claim-x").await;
        let claimed = json!({"spec": {"clusterPoolRef": {"claimName": "paris"}}});
        hosts
            .patch("clusterdeployment/stale-claim-x", "stale-claim-x", &claimed)
            .await;

        let stale = write(&hosts.kubectl, "replace", from_ref(&first), &[])
            .await
            .unwrap();
        assert_eq!(answer(&stale), CONFLICT, "{stale}");
        // The same write by a client that knows of the claim.
        let mut current = read(&hosts.kubectl, "clusterdeployment/stale-claim-x", "stale-claim-x").await;
        current["spec"] = first["spec"].clone();
        let denied = write(&hosts.kubectl, "replace", &[current], &[]).await.unwrap();
        assert!(denied.stderr.contains("(claim-name-changed)"), "{denied}");
    });
}

#[test]
fn a_stale_write_of_a_control_plane_is_a_conflict() {
    with_management_cluster(async |management| {
        let (kubectl, namespace) = (management.kubectl(), "stale-control-plane");
        management.create_namespace(namespace).await.unwrap();
        let created = adopted(control_plane("edge", 3, "v1.34.2"));
        written(kubectl, "create", &[created], &["-n", namespace])
            .await
            .unwrap();
        let mut first = read(kubectl, "kubeadmcontrolplane/edge", namespace).await;
        let annotate = [
            "annotate",
            "kubeadmcontrolplane/edge",
            "-n",
            namespace,
            "changed=true",
        ];
        kubectl.succeed(annotate).await.unwrap();

        first["spec"]["replicas"] = json!(4);
        let stale = write(kubectl, "replace", from_ref(&first), &[]).await.unwrap();
        assert_eq!(answer(&stale), CONFLICT, "{stale}");
        let version = first["metadata"]["resourceVersion"].clone();
        let request = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "edge", "namespace": namespace, "resourceVersion": version},
            "spec": {"replicas": 4},
        });
        let file = kubectl.scratch_file("stale-scale.json");
        std::fs::write(&file, request.to_string()).unwrap();
        let path = format!(
            "/apis/controlplane.cluster.x-k8s.io/v1beta2/namespaces/{namespace}/kubeadmcontrolplanes/edge/scale"
        );
        let file = file.display().to_string();
        let stale = kubectl
            .run(["replace", "--raw", &path, "-f", &file])
            .await
            .unwrap();
        assert_eq!(answer(&stale), CONFLICT, "{stale}");
        let current = read(kubectl, "kubeadmcontrolplane/edge", namespace).await;
        first["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
        let denied = write(kubectl, "replace", &[first], &[]).await.unwrap();
        assert!(denied.stderr.contains("(replicas-even)"), "{denied}");
    });
}
