//! The plugin changes a cluster of a `ClusterClass` through its Cluster, under Cluster API's real topology controller. The user has
//! the shipped roles only.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::runtime_extension::RuntimeExtension;
use kcp_tests::wait;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::roles;
use crate::shared::with_controllers;

const NAMESPACE: &str = "class-clusters";
const OPERATOR: &str = "class-operator";
const OLD: &str = "v1.33.6";
const NEXT: &str = "v1.34.2";
const LAST: &str = "v1.35.0";

struct Subject<'m> {
    management: &'m ManagementCluster,
    cluster: Cluster,
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_cluster_of_a_class_is_changed_through_its_cluster() {
    with_controllers(NAMESPACE, is_changed);
}

async fn is_changed(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create_of_class(management.client(), NAMESPACE, "edge", 1, OLD).await?;
    cluster.settled(1).await?;
    cluster
        .patch_class(&json!({"spec": {"kubernetesVersions": [OLD, NEXT, LAST]}}))
        .await?;
    roles::bind_operator(management.kubectl(), OPERATOR, NAMESPACE).await?;
    let subject = Subject { management, cluster };
    subject.scales().await?;
    subject.pauses().await?;
    subject.cancels().await?;
    subject.rolls_out().await?;
    subject.rolls_out_through_the_topology().await?;
    subject.upgrades().await?;
    subject.says("status cluster/edge", 0, "Healthy").await?;
    subject.cluster.delete().await
}

