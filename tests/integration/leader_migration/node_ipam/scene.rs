//! A workload cluster whose kube-controller-managers and cloud-controller-manager start and end one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kcp_tests::addresses::free_port;
use kcp_tests::assets::Assets;
use kcp_tests::controller_manager::{
    CLOUD_POD, CloudPod, ControllerManager, ControllerManagers, Identity, Locks, Program,
};
use kcp_tests::kubectl::Kubectl;
use kcp_tests::machines::{PodCidrWrite, WorkloadCluster};
use kcp_tests::wait;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::{ELECTION, MIGRATION, NAMESPACE};
use crate::leader_migration::paused::{ControlPlane, NAME};
use crate::leader_migration::permissions::permit_main_lock;
use crate::objects::written;

pub(super) const NODE_IPAM: &str = "node-ipam-controller";

const KUBE_SYSTEM: &str = "kube-system";

/// The label of Nodes that only these tests create.
const MINE: &str = "migration";

/// Takes seconds, or two lease periods. The rest is for a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A kube-controller-manager before or after the upgrade.
pub(super) struct Release {
    pub(super) version: &'static str,
    pod: &'static str,
}

pub(super) const OLD: Release = Release {
    version: "v1.35.4",
    pod: "kube-controller-manager-old",
};

pub(super) const NEW: Release = Release {
    version: "v1.36.3",
    pod: "kube-controller-manager-new",
};

/// A kube-controller-manager that was started.
pub(super) struct Manager {
    process: ControllerManager,
    pod: &'static str,
}

pub(super) struct Scene<'m> {
    pub(super) control_plane: ControlPlane<'m>,
    programs: ControllerManagers,
    assets: Assets,
    locks: Locks,
    kubectl: Kubectl,
    workload: Arc<WorkloadCluster>,
    node: String,
    ports: BTreeMap<&'static str, u16>,
    cloud: Option<ControllerManager>,
    new: Option<Manager>,
    samples: u32,
    /// How many samples had each number of owners and verdict.
    pub(super) verdicts: BTreeMap<String, u32>,
}

impl<'m> Scene<'m> {
    pub(super) async fn set(control_plane: ControlPlane<'m>) -> Result<Self> {
        let management = control_plane.management;
        let workload = management.machines().cluster(NAMESPACE, NAME).await?;
        let mut machines = control_plane.cluster.machines().await?;
        let node = machines.pop().context("there is no Machine")?;
        let assets = Assets::locate()?;
        let kubectl = Kubectl::new(management.run(), &assets, workload.kubeconfig())?;
        let mut ports = BTreeMap::new();
        for (pod, port) in [(OLD.pod, 10257), (NEW.pod, 10257), (CLOUD_POD, 10258)] {
            let local = free_port()?;
            workload.forward(pod, port, local).await?;
            ports.insert(pod, local);
        }
        let scene = Self {
            control_plane,
            programs: workload.controller_managers()?,
            assets,
            locks: Locks::in_namespace(workload.client()?, KUBE_SYSTEM),
            kubectl,
            workload,
            node,
            ports,
            cloud: None,
            new: None,
            samples: 0,
            verdicts: BTreeMap::new(),
        };
        // No process is behind this Pod.
        scene
            .delete_pod(&format!("kube-controller-manager-{}", scene.node))
            .await?;
        Ok(scene)
    }

    /// The name of a program in the audit log.
    pub(super) fn program(&self, release: &Release) -> Result<String> {
        let path = self.path(release)?;
        let name = path.file_name().context("a program has no name")?;
        Ok(name.to_string_lossy().into_owned())
    }

    fn path(&self, release: &Release) -> Result<PathBuf> {
        self.assets.kube_controller_manager(release.version)
    }

    fn port(&self, pod: &str) -> Result<u16> {
        self.ports
            .get(pod)
            .copied()
            .with_context(|| format!("{pod} has no port"))
    }

    /// Starts a kube-controller-manager as the control plane asks for, and creates its Pod.
    pub(super) async fn start(&mut self, release: &Release) -> Result<Manager> {
        let spec = self.control_plane.kubeadm_config_spec(release.version).await?;
        let flags = self.workload.flags_for(release.pod, &spec).await?;
        self.create_pod(release, &flags.pod).await?;
        let program = self.path(release)?;
        // A log of its own for each start, because tests wait for lines in it.
        self.samples += 1;
        let name = format!("{}-{}", release.pod, self.samples);
        let process = self
            .programs
            .start_program_on(self.port(release.pod)?, &program, &name, &flags.process)
            .await?;
        Ok(Manager {
            process,
            pod: release.pod,
        })
    }

