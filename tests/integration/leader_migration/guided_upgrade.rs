//! A whole migration of Node IPAM with the steps of `leader-migration generate`: the real controller of Cluster API rolls out
//! what kubectl applies, the real webhook judges it, and real controller managers report what they run.
//!
//! kube-controller-manager 1.35 is not built here. A cloud-controller-manager with its lock stands for it.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::addresses::free_port;
use kcp_tests::assets::Assets;
use kcp_tests::cluster::Cluster;
use kcp_tests::controller_manager::{ControllerManager, ControllerManagers, Identity, Locks, Program};
use kcp_tests::kubectl::Kubectl;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use super::MIGRATION;
use super::guided_start::replaced;
use super::steps::{NODE_IPAM, Steps};
use crate::objects::written;
use crate::shared::with_controllers;

const NAMESPACE: &str = "migration-guided-upgrade";

/// The name of the cluster.
const NAME: &str = "edge";

const OLD: &str = "v1.35.4";

const NEW: &str = "v1.36.3";

const KUBE_SYSTEM: &str = "kube-system";

const CLOUD_POD: &str = "cloud-controller-manager-edge";

/// Where `start` installs the configuration.
const PATH: &str = "/etc/kubernetes/leader-migration.yaml";

#[test]
fn node_ipam_is_handed_over_by_what_generate_prints() {
    with_controllers(NAMESPACE, migrated);
}

async fn migrated(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, OLD).await?;
    cluster.settled(1).await?;
    let scene = Scene::set(management, &cluster).await?;
    scene.start().await?;
    let mut kube = scene.upgrade_waits_for_every_controller_manager().await?;
    scene.upgrade_is_conditional_and_rollback_restores().await?;
    scene.upgrade().await?;
    kube.kill().await?;
    scene.finish().await?;
    cluster.delete().await
}

struct Scene<'m> {
    management: &'m ManagementCluster,
    cluster: &'m Cluster,
    workload: std::sync::Arc<WorkloadCluster>,
    workload_kubectl: Kubectl,
    programs: ControllerManagers,
    locks: Locks,
    /// Where the port-forwards to each Pod of kube-controller-manager end.
    kube_port: u16,
    manifest: String,
    manifest_without_migration: String,
}

/// A static Pod of cloud-controller-manager.
fn static_pod(migrates: bool) -> String {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "cloud-controller-manager", "namespace": KUBE_SYSTEM},
    "spec": {
        "hostNetwork": true,
        "containers": [{
            "name": "cloud-controller-manager",
            "image": "registry.k8s.io/provider-os/openstack-cloud-controller-manager:v1.36.0",
            "args": ["--allocate-node-cidrs=true", "--controllers=node-ipam-controller",
                format!("--enable-leader-migration={migrates}"), format!("--leader-migration-config={PATH}")],
            "volumeMounts": [{"name": "etc", "mountPath": "/etc/kubernetes"}],
        }],
        "volumes": [{"name": "etc", "hostPath": {"path": "/etc/kubernetes"}}],
    }});
    let mut pod = pod;
    if !migrates
        && let Some(flags) = pod
            .pointer_mut("/spec/containers/0/args")
            .and_then(Value::as_array_mut)
    {
        flags.truncate(2);
    }
    pod.to_string()
}

impl<'m> Scene<'m> {
    async fn set(management: &'m ManagementCluster, cluster: &'m Cluster) -> Result<Self> {
        let workload = management.machines().cluster(NAMESPACE, NAME).await?;
        let programs = workload.controller_managers()?;
        let file = |name: &str, migrates: bool| -> Result<String> {
            Ok(programs.file(name, &static_pod(migrates))?.display().to_string())
        };
        Ok(Self {
            management,
            cluster,
            workload_kubectl: Kubectl::new(management.run(), &Assets::locate()?, workload.kubeconfig())?,
            locks: Locks::in_namespace(workload.client()?, KUBE_SYSTEM),
            kube_port: free_port()?,
            manifest: file("ccm.json", true)?,
            manifest_without_migration: file("ccm-after.json", false)?,
            programs,
            workload,
        })
    }