impl Subject<'_> {
    async fn says(&self, command: &str, code: i32, text: &str) -> Result<CommandOutput> {
        let user = format!("--as={OPERATOR}");
        let arguments: Vec<&str> = command.split(' ').chain([user.as_str()]).collect();
        let kubectl = self.management.kubectl();
        let output = kubectl.kcp(self.cluster.namespace(), &arguments).await?;
        ensure!(
            output.code == code && output.words().contains(text),
            "{text:?}, exit code {code}: {output}"
        );
        Ok(output)
    }

    async fn has(&self, path: &str, value: &Value) -> Result<()> {
        let cluster = self.cluster.get_cluster().await?;
        ensure!(
            cluster.pointer(path).unwrap_or(&Value::Null) == value,
            "{path}: {cluster:#}"
        );
        Ok(())
    }

    /// Waits until a command prints all of these texts.
    async fn shows(&self, command: &str, code: i32, texts: &[&str]) -> Result<()> {
        let user = format!("--as={OPERATOR}");
        let arguments: Vec<&str> = command.split(' ').chain([user.as_str()]).collect();
        let kubectl = self.management.kubectl();
        let shown = wait::until(command, || async {
            let output = kubectl.kcp(self.cluster.namespace(), &arguments).await?;
            let missing = texts.iter().find(|text| !output.words().contains(**text));
            ensure!(output.code == code && missing.is_none(), "{missing:?}: {output}");
            Ok(())
        });
        shown.await
    }

    async fn status(&self, texts: &[&str]) -> Result<()> {
        self.shows("status cluster/edge", 0, texts).await
    }

    async fn why(&self, code: i32, texts: &[&str]) -> Result<()> {
        self.shows("why cluster/edge", code, texts).await
    }

    async fn scales(&self) -> Result<()> {
        let replicas = "/spec/topology/controlPlane/replicas";
        self.says("scale cluster/edge --replicas 2 --yes", 1, "(replicas-even)")
            .await?;
        self.says(
            "scale cluster/edge --replicas 3 --dry-run=server",
            0,
            "cluster/edge scaled from 1 to 3 (server dry run)",
        )
        .await?;
        self.has(replicas, &json!(1)).await?;
        let scaled = self
            .says(
                "scale cluster/edge --replicas 3 --wait=10m",
                0,
                "cluster/edge scaled from 1 to 3",
            )
            .await?;
        ensure!(
            scaled.stdout.ends_with("has 3 Machines, ready and up to date\n"),
            "{scaled}"
        );
        self.has(replicas, &json!(3)).await?;
        self.cluster.settled(3).await
    }

    async fn pauses(&self) -> Result<()> {
        self.says("rollout pause cluster/edge", 0, "cluster/edge paused")
            .await?;
        self.has("/spec/paused", &json!(true)).await?;
        self.cluster.has_condition("Paused", "True").await?;
        self.says("rollout pause cluster/edge", 0, "unchanged: already paused")
            .await?;
        self.says("scale cluster/edge --replicas 5", 1, "the Cluster is paused")
            .await?;
        self.says("rollout resume cluster/edge", 0, "cluster/edge resumed")
            .await?;
        self.has("/spec/paused", &Value::Null).await?;
        self.cluster.has_condition("Paused", "False").await
    }

    /// A rollout that the topology plans is cancelled at the Cluster.
    async fn cancels(&self) -> Result<()> {
        const PLANNED: &str = "2126-01-01T00:00:00Z";
        let machines = self.cluster.machines().await?;
        let planned = json!({"controlPlane": {"rollout": {"after": PLANNED}}});
        self.cluster.patch_topology(&planned).await?;
        let cancelled = format!("cluster/edge rollout at {PLANNED} cancelled");
        self.shows("rollout cancel cluster/edge", 0, &[&cancelled])
            .await?;
        self.has("/spec/topology/controlPlane/rollout/after", &Value::Null)
            .await?;
        let none = "unchanged: no rollout is planned";
        self.shows("rollout cancel cluster/edge", 0, &[none]).await?;
        ensure!(
            self.cluster.machines().await? == machines,
            "Machines were replaced"
        );
        Ok(())
    }

    /// The topology sets no time of a rollout, so the control plane's own field does not go back.
    async fn rolls_out(&self) -> Result<()> {
        let before = self.cluster.machines().await?;
        self.says("rollout start cluster/edge --yes", 0, "rollout started")
            .await?;
        self.says("rollout status cluster/edge --watch --timeout=10m", 0, "complete")
            .await?;
        let after = self.cluster.machines().await?;
        ensure!(
            after.iter().all(|machine| !before.contains(machine)),
            "{before:?} became {after:?}"
        );
        Ok(())
    }

    /// The topology has the time of an earlier rollout, so the next time is written there.
    async fn rolls_out_through_the_topology(&self) -> Result<()> {
        const EARLIER: &str = "2020-01-01T00:00:00Z";
        let before = self.cluster.machines().await?;
        let earlier = json!({"controlPlane": {"rollout": {"after": EARLIER}}});
        self.cluster.patch_topology(&earlier).await?;
        let carried = "the topology controller sets the time";
        wait::until(carried, || async {
            let control_plane = self.cluster.get().await?;
            let after = control_plane.pointer("/spec/rollout/after");
            ensure!(after == Some(&json!(EARLIER)), "{after:?}");
            Ok(())
        })
        .await?;

        let started = self
            .says(
                "rollout start cluster/edge --yes",
                0,
                "cluster/edge rollout started",
            )
            .await?;
        let through_the_cluster = "Cluster API's topology controller applies the change to the control plane";
        ensure!(started.words().contains(through_the_cluster), "{started}");
        self.refuses_to_scale_during_the_rollout().await?;
        self.says("rollout status cluster/edge --watch --timeout=10m", 0, "complete")
            .await?;
        let cluster = self.cluster.get_cluster().await?;
        let after = cluster.pointer("/spec/topology/controlPlane/rollout/after");
        let after = after.context("the topology has no time of a rollout")?;
        let control_plane = self.cluster.get().await?;
        ensure!(
            after != EARLIER && control_plane.pointer("/spec/rollout/after") == Some(after),
            "{after}: {control_plane:#}"
        );
        let machines = self.cluster.machines().await?;
        ensure!(
            machines.iter().all(|machine| !before.contains(machine)),
            "{before:?} became {machines:?}"
        );
        Ok(())
    }

    /// The webhook denies another number of Machines at the Cluster.
    async fn refuses_to_scale_during_the_rollout(&self) -> Result<()> {
        let five = json!({"spec": {"topology": {"controlPlane": {"replicas": 5}}}}).to_string();
        let namespace = self.cluster.namespace();
        let patch = [
            "patch",
            "cluster",
            "edge",
            "--type=merge",
            "--dry-run=server",
            "-n",
            namespace,
            "-p",
            &five,
        ];
        let kubectl = self.management.kubectl();
        let denied = wait::until("a scale is denied", || async {
            let output = kubectl.run(patch).await?;
            let is_denied = output.code != 0 && output.words().contains("(replicas-during-rollout)");
            ensure!(is_denied, "{output}");
            Ok(())
        });
        denied.await
    }

    /// Several minor versions in one write: Cluster API goes over those of the class. The command waits for the workers, too.
    async fn upgrades(&self) -> Result<()> {
        self.cluster.patch_topology(&workers(None)).await?;
        self.cluster.workers_ready(OLD).await?;
        let upgraded = self
            .says(
                &format!("upgrade cluster/edge --to {LAST} --yes --wait=20m"),
                0,
                &format!("cluster/edge upgraded from {OLD} to {LAST}"),
            )
            .await?;
        let versions = format!("upgrades the control plane through {NEXT}, {LAST}");
        ensure!(upgraded.words().contains(&versions), "{upgraded}");
        let end = format!("is at {LAST}, with all Machines ready and up to date\n");
        ensure!(upgraded.stdout.ends_with(&end), "{upgraded}");
        self.has("/spec/topology/version", &json!(LAST)).await?;
        self.says("status cluster/edge", 0, &format!("{LAST} 1/1 1/1"))
            .await?;
        self.cluster.settled(3).await
    }
}

