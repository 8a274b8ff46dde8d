//! A workload cluster with one Machine, and the controller managers that its port-forwards reach.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::addresses::free_port;
use kcp_tests::assets::Assets;
use kcp_tests::cluster::Cluster;
use kcp_tests::controller_manager::{
    CLOUD_POD, CloudPod, ControllerManager, ControllerManagers, Identity, Locks, Program,
};
use kcp_tests::kubectl::Kubectl;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use super::{MIGRATION, NAME, NAMESPACE};
use crate::leader_migration::permissions::permit_main_lock;
use crate::leader_migration::steps::NODE_IPAM;
use crate::objects::{control_plane, written};
use crate::schema;

const KUBE_SYSTEM: &str = "kube-system";

const CONTROLLERS: &str = "--controllers=";

/// A verdict takes seconds, or two lease periods. The rest is for a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) struct Scene<'m> {
    management: &'m ManagementCluster,
    pub(super) programs: ControllerManagers,
    pub(super) locks: Locks,
    workload_kubectl: Kubectl,
    _workload: Arc<WorkloadCluster>,
    node: String,
    pub(super) kube_pod: String,
    kube_port: u16,
    cloud_port: u16,
}

/// A cloud-controller-manager without leader migration.
pub(super) const fn without_migration() -> CloudPod<'static> {
    CloudPod {
        controllers: super::NODE_IPAM,
        configuration: None,
    }
}

/// A cloud-controller-manager with this leader migration configuration.
pub(super) const fn migrating(configuration: &str) -> CloudPod<'_> {
    CloudPod {
        controllers: super::NODE_IPAM,
        configuration: Some(configuration),
    }
}

/// The document of `status` and its exit code.
#[derive(Debug)]
pub(super) struct Status {
    code: i32,
    document: Value,
}

impl Status {
    pub(super) fn at(&self, pointer: &str) -> &Value {
        self.document.pointer(pointer).unwrap_or(&Value::Null)
    }

    fn node_ipam(&self, field: &str) -> &str {
        let mut controllers = self.at("/controllers").as_array().into_iter().flatten();
        let found = controllers.find(|controller| text(controller, "name") == super::NODE_IPAM);
        found.map_or("", |controller| text(controller, field))
    }

    /// The reason for the verdict on Node IPAM.
    pub(super) fn reason(&self) -> &str {
        self.node_ipam("reason")
    }

    pub(super) fn lease(&self, name: &str) -> Result<&Value> {
        let mut leases = self.at("/leases").as_array().into_iter().flatten();
        leases
            .find(|lease| text(lease, "name") == name)
            .with_context(|| format!("no Lease {name}: {self:?}"))
    }
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

impl<'m> Scene<'m> {
    pub(super) async fn set(management: &'m ManagementCluster, cluster: &Cluster) -> Result<Self> {
        let workload = management.machines().cluster(NAMESPACE, NAME).await?;
        let machines = cluster.machines().await?;
        let node = machines
            .first()
            .context("the control plane has no Machine")?
            .clone();
        let kube_pod = format!("kube-controller-manager-{node}");
        let (kube_port, cloud_port) = (free_port()?, free_port()?);
        workload.forward(&kube_pod, 10257, kube_port).await?;
        workload.forward(CLOUD_POD, 10258, cloud_port).await?;
        let kubeconfig = workload.kubeconfig();
        Ok(Self {
            management,
            programs: workload.controller_managers()?,
            locks: Locks::in_namespace(workload.client()?, KUBE_SYSTEM),
            workload_kubectl: Kubectl::new(management.run(), &Assets::locate()?, kubeconfig)?,
            _workload: workload,
            node,
            kube_pod,
            kube_port,
            cloud_port,
        })
    }

    /// Starts kube-controller-manager, whose mirror Pod exists already.
    pub(super) async fn kube(&self, name: &str, more: &[&str]) -> Result<ControllerManager> {
        let mut flags = self
            .programs
            .flags(Program::Kube, Identity::Administrator, &self.locks);
        // The values of several flags would add up.
        if more.iter().any(|flag| flag.starts_with(CONTROLLERS)) {
            flags.retain(|flag| !flag.starts_with(CONTROLLERS));
        }
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        let name = format!("kube-{name}");
        self.programs
            .start_on(self.kube_port, Program::Kube, &name, &flags)
            .await
    }

    /// Starts cloud-controller-manager and creates its Pod.
    pub(super) async fn cloud(
        &self,
        name: &str,
        identity: Identity,
        cloud: &CloudPod<'_>,
    ) -> Result<ControllerManager> {
        let name = format!("cloud-{name}");
        self.create_cloud_pod(cloud).await?;
        // Long enough to see a Lease that is still fresh after its holder was killed.
        let lease = ["--leader-elect-lease-duration=30s"];
        let lock = (identity, &self.locks);
        self.programs
            .start_cloud(self.cloud_port, &name, cloud, lock, &lease)
            .await
    }

    /// Creates the Pod of cloud-controller-manager, and the `ConfigMap` with its configuration.
    pub(super) async fn create_cloud_pod(&self, cloud: &CloudPod<'_>) -> Result<()> {
        self.delete_cloud_pod().await?;
        self.apply(&[cloud.config_map(), cloud.pod(&self.node)]).await
    }

    async fn apply(&self, objects: &[Value]) -> Result<()> {
        written(&self.workload_kubectl, "apply", objects, &["-n", KUBE_SYSTEM]).await?;
        Ok(())
    }

