//! Requirements of Cluster API's and Hive's documentation that Cluster API does not enforce, with our exact messages.
//!
//! Each write is sent twice: to a normal namespace, and to kube-system, where the shipped configurations leave Cluster
//! API's webhooks alone.

use anyhow::{Result, ensure};
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};

use crate::objects::{cluster, control_plane, report, written};
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "documents";
const CLUSTER_API_ALONE: &str = "kube-system";

const VERSION: &str = "v1.34.2";

/// Creates the same cluster in both namespaces, with a control plane whose status matches its spec.
async fn given(management: &ManagementCluster, name: &str, replicas: u32) -> Result<()> {
    management.create_namespace(NAMESPACE).await?;
    for namespace in [NAMESPACE, CLUSTER_API_ALONE] {
        let objects = cluster(name, replicas, VERSION);
        written(management.kubectl(), "create", &objects, &["-n", namespace]).await?;
    }
    let settled = json!({"observedGeneration": 1, "replicas": replicas, "upToDateReplicas": replicas,
        "version": VERSION});
    reported(management, ["kubeadmcontrolplane", name], &settled).await
}

async fn reported(management: &ManagementCluster, object: [&str; 2], status: &Value) -> Result<()> {
    for namespace in [NAMESPACE, CLUSTER_API_ALONE] {
        report(management.kubectl(), namespace, object, status).await?;
    }
    Ok(())
}

/// Runs a command that Cluster API alone accepts and that our webhooks deny with exactly this message.
async fn refused(management: &ManagementCluster, command: &[&str], words: &str) -> Result<()> {
    let kubectl = management.kubectl();
    let alone = ["-n", CLUSTER_API_ALONE, "--dry-run=server"];
    kubectl.succeed(command.iter().chain(&alone)).await?;
    let told = kubectl.run(command.iter().chain(&["-n", NAMESPACE])).await?;
    ensure!(
        told.code == 1 && told.stdout.is_empty() && told.stderr == words,
        "{told}\nexpected:\n{words}"
    );
    Ok(())
}

fn patch<'a>(name: &'a str, patch: &'a str) -> [&'a str; 6] {
    ["patch", "kubeadmcontrolplane", name, "--type=merge", "-p", patch]
}

