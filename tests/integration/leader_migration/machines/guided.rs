//! The whole migration of Node IPAM on three Machines with the steps of `leader-migration generate`, with the rollouts of Cluster API's controller.
//!
//! The proof is what the processes list at `/healthz` all the while, and the audit log of the API server.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::addresses::free_port;
use kcp_tests::assets::Assets;
use kcp_tests::cluster::Cluster;
use kcp_tests::controller_manager::{CloudPod, Identity};
use kcp_tests::kubectl::Kubectl;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use super::samples::Samples;
use super::{
    KUBE_SYSTEM, NAME, NODE_IPAM, TOKENS, all_healthy, cloud_pod, node_gets_range, replace_cloud_pod,
    start_cloud, writers,
};
use crate::leader_migration::permissions::permit_main_lock;
use crate::leader_migration::steps::{NODE_IPAM as STEP_FLAGS, Steps};
use crate::leader_migration::{MIGRATION, election};
use crate::objects::written;

pub(super) const NAMESPACE: &str = "migration-guided";

const OLD: &str = "v1.35.4";

const NEW: &str = "v1.36.3";

/// The controllers of a kube-controller-manager 1.36 that `upgrade` wrote: kubeadm's default and what `*` stands for, without
/// Node IPAM.
const UPGRADED: [&str; 3] = ["bootstrap-signer-controller", TOKENS, "token-cleaner-controller"];

/// Where `start` installs the configuration.
const PATH: &str = "/etc/kubernetes/leader-migration.yaml";

/// The Node of the cloud-controller-manager. No rollout replaces it.
const WORKER: &str = "cloud";

pub(super) async fn migrated(management: &ManagementCluster) -> Result<()> {
    let component = json!({"extraArgs": election()});
    let client = management.client();
    let cluster =
        Cluster::create_with_controller_managers(client, NAMESPACE, NAME, 3, OLD, &component).await?;
    cluster.settled(3).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let guided = Guided {
        management,
        cluster: &cluster,
        kubectl: Kubectl::new(management.run(), &Assets::locate()?, workload.kubeconfig())?,
        samples: Samples::new(management, &cluster, &workload, NAMESPACE),
        workload: workload.clone(),
        cloud_port: free_port()?,
    };
    guided.healthy(&[TOKENS, NODE_IPAM]).await?;
    tokio::select! {
        migrated = guided.all_steps() => migrated?,
        failed = guided.samples.taken() => match failed? {},
    }
    guided.samples.report();

    let writers = writers(&workload)?;
    let kube = "kube-controller-manager-1.35";
    let cloud = "cloud-controller-manager";
    for (node, program) in [
        ("before", kube),
        ("started", kube),
        ("rolled-back", kube),
        ("upgraded", cloud),
        ("finished", cloud),
    ] {
        assert_eq!(writers.get(node).map(String::as_str), Some(program), "{node}");
    }
    cluster.delete().await
}

struct Guided<'g> {
    management: &'g ManagementCluster,
    cluster: &'g Cluster,
    workload: Arc<WorkloadCluster>,
    /// For the workload cluster.
    kubectl: Kubectl,
    samples: Samples<'g>,
    cloud_port: u16,
}