    /// `check --ccm deployment/NAME` says the same as `check --ccm FILE` with the manifest of the Deployment.
    pub(super) async fn checks_the_object_as_its_manifest(&self, cloud: &CloudPod<'_>) -> Result<()> {
        let labels = json!({"app": "cloud-controller-manager"});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "cloud-controller-manager"},
            "spec": {"selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": cloud.spec()}},
        });
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [deployment, cloud.config_map()]});
        self.apply(&[deployment]).await?;
        let file = self.programs.file("deployment.json", &list.to_string())?;
        let kubectl = self.management.kubectl();
        let mut checked = Vec::new();
        for ccm in [
            file.display().to_string(),
            "deployment/cloud-controller-manager".to_owned(),
        ] {
            let check = [
                "kcp",
                "leader-migration",
                "check",
                NAME,
                "-n",
                NAMESPACE,
                "-o",
                "json",
                "--ccm",
                &ccm,
                // The image's versions are those of its provider, not of Kubernetes.
                "--ccm-version=v1.36.3",
            ];
            let ended = kubectl.run(check).await?;
            ensure!(ended.code != 2, "{ended}");
            let document: Value = serde_json::from_str(&ended.stdout).with_context(|| ended.to_string())?;
            checked.push((ended.code, document));
        }
        ensure!(checked.first() == checked.last(), "{checked:?}");
        let arguments = [
            "kcp",
            "leader-migration",
            "check",
            NAME,
            "-n",
            NAMESPACE,
            "--ccm",
            "daemonset/none",
        ];
        let missing = kubectl.run(arguments).await?;
        ensure!(
            missing.code == 2
                && missing
                    .stderr
                    .contains("daemonset/none: not found in namespace kube-system of the workload cluster"),
            "{missing}"
        );
        Ok(())
    }

    /// Applies the permissions that `generate` prints without a cluster, for a control plane before the upgrade.
    pub(super) async fn permit_migration_lock(&self) -> Result<()> {
        let old = control_plane(NAME, 1, "v1.35.4").to_string();
        let old = self.programs.file("old.json", &old)?.display().to_string();
        let generate = [
            "kcp",
            "leader-migration",
            "generate",
            "--step=start",
            "-f",
            &old,
            "-o=rbac",
        ];
        let generate = generate.iter().chain(&NODE_IPAM);
        let printed = self.management.kubectl().succeed(generate).await?.stdout;
        let file = self.programs.file("rbac.yaml", &printed)?.display().to_string();
        self.workload_kubectl.succeed(["apply", "-f", &file]).await?;
        Ok(())
    }

    pub(super) async fn delete_cloud_pod(&self) -> Result<()> {
        let arguments = ["delete", "pod", CLOUD_POD, "-n", KUBE_SYSTEM];
        let now = ["--grace-period=0", "--force", "--ignore-not-found"];
        self.workload_kubectl
            .succeed(arguments.into_iter().chain(now))
            .await?;
        Ok(())
    }

    pub(super) async fn permit_main_lock(&self) -> Result<()> {
        permit_main_lock(&self.workload_kubectl).await
    }

    pub(super) async fn end(&self, manager: &mut ControllerManager) -> Result<()> {
        manager.kill().await?;
        self.vacate_all().await
    }

    /// Deletes the Leases, which processes that were killed do not release.
    pub(super) async fn vacate_all(&self) -> Result<()> {
        let leases = ["kube-controller-manager", "cloud-controller-manager", MIGRATION];
        let arguments = ["delete", "lease", "-n", KUBE_SYSTEM, "--ignore-not-found"];
        self.workload_kubectl
            .succeed(arguments.into_iter().chain(leases))
            .await?;
        Ok(())
    }

    async fn status(&self) -> Result<Status> {
        let arguments = [
            "kcp",
            "leader-migration",
            "status",
            NAME,
            "-n",
            NAMESPACE,
            "-o",
            "json",
        ];
        let ended = self.management.kubectl().run(arguments).await?;
        let document = serde_json::from_str(&ended.stdout).with_context(|| ended.to_string())?;
        schema::holds("leadermigrationstatus.json", &document).with_context(|| ended.to_string())?;
        Ok(Status {
            code: ended.code,
            document,
        })
    }

    /// Waits until `status` has this verdict.
    pub(super) async fn comes_to_verdict(&self, verdict: &str, code: i32) -> Result<Status> {
        let what = format!("status says {verdict}");
        wait::until_within(&what, LIMIT, || self.has_verdict(verdict, code)).await
    }

    /// Waits until `status` has this verdict, with this reason for Node IPAM.
    pub(super) async fn comes_to(&self, verdict: &str, code: i32, reason: &str) -> Result<Status> {
        let what = format!("status says {verdict}: {reason}");
        wait::until_within(&what, LIMIT, || async {
            let status = self.has_verdict(verdict, code).await?;
            ensure!(status.reason() == reason, "{status:?}");
            Ok(status)
        })
        .await
    }

    async fn has_verdict(&self, verdict: &str, code: i32) -> Result<Status> {
        let status = self.status().await?;
        ensure!(
            status.at("/verdict") == verdict && status.node_ipam("verdict") == verdict,
            "{status:?}"
        );
        ensure!(status.code == code, "{status:?}");
        Ok(status)
    }
}