    /// Enables leader migration, and lets cloud-controller-manager hold both locks with the permissions of its own user.
    pub(super) async fn enable(&self) -> Result<()> {
        permit_main_lock(&self.kubectl).await?;
        self.control_plane.start(&self.kubectl).await
    }

    pub(super) async fn upgrade(&self) -> Result<()> {
        self.control_plane.upgrade(&self.kubectl).await
    }

    pub(super) async fn roll_back(&self) -> Result<()> {
        self.control_plane.roll_back(&self.kubectl).await
    }

    /// Starts the cloud-controller-manager with the same configuration, and waits until it waits for the migration lock.
    pub(super) async fn start_cloud(&mut self) -> Result<()> {
        let configuration = self.control_plane.configuration().await?;
        let pod = CloudPod {
            controllers: NODE_IPAM,
            configuration: Some(&configuration),
        };
        self.delete_pod(CLOUD_POD).await?;
        self.apply(&[pod.config_map(), pod.pod(&self.node)]).await?;
        self.samples += 1;
        let name = format!("cloud-{}", self.samples);
        let lock = (Identity::Own, &self.locks);
        let mut cloud = self
            .programs
            .start_cloud(self.port(CLOUD_POD)?, &name, &pod, lock, &ELECTION)
            .await?;
        cloud.logged(&self.attempt(MIGRATION)).await?;
        self.cloud = Some(cloud);
        Ok(())
    }

    pub(super) async fn waits_for_main_lock(&self, manager: &mut Manager) -> Result<()> {
        manager.process.logged(&self.attempt(Program::Kube.name())).await
    }

    pub(super) async fn waits_for_migration_lock(&self, manager: &mut Manager) -> Result<()> {
        manager.process.logged(&self.attempt(MIGRATION)).await
    }

    /// What a candidate logs when it tries to take a lock for the first time (client-go, `leaderelection.go`).
    fn attempt(&self, lock: &str) -> String {
        format!("lock=\"{}/{lock}\"", self.locks.namespace())
    }

    pub(super) fn replace_new(&mut self, new: Manager) {
        self.new = Some(new);
    }

    /// Ends the kube-controller-manager of the new version.
    pub(super) async fn end_new(&mut self) -> Result<()> {
        let mut new = self.new.take().context("the new version does not run")?;
        new.process.kill().await?;
        self.delete_pod(new.pod).await
    }

    /// Waits until a kube-controller-manager runs Node IPAM.
    pub(super) async fn becomes_owner(&mut self, manager: &mut Manager) -> Result<()> {
        self.locks.held(MIGRATION).await?;
        let both = ["serviceaccount-token-controller", NODE_IPAM];
        manager.process.runs(&both.map(str::to_owned).into()).await?;
        self.sampled(Some(&*manager)).await.map(drop)
    }

    /// Kills the kube-controller-manager that runs Node IPAM, and waits until the cloud-controller-manager runs it. Returns
    /// when it was killed, and when the other one took the lock.
    pub(super) async fn hand_over_from_kube(&mut self, old: &mut Manager) -> Result<(Timestamp, Timestamp)> {
        self.sampled(Some(&*old)).await?;
        let holder = self.locks.held(MIGRATION).await?;
        let killed = Timestamp::now();
        old.process.kill().await?;
        self.delete_pod(old.pod).await?;
        let acquired = self.taken_over(None, &holder).await?;
        Ok((killed, acquired))
    }

    /// The same from the cloud-controller-manager to a kube-controller-manager.
    pub(super) async fn hand_over_from_cloud(&mut self, old: &Manager) -> Result<(Timestamp, Timestamp)> {
        self.sampled(Some(old)).await?;
        let holder = self.locks.held(MIGRATION).await?;
        let mut cloud = self
            .cloud
            .take()
            .context("cloud-controller-manager does not run")?;
        let killed = Timestamp::now();
        cloud.kill().await?;
        let acquired = self.taken_over(Some(old), &holder).await?;
        Ok((killed, acquired))
    }

    /// Samples until a program runs Node IPAM again, and then until it has written a Node.
    async fn taken_over(&mut self, old: Option<&Manager>, holder: &str) -> Result<Timestamp> {
        let end = std::time::Instant::now() + LIMIT;
        while self.sampled(old).await? == 0 {
            ensure!(std::time::Instant::now() < end, "nothing runs Node IPAM");
        }
        let lease = self.locks.held_by_another(MIGRATION, holder).await?;
        let acquired = lease.acquire_time.context("the Lease has no acquireTime")?;
        let nodes = self.nodes()?;
        wait::until_within("each Node has a range", LIMIT, || async {
            for node in nodes.list(&ListParams::default().labels(MINE)).await? {
                let range = node.spec.and_then(|spec| spec.pod_cidr);
                ensure!(range.is_some(), "{:?} has none", node.metadata.name);
            }
            Ok(())
        })
        .await?;
        self.sampled(old).await?;
        // There are only 256 ranges.
        for node in nodes.list(&ListParams::default().labels(MINE)).await? {
            let name = node.metadata.name.unwrap_or_default();
            nodes.delete(&name, &DeleteParams::default()).await?;
        }
        Ok(acquired.0)
    }

