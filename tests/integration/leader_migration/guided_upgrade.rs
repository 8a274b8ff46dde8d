//! A whole migration of Node IPAM with `start`, `upgrade`, `rollback` and `finish`: the real controller of Cluster API rolls out
//! what they write, the real webhook judges it, and real controller managers report what they run.
//!
//! kube-controller-manager 1.35 is not built here. A cloud-controller-manager with its lock stands for it.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::addresses::free_port;
use kcp_tests::assets::Assets;
use kcp_tests::cluster::Cluster;
use kcp_tests::controller_manager::{ControllerManager, ControllerManagers, Identity, Locks, Program};
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use super::MIGRATION;
use crate::objects::written;
use crate::shared::with_controllers;

const NAMESPACE: &str = "migration-guided-upgrade";

/// The name of the cluster.
const NAME: &str = "edge";

const OLD: &str = "v1.35.4";

const NEW: &str = "v1.36.3";

const KUBE_SYSTEM: &str = "kube-system";

const CLOUD_POD: &str = "cloud-controller-manager-edge";

/// `--wait`, with a limit below that of a command in these tests.
const WAIT: &str = "--wait=9m";

/// Why `--wait` ends without success while nothing is rolled out.
const PAUSED: &str = " is paused: no controller reconciles ";

/// Where `start` installs the configuration.
const PATH: &str = "/etc/kubernetes/leader-migration.yaml";

#[test]
fn node_ipam_is_handed_over_by_start_upgrade_and_finish() {
    with_controllers(NAMESPACE, migrated);
}

