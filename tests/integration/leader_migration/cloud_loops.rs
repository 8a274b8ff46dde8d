//! The loops of a cloud move from kube-controller-manager 1.30, the last version that can contain a cloud, to
//! cloud-controller-manager, and back again. The steps of `leader-migration generate` write the control plane, and the
//! kube-controller-managers run with the flags and files of the control plane.
//!
//! The proof is what each program lists at `/healthz`, and which program wrote the status of a Service, according to its
//! managedFields. kube-controller-manager 1.31 is not built here: 1.36 stands for it.

#![expect(clippy::print_stdout, reason = "the measured gaps are part of the result")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kcp_rules::leader_migration::Flags;
use kcp_rules::leader_migration::handover::{Timing, gap};
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

use super::paused::{ControlPlane, NAME};
use super::{ELECTION, MIGRATION};
use crate::objects::written;
use crate::shared::with_controllers;

const NAMESPACE: &str = "migration-cloud-loops";

const OLD: &str = "v1.30.14";

const NEW: &str = "v1.31.14";

/// The version of the program that stands for [`NEW`].
const STAND_IN: &str = "v1.36.3";

const LOOPS: [&str; 3] = [
    "node-route-controller",
    "service-lb-controller",
    "cloud-node-lifecycle-controller",
];

const KUBE_SYSTEM: &str = "kube-system";

/// Takes two lease periods. The rest is for a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

#[test]
#[ignore = "needs kube-controller-managers that take half an hour to build: make test-migration"]
fn the_loops_of_a_cloud_move_from_1_30_to_cloud_controller_manager_and_back() {
    with_controllers(NAMESPACE, moved);
}

async fn moved(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, OLD).await?;
    cluster.settled(1).await?;
    let control_plane = ControlPlane {
        management,
        cluster: &cluster,
        namespace: NAMESPACE,
        old: OLD,
        new: NEW,
        node_ipam: false,
    };
    let controllers = format!("*,{}", LOOPS.join(","));
    let arguments = [
        ("cloud-provider", "demo"),
        // An in-tree cloud provider needs this gate at 1.30, and no later version starts with it.
        ("feature-gates", "DisableCloudProviders=false"),
        ("controllers", &controllers),
    ];
    let arguments = arguments.map(|(name, value)| json!({"name": name, "value": value}));
    control_plane.pause(&arguments).await?;

    let scene = Scene::set(control_plane).await?;
    scene.control_plane.start(&scene.kubectl).await?;
    let port = scene.kube_port().await?;
    let old = scene.kube("old", OLD, OLD, port).await?;
    scene.runs_all(&old).await?;
    scene.service("before", "kube-controller-manager-1.30").await?;

    let cloud = scene.cloud().await?;
    scene.control_plane.upgrade(&scene.kubectl).await?;
    scene.is_handed_over().await?;
    let mut new = scene.kube("new", NEW, STAND_IN, free_port()?).await?;
    new.logged(&attempt(Program::Kube.name())).await?;
    scene.owned_by(&old, &[&new, &cloud]).await?;
    scene
        .take_over("1.30 to cloud-controller-manager", old, &cloud, &[&new])
        .await?;
    scene.service("after", "cloud-controller-manager").await?;

    new.kill().await?;
    scene.control_plane.roll_back(&scene.kubectl).await?;
    let mut old = scene.kube("back", OLD, OLD, port).await?;
    // 1.30 logs it as text.
    old.logged(&format!("leader lease {KUBE_SYSTEM}/{MIGRATION}"))
        .await?;
    scene.owned_by(&cloud, &[&old]).await?;
    scene
        .take_over("cloud-controller-manager to 1.30", cloud, &old, &[])
        .await?;
    scene.service("back", "kube-controller-manager-1.30").await?;

    cluster.pause(false).await?;
    cluster.delete().await
}

/// What a candidate logs when it tries to take a lock for the first time (client-go, `leaderelection.go`).
fn attempt(lock: &str) -> String {
    format!("lock=\"{KUBE_SYSTEM}/{lock}\"")
}

/// The loops that a program runs. One that does not respond runs none.
async fn loops_of(manager: &ControllerManager) -> BTreeSet<&'static str> {
    let controllers = manager.controllers().await.unwrap_or_default();
    LOOPS
        .into_iter()
        .filter(|name| controllers.contains(*name))
        .collect()
}

struct Scene<'m> {
    control_plane: ControlPlane<'m>,
    assets: Assets,
    programs: ControllerManagers,
    locks: Locks,
    kubectl: Kubectl,
    workload: Arc<WorkloadCluster>,
    node: String,
}

impl<'m> Scene<'m> {
    async fn set(control_plane: ControlPlane<'m>) -> Result<Self> {
        let management = control_plane.management;
        let workload = management.machines().cluster(NAMESPACE, NAME).await?;
        let mut machines = control_plane.cluster.machines().await?;
        let assets = Assets::locate()?;
        Ok(Self {
            programs: workload.controller_managers()?,
            locks: Locks::in_namespace(workload.client()?, KUBE_SYSTEM),
            kubectl: Kubectl::new(management.run(), &assets, workload.kubeconfig())?,
            node: machines.pop().context("there is no Machine")?,
            assets,
            workload,
            control_plane,
        })
    }

    /// The local port behind the Pod of kube-controller-manager.
    async fn kube_port(&self) -> Result<u16> {
        let port = free_port()?;
        let pod = format!("kube-controller-manager-{}", self.node);
        self.workload.forward(&pod, 10257, port).await?;
        Ok(port)
    }