/// An upgrade over two minor versions by one command. Each hold is real: an annotation that delays the upgrade, the hooks of a
/// runtime extension, an annotation that defers workers, and workers that are upgraded.
#[test]
#[ignore = "takes minutes: make test-long"]
fn the_upgrade_of_a_class_is_followed_at_each_hold() {
    with_controllers(HOLDS, async |management| {
        let extension = RuntimeExtension::register(management.api(), HOLDS, APPROVER).await?;
        let followed = is_followed(management, &extension).await;
        extension.remove().await?;
        followed
    });
}

const HOLDS: &str = "class-holds";
const HOOK: &str = "before-upgrade.hook.cluster.cluster.x-k8s.io/backup";
const DEFER: &str = "topology.cluster.x-k8s.io/defer-upgrade";
const APPROVER: &str = "the change board";

/// A hook for which the topology controller waits, and what `status` shows.
struct HookHold {
    hook: &'static str,
    version: &'static str,
    shown: &'static [&'static str],
}

/// The hooks before the workers are upgraded, and the two after it.
const BEFORE_WORKERS: [HookHold; 6] = [
    HookHold {
        hook: "BeforeClusterUpgrade",
        version: LAST,
        shown: &[
            "Version: v1.33.6",
            "Upgrade: control plane over v1.34.2, v1.35.0; workers over v1.35.0",
            "Hooks: BeforeClusterUpgrade",
        ],
    },
    HookHold {
        hook: "BeforeControlPlaneUpgrade",
        version: NEXT,
        shown: &[
            "Version: v1.33.6",
            "Upgrade: at step v1.33.6; control plane over v1.34.2, v1.35.0; workers over v1.35.0",
            "Hooks: BeforeControlPlaneUpgrade, AfterClusterUpgrade",
        ],
    },
    HookHold {
        hook: "AfterControlPlaneUpgrade",
        version: NEXT,
        shown: &[
            "Version: v1.34.2",
            "Upgrade: at step v1.34.2; control plane over v1.35.0; workers over v1.35.0",
            "Hooks: AfterControlPlaneUpgrade, AfterClusterUpgrade",
        ],
    },
    HookHold {
        hook: "BeforeControlPlaneUpgrade",
        version: LAST,
        shown: &[
            "Version: v1.34.2",
            "Upgrade: at step v1.34.2; control plane over v1.35.0; workers over v1.35.0",
            "Hooks: BeforeControlPlaneUpgrade, AfterClusterUpgrade",
        ],
    },
    HookHold {
        hook: "AfterControlPlaneUpgrade",
        version: LAST,
        shown: &[
            "Version: v1.35.0",
            "Upgrade: at step v1.35.0; workers over v1.35.0",
            "Hooks: AfterControlPlaneUpgrade, AfterClusterUpgrade, AfterWorkersUpgrade, BeforeWorkersUpgrade",
        ],
    },
    HookHold {
        hook: "BeforeWorkersUpgrade",
        version: LAST,
        shown: &[
            "Version: v1.35.0",
            "Upgrade: at step v1.35.0; workers over v1.35.0",
            "Hooks: BeforeWorkersUpgrade, AfterClusterUpgrade, AfterWorkersUpgrade",
        ],
    },
];
const AFTER_WORKERS: [HookHold; 2] = [
    HookHold {
        hook: "AfterWorkersUpgrade",
        version: LAST,
        shown: &[
            "Upgrade: at step v1.35.0",
            "Hooks: AfterWorkersUpgrade, AfterClusterUpgrade",
            "v1.35.0 1/1 1/1",
        ],
    },
    HookHold {
        hook: "AfterClusterUpgrade",
        version: LAST,
        shown: &["Upgrade: at step v1.35.0", "Hooks: AfterClusterUpgrade"],
    },
];