async fn migrated(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, OLD).await?;
    cluster.settled(1).await?;
    let scene = Scene::set(management, &cluster).await?;
    scene.start().await?;
    let mut kube = scene.upgrade_waits_for_every_controller_manager().await?;
    scene.upgrade_and_rollback_write_once().await?;
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

    async fn run(&self, verb: &str, more: &[&str]) -> Result<CommandOutput> {
        let arguments = ["kcp", "leader-migration", verb, NAME, "-n", NAMESPACE];
        let yes = (verb != "rbac").then_some(&"--yes");
        let arguments = arguments.iter().chain(more).chain(yes);
        self.management.kubectl().run(arguments).await
    }

    async fn runs(&self, verb: &str, more: &[&str], code: i32, text: &str) -> Result<CommandOutput> {
        let ended = self.run(verb, more).await?;
        ensure!(
            ended.code == code && ended.stdout.contains(text),
            "{verb} {text}: {ended}"
        );
        Ok(ended)
    }

    async fn spec(&self) -> Result<Value> {
        let object = self.cluster.get().await?;
        object
            .get("spec")
            .cloned()
            .context("the control plane has no spec")
    }

    /// Waits until the rollout has replaced the Machine.
    async fn replaced(&self, old: &[String]) -> Result<()> {
        wait::until("the rollout replaces the Machine", || async {
            let now = self.cluster.machines().await?;
            ensure!(now.len() == 1 && now != old, "{now:?}");
            Ok(())
        })
        .await?;
        self.cluster.settled(1).await
    }

    async fn start(&self) -> Result<()> {
        let old = self.cluster.machines().await?;
        let flags = ["--to=v1.36.0", "--node-ipam", "--leader-name", MIGRATION];
        let before = self.spec().await?;
        let planned = [&flags[..], &["--dry-run=server"]].concat();
        let planned = self.runs("start", &planned, 0, "(server dry run)").await?;
        let arguments = "spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs";
        let line = format!("  + {arguments}[enable-leader-migration].value: true\n");
        ensure!(planned.stdout.contains(&line), "{planned}");
        ensure!(self.spec().await? == before, "a dry run wrote");
        self.runs(
            "start",
            &flags,
            0,
            "leader migration enabled with Lease migration",
        )
        .await?;
        self.replaced(&old).await
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
        let upgrade = ["--to", NEW, "--ccm-manifest", &self.manifest];
        let mut old = self.kube(Program::Cloud, "old", &own).await?;
        self.locks.held("kube-controller-manager").await?;
        self.runs("upgrade", &upgrade, 1, "runs without leader migration")
            .await?;
        old.kill().await?;
        self.vacate().await?;

        let flags = [&own[..], &self.migration_flags().await?].concat();
        let migrating = self.kube(Program::Cloud, "migrating", &flags).await?;
        self.locks.held(MIGRATION).await?;
        let start = ["--to=v1.36.0", "--node-ipam", "--leader-name", MIGRATION];
        let started = "every kube-controller-manager uses leader migration with Lease migration";
        self.runs("start", &start, 0, started).await?;

        let forbidden = format!(
            "{} is not allowed to update Lease {MIGRATION}",
            Program::Cloud.user()
        );
        self.runs("upgrade", &upgrade, 1, &forbidden).await?;
        let rbac = ["--leader-name", MIGRATION, "--apply"];
        self.runs("rbac", &rbac, 0, "leader-migration created").await?;
        Ok(migrating)
    }

    /// Nothing is rolled out, because the control plane is paused.
    async fn upgrade_and_rollback_write_once(&self) -> Result<()> {
        self.cluster.pause(true).await?;
        let enabled = self.spec().await?;
        let upgrade = ["--to", NEW, "--ccm-manifest", &self.manifest];
        let planned = [&upgrade[..], &["--dry-run=server"]].concat();
        let planned = self.runs("upgrade", &planned, 0, "(server dry run)").await?;
        for line in [
            format!("  - spec.version: {OLD}"),
            format!("  + spec.version: {NEW}"),
        ] {
            ensure!(planned.stdout.contains(&line), "{planned}");
        }
        ensure!(self.spec().await? == enabled, "a dry run wrote");

        let generation = self.generation().await?;
        let waiting = [&upgrade[..], &[WAIT]].concat();
        let handover = "with the handover to cloud-controller-manager";
        let written = self.runs("upgrade", &waiting, 1, handover).await?;
        ensure!(written.stdout.contains(PAUSED), "{written}");
        ensure!(self.generation().await? == generation + 1, "more than one write");
        let flags = self.extra_args().await?;
        ensure!(
            flags
                == json!([{"name": "controllers", "value": "*,bootstrapsigner,tokencleaner,-node-ipam-controller"}]),
            "{flags}"
        );
        self.runs("upgrade", &upgrade, 1, "not yet v1.36.3").await?;
        let back = "rolled back to v1.35.4 with leader migration";
        let written = self.runs("rollback", &[WAIT], 1, back).await?;
        ensure!(written.stdout.contains(PAUSED), "{written}");
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
        let upgrade = ["--to", NEW, "--ccm-manifest", &self.manifest];
        let waiting = [&upgrade[..], &[WAIT]].concat();
        self.cluster.pause(false).await?;
        let handover = "with the handover to cloud-controller-manager";
        let upgraded = self.runs("upgrade", &waiting, 0, handover).await?;
        let confirmed = "the rollout of kubeadmcontrolplane/edge is complete\n";
        ensure!(
            upgraded.stdout.contains(confirmed) && upgraded.stdout.contains("every Machine has v1.36.3"),
            "{upgraded}"
        );
        // The wait ends after the rollout.
        self.cluster.is_settled(1).await?;
        ensure!(
            self.cluster.machines().await? != old,
            "the rollout replaced no Machine"
        );
        self.runs("rollback", &[], 1, "Kubernetes does not support downgrades")
            .await?;
        self.runs("upgrade", &upgrade, 0, "every Machine has v1.36.3")
            .await?;
        Ok(())
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
        self.runs(
            "finish",
            &finish,
            1,
            "no controller manager runs node-ipam-controller",
        )
        .await?;

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
        self.runs(
            "finish",
            &[],
            1,
            "the static Pod of cloud-controller-manager enables leader migration",
        )
        .await?;
        self.cluster.pause(true).await?;
        let waiting = [&finish[..], &[WAIT]].concat();
        wait::until("cloud-controller-manager runs Node IPAM", || async {
            let finished = "leader migration finished at v1.36.3";
            let written = self.runs("finish", &waiting, 1, finished).await?;
            ensure!(written.stdout.contains(PAUSED), "{written}");
            Ok(())
        })
        .await?;
        let spec = self.spec().await?.to_string();
        ensure!(
            !spec.contains(PATH) && !spec.contains("enable-leader-migration"),
            "{spec}"
        );
        self.runs(
            "finish",
            &[],
            1,
            "cloud-controller-manager still uses leader migration",
        )
        .await?;
        kube.kill().await?;
        cloud.kill().await?;
        self.cluster.pause(false).await
    }
}