impl Guided<'_> {
    async fn all_steps(&self) -> Result<()> {
        self.samples.step("1 before");
        node_gets_range(&self.workload, "before").await?;
        self.samples.step("2 start");
        self.start().await?;
        self.samples.step("3 upgrade and rollback");
        self.upgrade_and_roll_back().await?;
        self.samples.step("4 upgrade");
        self.upgrade().await?;
        self.samples.step("5 finish");
        self.finish().await
    }

    fn steps(&self) -> Steps<'_> {
        Steps {
            management: self.management,
            workload: &self.kubectl,
            namespace: NAMESPACE,
            name: NAME,
        }
    }

    /// Takes a step, and waits for the end of the rollout.
    async fn take(&self, step: &str, flags: &[&str]) -> Result<Option<Vec<String>>> {
        let old = self.cluster.machines().await?;
        let after = self.steps().take(step, flags).await?;
        wait::until("the rollout replaces each Machine", || async {
            let now = self.cluster.machines().await?;
            ensure!(now.iter().all(|machine| !old.contains(machine)), "{now:?}");
            self.cluster.is_settled(3).await
        })
        .await?;
        Ok(after)
    }

    async fn healthy(&self, expected: &[&str]) -> Result<()> {
        all_healthy(self.cluster, &self.workload, expected).await
    }

    async fn spec(&self) -> Result<Value> {
        let mut object = self.cluster.get().await?;
        let spec = object.get_mut("spec").map(Value::take);
        spec.context("the control plane has no spec")
    }

    async fn start(&self) -> Result<()> {
        permit_main_lock(&self.kubectl).await?;
        self.take("start", &STEP_FLAGS).await?;
        self.healthy(&[TOKENS, NODE_IPAM]).await?;
        node_gets_range(&self.workload, "started").await
    }

    async fn upgrade_and_roll_back(&self) -> Result<()> {
        self.create_worker().await?;
        let content = self.configuration().await?;
        self.replace_cloud("cloud", &cloud_pod(Some(&content))).await?;

        // Nothing is rolled out, so that no Machine has the new version.
        self.cluster.pause(true).await?;
        let enabled = self.spec().await?;
        let steps = self.steps();
        wait::until("cloud-controller-manager responds", || {
            steps.take("upgrade", &["--to", NEW])
        })
        .await?;
        steps.take("rollback", &[]).await?;
        let restored = self.spec().await?;
        ensure!(restored == enabled, "{restored} instead of {enabled}");
        self.cluster.pause(false).await?;
        node_gets_range(&self.workload, "rolled-back").await
    }

    async fn upgrade(&self) -> Result<()> {
        self.take("upgrade", &["--to", NEW]).await?;
        self.healthy(&UPGRADED).await?;
        node_gets_range(&self.workload, "upgraded").await
    }

    async fn finish(&self) -> Result<()> {
        let remove = "remove --enable-leader-migration from the DaemonSet of cloud-controller-manager";
        self.steps().is_refused("finish", &[], remove).await?;
        self.replace_cloud("cloud-after", &cloud_pod(None)).await?;
        wait::until("cloud-controller-manager runs Node IPAM", || async {
            let cloud = self.samples.cloud.lock().await;
            let (_, cloud) = cloud.as_ref().context("it does not run")?;
            ensure!(cloud.controllers().await?.contains(NODE_IPAM), "it does not");
            Ok(())
        })
        .await?;
        let delete = self.take("finish", &[]).await?.context("no command")?;
        self.kubectl.succeed(&delete).await?;
        let left = [
            "get",
            "lease",
            MIGRATION,
            "-n",
            KUBE_SYSTEM,
            "--ignore-not-found",
            "-o",
            "name",
        ];
        assert_eq!(self.kubectl.succeed(left).await?.stdout, "");
        let spec = self.spec().await?.to_string();
        ensure!(!spec.contains("leader-migration"), "{spec}");
        self.healthy(&UPGRADED).await?;
        node_gets_range(&self.workload, "finished").await
    }

    /// The configuration that `start` wrote.
    async fn configuration(&self) -> Result<String> {
        let spec = self.spec().await?;
        let files = spec.pointer("/kubeadmConfigSpec/files").and_then(Value::as_array);
        let mut files = files.into_iter().flatten();
        let file = files.find(|file| file.get("path") == Some(&json!(PATH)));
        let content = file.and_then(|file| file.get("content")?.as_str());
        content.map(str::to_owned).context("there is no configuration")
    }

    /// The Node of a worker, which kwok makes ready.
    async fn create_worker(&self) -> Result<()> {
        // kwok listens for all Nodes. It replaces the addresses of a Node without both types.
        let addresses =
            json!([{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": WORKER}]);
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": WORKER},
            "status": {"addresses": addresses}});
        written(&self.kubectl, "create", &[node], &[]).await?;
        Ok(())
    }

    /// Ends the cloud-controller-manager, if it runs, and starts it with the settings of a new Pod, with the permissions of its
    /// own user.
    async fn replace_cloud(&self, name: &'static str, pod: &CloudPod<'_>) -> Result<()> {
        let mut cloud = self.samples.cloud.lock().await;
        if let Some((_, mut old)) = cloud.take() {
            old.kill().await?;
        }
        replace_cloud_pod(&self.kubectl, WORKER, pod).await?;
        let process = (name, self.cloud_port);
        let started = start_cloud(&self.workload, process, pod, Identity::Own).await?;
        *cloud = Some((name, started));
        Ok(())
    }
}