/// The workers of the topology, with this annotation.
fn workers(annotation: Option<&str>) -> Value {
    let annotations: BTreeMap<&str, &str> = annotation.map(|key| (key, "")).into_iter().collect();
    json!({"workers": {"machineDeployments": [
        {"class": "worker", "name": "md-0", "replicas": 1, "metadata": {"annotations": annotations}},
    ]}})
}

async fn is_followed(management: &ManagementCluster, extension: &RuntimeExtension) -> Result<()> {
    let cluster = Cluster::create_of_class(management.client(), HOLDS, "edge", 1, OLD).await?;
    cluster.settled(1).await?;
    cluster
        .patch_class(&json!({"spec": {"kubernetesVersions": [OLD, NEXT, LAST]}}))
        .await?;
    cluster.patch_topology(&workers(Some(DEFER))).await?;
    cluster.annotate_cluster(HOOK, &json!("")).await?;
    roles::bind_operator(management.kubectl(), OPERATOR, HOLDS).await?;
    let subject = Subject { management, cluster };
    subject.waits_for_annotation().await?;
    subject.cluster.annotate_cluster(HOOK, &Value::Null).await?;
    subject.has_failing_extension(extension).await?;
    subject.waits_for_extension(extension, &BEFORE_WORKERS).await?;
    subject.waits_for_workers().await?;
    subject.waits_for_extension(extension, &AFTER_WORKERS).await?;
    subject
        .status(&["Topology: v1.35.0 of class edge, reconciled", "v1.35.0 1/1 1/1"])
        .await?;
    subject
        .why(0, &["Nothing is wrong and nothing is planned"])
        .await?;
    subject.cluster.delete().await
}