    fn steps(&self) -> Steps<'_> {
        Steps {
            management: self.management,
            workload: &self.workload_kubectl,
            namespace: NAMESPACE,
            name: NAME,
        }
    }

    fn upgrade_flags(&self) -> [&str; 4] {
        ["--to", NEW, "--ccm-manifest", &self.manifest]
    }

    async fn spec(&self) -> Result<Value> {
        let object = self.cluster.get().await?;
        object
            .get("spec")
            .cloned()
            .context("the control plane has no spec")
    }

    async fn start(&self) -> Result<()> {
        let old = self.cluster.machines().await?;
        self.steps().take("start", &NODE_IPAM).await?;
        replaced(self.cluster, &old).await
    }

    /// A controller manager behind the Pod of kube-controller-manager on the only Machine, with these flags.
    async fn kube(&self, program: Program, name: &str, more: &[String]) -> Result<ControllerManager> {
        let machines = self.cluster.machines().await?;
        let machine = machines.first().context("the control plane has no Machine")?;
        let pod = format!("kube-controller-manager-{machine}");
        self.workload.forward(&pod, 10257, self.kube_port).await?;
        self.manager(self.kube_port, program, name, more).await
    }

    async fn manager(
        &self,
        port: u16,
        program: Program,
        name: &str,
        more: &[String],
    ) -> Result<ControllerManager> {
        const CONTROLLERS: &str = "--controllers=";
        let mut flags = self.programs.flags(program, Identity::Administrator, &self.locks);
        // Its values would add up.
        flags.retain(|flag| !flag.starts_with(CONTROLLERS));
        flags.extend_from_slice(more);
        self.programs.start_on(port, program, name, &flags).await
    }

    async fn vacate(&self) -> Result<()> {
        let leases = ["kube-controller-manager", "cloud-controller-manager", MIGRATION];
        let arguments = ["delete", "lease", "-n", KUBE_SYSTEM, "--ignore-not-found"];
        self.workload_kubectl
            .succeed(arguments.into_iter().chain(leases))
            .await?;
        Ok(())
    }

    /// The flags with which a controller manager uses the configuration that `start` installed.
    async fn migration_flags(&self) -> Result<[String; 2]> {
        let spec = self.spec().await?;
        let files = spec.pointer("/kubeadmConfigSpec/files").and_then(Value::as_array);
        let mut files = files.into_iter().flatten();
        let file = files.find(|file| file.get("path") == Some(&json!(PATH)));
        let content = file.and_then(|file| file.get("content")?.as_str());
        let path = self
            .programs
            .file("leader.yaml", content.context("no configuration")?)?;
        Ok([
            "--enable-leader-migration=true".to_owned(),
            format!("--leader-migration-config={}", path.display()),
        ])
    }

    async fn upgrade_waits_for_every_controller_manager(&self) -> Result<ControllerManager> {
        let own = [
            "--leader-elect-resource-name=kube-controller-manager".to_owned(),
            "--controllers=node-ipam-controller".to_owned(),
        ];
        let mut old = self.kube(Program::Cloud, "old", &own).await?;
        self.locks.held("kube-controller-manager").await?;
        let reason = "runs without leader migration";
        self.steps()
            .is_refused("upgrade", &self.upgrade_flags(), reason)
            .await?;
        old.kill().await?;
        self.vacate().await?;

        let flags = [&own[..], &self.migration_flags().await?].concat();
        let migrating = self.kube(Program::Cloud, "migrating", &flags).await?;
        self.locks.held(MIGRATION).await?;
        Ok(migrating)
    }

    /// Nothing is rolled out, because the control plane is paused.
    async fn upgrade_is_conditional_and_rollback_restores(&self) -> Result<()> {
        self.cluster.pause(true).await?;
        let enabled = self.spec().await?;
        let steps = self.steps();
        let flags = self.upgrade_flags();
        let stale = wait::until("Node IPAM is protected", || {
            steps.commands("upgrade", "patch", &flags)
        });
        let stale = stale.await?.into_iter().next().context("no command")?;
        let kubectl = self.management.kubectl();
        let annotate = ["annotate", "kcp", NAME, "-n", NAMESPACE, "changed=true"];
        kubectl.succeed(annotate).await?;
        let rejected = kubectl.run(&stale).await?;
        ensure!(
            rejected.code == 1 && rejected.stderr.contains("the object has been modified"),
            "{rejected}"
        );
        ensure!(self.spec().await? == enabled, "a stale patch wrote");

        let generation = self.generation().await?;
        steps.take("upgrade", &self.upgrade_flags()).await?;
        ensure!(self.generation().await? == generation + 1, "more than one write");
        let flags = self.extra_args().await?;
        ensure!(
            flags
                == json!([{"name": "controllers", "value": "*,bootstrapsigner,tokencleaner,-node-ipam-controller"}]),
            "{flags}"
        );
        // The upgrade is written, so there is nothing more to change.
        steps.take("upgrade", &self.upgrade_flags()).await?;
        ensure!(self.generation().await? == generation + 1, "more than one write");
        steps.is_refused("finish", &[], "not yet v1.36.3").await?;
        steps.take("rollback", &[]).await?;
        let restored = self.spec().await?;
        ensure!(restored == enabled, "{restored} instead of {enabled}");
        Ok(())
    }

    async fn generation(&self) -> Result<i64> {
        let object = self.cluster.get().await?;
        let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
        generation.context("no generation")
    }

    async fn extra_args(&self) -> Result<Value> {
        let spec = self.spec().await?;
        let flags = spec.pointer("/kubeadmConfigSpec/clusterConfiguration/controllerManager/extraArgs");
        Ok(flags.cloned().unwrap_or_default())
    }

    async fn upgrade(&self) -> Result<()> {
        let old = self.cluster.machines().await?;
        self.steps().take("upgrade", &self.upgrade_flags()).await?;
        self.cluster.pause(false).await?;
        replaced(self.cluster, &old).await?;
        self.steps()
            .is_refused("rollback", &[], "Kubernetes does not support downgrades")
            .await
    }

    /// kube-controller-manager 1.36 runs with the flags that `upgrade` wrote.
    async fn finish(&self) -> Result<()> {
        self.vacate().await?;
        let flags = self.extra_args().await?;
        let flags: Vec<String> = flags
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|flag| {
                Some(format!(
                    "--{}={}",
                    flag.get("name")?.as_str()?,
                    flag.get("value")?.as_str()?
                ))
            })
            .collect();
        let mut kube = self.kube(Program::Kube, "new", &flags).await?;
        self.locks.held("kube-controller-manager").await?;
        let started = kube.controllers().await?;
        ensure!(!started.contains("node-ipam-controller"), "{started:?}");
        let finish = ["--ccm-manifest", &self.manifest_without_migration];
        let steps = self.steps();
        let nobody = "no controller manager runs node-ipam-controller";
        steps.is_refused("finish", &finish, nobody).await?;

        let port = free_port()?;
        self.workload.forward(CLOUD_POD, 10258, port).await?;
        let mut pod: Value = serde_json::from_str(&static_pod(true))?;
        if let Some(name) = pod.pointer_mut("/metadata/name") {
            *name = json!(CLOUD_POD);
        }
        let machines = self.cluster.machines().await?;
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("nodeName".to_owned(), json!(machines.first()));
        }
        written(&self.workload_kubectl, "create", &[pod], &["-n", KUBE_SYSTEM]).await?;
        let mut flags = vec!["--controllers=node-ipam-controller".to_owned()];
        flags.extend(self.migration_flags().await?);
        let mut cloud = self.manager(port, Program::Cloud, "new-owner", &flags).await?;
        self.locks.held(MIGRATION).await?;
        let migrates = "the static Pod of cloud-controller-manager enables leader migration";
        self.cluster.pause(true).await?;
        wait::until("cloud-controller-manager runs Node IPAM", || {
            steps.is_refused("finish", &[], migrates)
        })
        .await?;
        let delete = steps.take("finish", &finish).await?.context("no command")?;
        let spec = self.spec().await?.to_string();
        ensure!(
            !spec.contains(PATH) && !spec.contains("enable-leader-migration"),
            "{spec}"
        );
        kube.kill().await?;
        cloud.kill().await?;
        self.workload_kubectl.succeed(&delete).await?;
        let left = ["get", "lease,role,rolebinding", "-n", KUBE_SYSTEM, "-o", "name"];
        let left = self.workload_kubectl.succeed(left).await?.stdout;
        ensure!(
            !left.contains("/leader-migration\n") && !left.contains("/migration\n"),
            "{left}"
        );
        self.cluster.pause(false).await
    }
}