    /// Creates a Node, asks every program what it runs, and compares `status`. Returns the number of programs that run Node
    /// IPAM: never two.
    async fn sampled(&mut self, old: Option<&Manager>) -> Result<usize> {
        self.samples += 1;
        let node = json!({"metadata": {"name": format!("sample-{}", self.samples), "labels": {MINE: ""}}});
        let node: Node = serde_json::from_value(node)?;
        self.nodes()?.create(&PostParams::default(), &node).await?;
        let before = self.owners(old).await;
        let (verdict, output) = self.status().await?;
        let after = self.owners(old).await;
        for owners in [&before, &after] {
            ensure!(owners.len() < 2, "{owners:?} run Node IPAM at the same time");
        }
        ensure!(
            verdict != "runs-twice",
            "{owners}: {output}",
            owners = before.len()
        );
        let outcome = if before == after {
            let agrees = match before.len() {
                0 => matches!(verdict.as_str(), "orphaned" | "stale" | "unknown"),
                _ => matches!(verdict.as_str(), "protected" | "nothing-to-migrate"),
            };
            ensure!(
                agrees,
                "{before:?} run Node IPAM, but status says {verdict}: {output}"
            );
            before.len().to_string()
        } else {
            "changing".to_owned()
        };
        *self.verdicts.entry(format!("{outcome}: {verdict}")).or_default() += 1;
        Ok(after.len())
    }

    /// The programs that list Node IPAM at `/healthz`.
    async fn owners(&self, old: Option<&Manager>) -> BTreeSet<&'static str> {
        let mut owners = BTreeSet::new();
        let running = [
            ("old", old.map(|old| &old.process)),
            ("new", self.new.as_ref().map(|new| &new.process)),
            ("cloud", self.cloud.as_ref()),
        ];
        for (name, process) in running {
            // A program that does not respond runs nothing.
            if let Some(process) = process
                && let Ok(controllers) = process.controllers().await
                && controllers.contains(NODE_IPAM)
            {
                owners.insert(name);
            }
        }
        owners
    }

    /// The verdict of `status` on Node IPAM.
    async fn status(&self) -> Result<(String, String)> {
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
        let ended = self.control_plane.management.kubectl().run(arguments).await?;
        let document: Value = serde_json::from_str(&ended.stdout).with_context(|| ended.to_string())?;
        let controllers = document.get("controllers").and_then(Value::as_array);
        let mut controllers = controllers.into_iter().flatten();
        let node_ipam = controllers.find(|controller| controller.get("name") == Some(&json!(NODE_IPAM)));
        let verdict = node_ipam.and_then(|controller| controller.get("verdict"));
        let verdict = verdict
            .and_then(Value::as_str)
            .with_context(|| ended.to_string())?;
        Ok((verdict.to_owned(), ended.stdout))
    }

    /// The writes of `podCIDR`, except for the Node of the Machine.
    pub(super) fn pod_cidr_writes(&self) -> Result<Vec<PodCidrWrite>> {
        let mut writes = self.workload.pod_cidr_writes()?;
        writes.retain(|write| write.node.starts_with("sample-"));
        Ok(writes)
    }

    fn nodes(&self) -> Result<Api<Node>> {
        Ok(Api::all(self.workload.client()?.clone()))
    }

    async fn create_pod(&self, release: &Release, flags: &[String]) -> Result<()> {
        let program = std::iter::once(Program::Kube.name());
        let command: Vec<&str> = program.chain(flags.iter().map(String::as_str)).collect();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": release.pod, "labels": {"component": "kube-controller-manager"}},
            "spec": {
                "nodeName": self.node, "hostNetwork": true, "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "kube-controller-manager", "command": command,
                    "image": format!("registry.k8s.io/kube-controller-manager:{}", release.version)}],
            },
        });
        self.apply(&[pod]).await
    }

    async fn apply(&self, objects: &[Value]) -> Result<()> {
        written(&self.kubectl, "apply", objects, &["-n", KUBE_SYSTEM]).await?;
        Ok(())
    }

    async fn delete_pod(&self, name: &str) -> Result<()> {
        let arguments = ["delete", "pod", name, "-n", KUBE_SYSTEM];
        let now = ["--grace-period=0", "--force", "--ignore-not-found"];
        self.kubectl.succeed(arguments.into_iter().chain(now)).await?;
        Ok(())
    }
}