impl Subject<'_> {
    async fn waits_for_annotation(&self) -> Result<()> {
        self.status(&[
            "Topology: v1.33.6 of class edge, reconciled",
            "MachineDeployment/edge-md-0-",
            "1/1 1/1",
        ])
        .await?;
        let delays = format!(
            "annotation {HOOK} of the Cluster delays the upgrade until the annotation's owner removes it"
        );
        self.shows(
            "plan cluster/edge --to v1.35.0",
            0,
            &[
                "Topology: v1.34.2 (control plane), v1.35.0 (control plane, then workers)",
                "v1.33.6 -> v1.34.2",
                &delays,
            ],
        )
        .await?;
        let upgrade = format!("upgrade cluster/edge --to {LAST} --yes");
        let upgraded = format!("cluster/edge upgraded from {OLD} to {LAST}");
        let upgraded = self.says(&upgrade, 0, &upgraded).await?;
        ensure!(upgraded.words().contains(&delays), "{upgraded}");

        let hook =
            format!("the owner of the Cluster's annotation {HOOK} must remove it to let the upgrade begin");
        self.why(0, &["The owner of the hook acts next:", &hook]).await?;
        self.status(&[
            "Topology: v1.35.0 of class edge, not reconciled for",
            "ClusterUpgrading",
            "Upgrade: control plane over v1.34.2, v1.35.0; workers over v1.35.0",
            &format!("Hooks: {HOOK}"),
            &hook,
            "has not set the control plane's version to v1.35.0 yet",
        ])
        .await?;
        self.shows(
            "plan cluster/edge",
            1,
            &[
                "Topology: v1.34.2 (control plane), v1.35.0 (control plane, then workers)",
                &hook,
            ],
        )
        .await?;
        self.shows("status", 0, &["v1.33.6 -> v1.35.0", "topology-upgrade-pending"])
            .await?;
        self.says("etcd check cluster/edge", 0, "edge-").await?;
        Ok(())
    }

    async fn has_failing_extension(&self, extension: &RuntimeExtension) -> Result<()> {
        const WHY: &str = "the ballot box is lost";
        extension.fail("BeforeClusterUpgrade", LAST, WHY);
        let failure = format!(
            "failed to call extension handler \"beforeclusterupgrade.{HOLDS}\": got failure response with message: {WHY}"
        );
        let fails =
            format!("runtime extension {HOLDS} fails, so Cluster API's topology controller changes nothing:");
        let remedy = format!("to see where it runs: kubectl get extensionconfig {HOLDS} -o yaml");
        self.why(1, &["A person must act:", &fails, &failure, &remedy])
            .await?;
        self.shows(
            "status cluster/edge",
            1,
            &[
                "Topology: v1.35.0 of class edge, not reconciled for",
                "ReconcileFailed",
                &fails,
            ],
        )
        .await?;
        self.shows("plan cluster/edge", 1, &[&fails]).await?;
        extension.block("BeforeClusterUpgrade", LAST);
        // Any change of the Cluster ends the pause after which the topology controller tries again.
        self.cluster
            .annotate_cluster("example.com/repaired", &json!(""))
            .await
    }

    /// The owner of the extension acts next, and the extension says why.
    async fn waits_for_extension(&self, extension: &RuntimeExtension, holds: &[HookHold]) -> Result<()> {
        for HookHold { hook, version, shown } in holds {
            let message = RuntimeExtension::message(APPROVER, hook, version);
            let waits = format!(
                "the runtime extension of hook {hook} must answer before Cluster API's topology controller continues: {message}"
            );
            self.why(0, &["The owner of the hook acts next:", &waits]).await?;
            let both = [
                "Topology: v1.35.0 of class edge, not reconciled for",
                "ClusterUpgrading",
                waits.as_str(),
            ];
            self.status(&[&both[..], *shown].concat()).await?;
            extension.release(hook, version);
        }
        Ok(())
    }

    async fn waits_for_workers(&self) -> Result<()> {
        let cluster = &self.cluster;
        let held = format!("MachineDeployment md-0 is held at {OLD} by annotation {DEFER}");
        self.why(
            1,
            &[
                "A person must act:",
                &held,
                "remove the annotation of md-0 from spec.topology.workers",
            ],
        )
        .await?;
        self.status(&[
            "Version: v1.35.0",
            "MachineDeploymentsUpgradeDeferred",
            "Upgrade: at step v1.35.0; workers over v1.35.0",
            "Hooks: AfterClusterUpgrade, AfterWorkersUpgrade",
            "v1.33.6 2 minors 1/1 1/1 held by defer-upgrade of md-0",
        ])
        .await?;

        // The controller of MachineDeployments does not replace the Machine of the old version.
        cluster.pause_workers(true).await?;
        cluster.patch_topology(&workers(None)).await?;
        self.why(
            0,
            &[
                "Cluster API's topology controller acts next:",
                "is not done: Cluster is upgrading to v1.35.0; MachineDeployment edge-md-0-",
                "upgrading to version v1.35.0",
            ],
        )
        .await?;
        cluster.pause_workers(false).await
    }
}