    /// Starts a kube-controller-manager as the control plane asks for while it has this version.
    async fn kube(&self, name: &str, version: &str, program: &str, port: u16) -> Result<ControllerManager> {
        let spec = self.control_plane.kubeadm_config_spec(version).await?;
        let flags = self.workload.flags_for(name, &spec).await?;
        let program = self.assets.kube_controller_manager(program)?;
        self.programs
            .start_program_on(port, &program, name, &flags.process)
            .await
    }

    /// Starts cloud-controller-manager with the same configuration, and waits until it waits for the migration lock.
    async fn cloud(&self) -> Result<ControllerManager> {
        let configuration = self.control_plane.configuration().await?;
        let pod = CloudPod {
            controllers: &LOOPS.join(","),
            configuration: Some(&configuration),
        };
        let objects = [pod.config_map(), pod.pod(&self.node)];
        written(&self.kubectl, "apply", &objects, &["-n", KUBE_SYSTEM]).await?;
        let port = free_port()?;
        self.workload.forward(CLOUD_POD, 10258, port).await?;
        let lock = (Identity::Administrator, &self.locks);
        let started = self.programs.start_cloud(port, "cloud", &pod, lock, &ELECTION);
        let mut cloud = started.await?;
        cloud.logged(&attempt(MIGRATION)).await?;
        Ok(cloud)
    }

    /// Succeeds if the control plane has neither a cloud nor leader migration in kube-controller-manager.
    async fn is_handed_over(&self) -> Result<()> {
        let spec = self.control_plane.kubeadm_config_spec(NEW).await?;
        let arguments = spec.pointer("/clusterConfiguration/controllerManager/extraArgs");
        let mut arguments = arguments.and_then(Value::as_array).cloned().unwrap_or_default();
        arguments.retain(|argument| !argument.to_string().contains("leader-elect-"));
        let controllers = format!("*,{}", LOOPS.join(","));
        ensure!(
            arguments
                == [
                    json!({"name": "cloud-provider", "value": "external"}),
                    json!({"name": "controllers", "value": controllers}),
                ],
            "{arguments:?}"
        );
        Ok(())
    }

    async fn runs_all(&self, manager: &ControllerManager) -> Result<()> {
        wait::until("it runs every loop", || async {
            let running = loops_of(manager).await;
            ensure!(running.len() == LOOPS.len(), "{running:?}");
            Ok(())
        })
        .await
    }

    /// Succeeds if one program runs every loop, and the others run none.
    async fn owned_by(&self, owner: &ControllerManager, others: &[&ControllerManager]) -> Result<()> {
        let running = loops_of(owner).await;
        ensure!(running.len() == LOOPS.len(), "{running:?}");
        for other in others {
            let running = loops_of(other).await;
            ensure!(running.is_empty(), "another program runs {running:?}");
        }
        Ok(())
    }

    /// Kills the owner, and samples until its successor runs every loop. No other program runs one.
    async fn take_over(
        &self,
        what: &str,
        mut owner: ControllerManager,
        successor: &ControllerManager,
        others: &[&ControllerManager],
    ) -> Result<()> {
        let holder = self.locks.held(MIGRATION).await?;
        let killed = Timestamp::now();
        owner.kill().await?;
        let end = Instant::now() + LIMIT;
        let mut samples = 0;
        loop {
            samples += 1;
            for other in others {
                let running = loops_of(other).await;
                ensure!(running.is_empty(), "another program runs {running:?}");
            }
            if loops_of(successor).await.len() == LOOPS.len() {
                break;
            }
            ensure!(Instant::now() < end, "no program runs every loop");
        }
        let lease = self.locks.held_by_another(MIGRATION, &holder).await?;
        let acquired = lease.acquire_time.context("the Lease has no acquireTime")?;
        let measured = acquired.0.duration_since(killed).as_secs_f64();
        let timing = Timing::from_flags(&Flags::from_command(ELECTION));
        let period = timing.lease_duration.as_secs_f64();
        let predicted = gap(timing, timing, 1);
        let (min, max) = (predicted.min.as_secs_f64(), predicted.max.as_secs_f64());
        println!(
            "cloud loops, {what}: {:.2} lease periods; predicted {:.2} to {:.2}; {samples} samples",
            measured / period,
            min / period,
            max / period
        );
        ensure!(
            (min..=max).contains(&measured),
            "a gap of {measured} s is not within {min} to {max} s"
        );
        Ok(())
    }

    /// Creates a Service, and waits until a program has given it a load balancer.
    async fn service(&self, name: &str, writer: &str) -> Result<()> {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        written(&self.kubectl, "create", &[service], &["-n", KUBE_SYSTEM]).await?;
        let get = [
            "get",
            "service",
            name,
            "-n",
            KUBE_SYSTEM,
            "-o",
            "json",
            "--show-managed-fields",
        ];
        wait::until_within("the Service has a load balancer", LIMIT, || async {
            let read = self.kubectl.succeed(get).await?;
            let read: Value = serde_json::from_str(&read.stdout)?;
            let fields = read.pointer("/metadata/managedFields").and_then(Value::as_array);
            let wrote = |entry: &&Value| entry.pointer("/fieldsV1/f:status/f:loadBalancer").is_some();
            let entry = fields.and_then(|fields| fields.iter().find(wrote));
            let manager = entry.and_then(|entry| entry.get("manager")?.as_str());
            let manager = manager.context("it has none")?;
            assert_eq!(manager, writer, "{name}");
            Ok(())
        })
        .await
    }
}