#[test]
fn a_downgrade_with_a_joined_machine() {
    with_management_cluster(async |management| {
        given(management, "downgrade", 1).await.unwrap();
        let joined = json!({"nodeRef": {"name": "downgrade-1"}});
        reported(management, ["machine", "downgrade-1"], &joined)
            .await
            .unwrap();
        let lower = patch("downgrade", r#"{"spec":{"version":"v1.33.6"}}"#);
        let words = "\
            The KubeadmControlPlane \"downgrade\" is invalid: spec.version: Forbidden: \"v1.33.6\": Machine \
            downgrade-1 has already joined at v1.34.2, and etcd data cannot be downgraded; keep v1.34.2, \
            or restore a backup into a new Cluster (version-lowered)\n";
        refused(management, &lower, words).await.unwrap();
    });
}

#[test]
fn a_second_minor_before_the_first_has_rolled_out() {
    with_management_cluster(async |management| {
        given(management, "hasty", 3).await.unwrap();
        let behind = json!({"version": "v1.33.6"});
        reported(management, ["kubeadmcontrolplane", "hasty"], &behind)
            .await
            .unwrap();
        let next = patch("hasty", r#"{"spec":{"version":"v1.35.0"}}"#);
        let words = "\
            The KubeadmControlPlane \"hasty\" is invalid: spec.version: Forbidden: \"v1.35.0\": the upgrade \
            to v1.34.2 is still rolling out: a Machine is at v1.33.6; wait until every Machine is at \
            v1.34.2: kubectl kcp rollout status hasty -n documents \
            (version-changes-too-early)\n";
        refused(management, &next, words).await.unwrap();
    });
}

#[test]
fn a_scale_together_with_an_upgrade() {
    with_management_cluster(async |management| {
        given(management, "both", 3).await.unwrap();
        let both = patch("both", r#"{"spec":{"replicas":5,"version":"v1.35.0"}}"#);
        let words = "\
            The KubeadmControlPlane \"both\" is invalid: spec.replicas: Forbidden: 5: this write scales from \
            3 and changes version, which starts a rollout; both operations change etcd members; change \
            version first, wait for the rollout, then scale (replicas-with-upgrade)\n";
        refused(management, &both, words).await.unwrap();
    });
}

#[test]
fn a_scale_during_a_rollout() {
    with_management_cluster(async |management| {
        given(management, "rolling", 3).await.unwrap();
        let rolling = json!({"replicas": 4, "upToDateReplicas": 1});
        reported(management, ["kubeadmcontrolplane", "rolling"], &rolling)
            .await
            .unwrap();
        let words = "\
            The KubeadmControlPlane \"rolling\" is invalid: spec.replicas: Forbidden: 5: a rollout is \
            in progress (1 of 4 Machines are up to date), and scaling from 3 would add or remove etcd members at the same time; wait for the rollout, then scale: kubectl kcp rollout status rolling \
            -n documents (replicas-during-rollout)\n";
        let scale = ["scale", "kubeadmcontrolplane/rolling", "--replicas=5"];
        refused(management, &scale, words).await.unwrap();
        let five = patch("rolling", r#"{"spec":{"replicas":5}}"#);
        refused(management, &five, words).await.unwrap();
    });
}

#[test]
fn a_scale_to_one_with_max_surge_0() {
    with_management_cluster(async |management| {
        given(management, "surgeless", 3).await.unwrap();
        let surge = r#"{"spec":{"rollout":{"strategy":{"rollingUpdate":{"maxSurge":0}}}}}"#;
        for namespace in [NAMESPACE, CLUSTER_API_ALONE] {
            let surge = patch("surgeless", surge);
            management
                .kubectl()
                .succeed(surge.iter().chain(&["-n", namespace]))
                .await
                .unwrap();
        }
        let observed = json!({"observedGeneration": 2});
        reported(management, ["kubeadmcontrolplane", "surgeless"], &observed)
            .await
            .unwrap();
        let scale = ["scale", "kubeadmcontrolplane/surgeless", "--replicas=1"];
        let words = "\
            The KubeadmControlPlane \"surgeless\" is invalid: spec.replicas: Forbidden: 1: with maxSurge 0, \
            Cluster API deletes a Machine before it creates one, and replicas is only 1; set maxSurge to 1, or use at least three Machines (max-surge-zero-below-three)\n";
        refused(management, &scale, words).await.unwrap();
    });
}

#[test]
fn a_max_surge_in_percent() {
    with_management_cluster(async |management| {
        given(management, "percent", 3).await.unwrap();
        let half = r#"{"spec":{"rollout":{"strategy":{"rollingUpdate":{"maxSurge":"50%"}}}}}"#;
        let words = "\
            The KubeadmControlPlane \"percent\" is invalid: spec.rollout.strategy.rollingUpdate.maxSurge: \
            Invalid value: \"50%\": a control plane grows by at most one Machine during a rollout; set 1 \
            to create a Machine before deleting one, or 0 to delete one first (max-surge-unsupported)\n";
        refused(management, &patch("percent", half), words).await.unwrap();
    });
}

#[test]
fn a_deletion_while_there_are_workers() {
    with_management_cluster(async |management| {
        given(management, "needed", 1).await.unwrap();
        let delete = ["delete", "kubeadmcontrolplane", "needed", "--wait=false"];
        let words = "\
            The KubeadmControlPlane \"needed\" is invalid: spec: Forbidden: Cluster needed still has \
            workers, such as needed-worker; the deletion cannot be undone, and until the workers are deleted, Cluster API \
            would keep the control plane without scaling, upgrading or repairing it; delete the Cluster instead, which deletes the \
            workers first: kubectl delete cluster needed -n documents (control-plane-in-use)\n";
        refused(management, &delete, words).await.unwrap();
        // It can be deleted once its worker is deleted.
        let kubectl = management.kubectl();
        let worker = [
            "delete",
            "machine",
            "needed-worker",
            "-n",
            NAMESPACE,
            "--wait=false",
        ];
        kubectl.succeed(worker).await.unwrap();
        kubectl
            .succeed(delete.iter().chain(&["-n", NAMESPACE]))
            .await
            .unwrap();
    });
}

/// Cluster API's own webhook sets missing replicas to one: a control plane of three would lose two etcd members.
#[test]
fn replicas_removed_from_an_applied_manifest() {
    with_management_cluster(async |management| {
        management.create_namespace(NAMESPACE).await.unwrap();
        for (name, side) in [
            ("dropped", "--server-side=false"),
            ("dropped-server-side", "--server-side"),
        ] {
            for (namespace, kept) in [(NAMESPACE, "3"), (CLUSTER_API_ALONE, "1")] {
                let replicas = dropped(management, name, &["-n", namespace, side]).await.unwrap();
                assert_eq!(replicas, kept, "{namespace} {side}");
            }
        }
    });
}

/// The replicas of a control plane of three after a manifest without replicas is applied.
async fn dropped(management: &ManagementCluster, name: &str, arguments: &[&str]) -> Result<String> {
    let original = control_plane(name, 3, VERSION);
    let mut reduced = original.clone();
    let spec = reduced.pointer_mut("/spec").and_then(Value::as_object_mut);
    let removed = spec.and_then(|spec| spec.remove("replicas"));
    ensure!(removed == Some(json!(3)), "{original}");
    written(management.kubectl(), "apply", &[original], arguments).await?;
    let jsonpath = ["-o", "jsonpath={.items[*].spec.replicas}{.spec.replicas}"];
    let arguments: Vec<_> = arguments.iter().chain(&jsonpath).copied().collect();
    let applied = written(management.kubectl(), "apply", &[reduced], &arguments).await?;
    Ok(applied.stdout)
}
