//! What Cluster API's controllers do after each change of the page "Changes that Cluster API accepts", to the end.
//!
//! The clusters are in kube-system, where the shipped configurations leave Cluster API's webhooks alone. `documents` tests that
//! kcp-webhook denies the same changes elsewhere, and with which message.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kcp_tests::cluster::Cluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{resources, wait};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::controller_failures::has_logged;
use crate::shared::with_controllers;

const NAMESPACE: &str = "kube-system";

const LOW: &str = "v1.33.6";
const MIDDLE: &str = "v1.34.2";
const HIGH: &str = "v1.35.0";

/// The first minor version of Cluster API that does not delete the only Machine.
const KEEPS_ONLY_LEADER: u32 = 14;

#[test]
#[ignore = "takes minutes: make test-long"]
fn cluster_api_acts_on_each_change_that_it_accepts() {
    with_controllers(NAMESPACE, async |management| {
        tokio::try_join!(rollouts(management), deletions(management)).map(drop)
    });
}

async fn rollouts(management: &ManagementCluster) -> Result<()> {
    let subject = Subject::create(management, "rollouts", LOW).await?;
    subject.a_percentage_deletes_a_machine_first().await?;
    subject
        .an_upgrade_adds_machines_while_outdated_ones_remain()
        .await?;
    subject
        .a_rollout_removes_machines_while_outdated_ones_remain()
        .await?;
    subject.a_downgrade_replaces_every_machine().await?;
    subject.two_upgrades_mix_versions_two_minors_apart().await?;
    subject.cluster.delete().await
}

async fn deletions(management: &ManagementCluster) -> Result<()> {
    let subject = Subject::create(management, "deletions", MIDDLE).await?;
    subject.omitted_replicas_leave_one_machine().await?;
    if management.cluster_api_minor()? >= KEEPS_ONLY_LEADER {
        subject.one_machine_is_never_replaced_without_surge().await?;
    } else {
        let lost = Subject::create(management, "last-machine", MIDDLE).await?;
        lost.one_machine_is_deleted_without_surge().await?;
    }
    subject
        .a_deletion_waits_for_the_workers_and_cannot_be_undone()
        .await?;
    subject.cluster.delete().await
}

/// A cluster of three Machines in the namespace without kcp-webhook.
struct Subject<'m> {
    management: &'m ManagementCluster,
    cluster: Cluster,
    machines: Api<DynamicObject>,
}

impl<'m> Subject<'m> {
    async fn create(management: &'m ManagementCluster, name: &str, version: &str) -> Result<Self> {
        let client = management.client();
        let cluster = Cluster::create(client, NAMESPACE, name, 3, version).await?;
        cluster.settled(3).await?;
        Ok(Self {
            management,
            machines: resources::machines(client, NAMESPACE),
            cluster,
        })
    }

    async fn a_percentage_deletes_a_machine_first(&self) -> Result<()> {
        let before = self.names().await?;
        self.roll_out(json!({"strategy": surge("50%")}), SignedDuration::ZERO)
            .await?;
        wait::until("two Machines are left, and no Machine is new", || async {
            let left = self.names().await?;
            ensure!(
                left.len() == 2 && left.is_subset(&before),
                "{before:?} became {left:?}"
            );
            Ok(())
        })
        .await?;
        self.cluster.settled(3).await?;
        ensure!(self.names().await?.is_disjoint(&before), "{before:?}");
        self.patch(&json!({"spec": {"rollout": {"strategy": surge(1)}}}))
            .await
    }

    async fn an_upgrade_adds_machines_while_outdated_ones_remain(&self) -> Result<()> {
        self.patch(&json!({"spec": {"replicas": 5, "version": MIDDLE}}))
            .await?;
        wait::until(
            "there are five Machines, some of them at the old version",
            || async {
                let versions = self.versions().await?;
                ensure!(
                    versions.len() >= 5 && versions.iter().any(|version| version == LOW),
                    "{versions:?}"
                );
                Ok(())
            },
        )
        .await?;
        self.cluster.settled(5).await?;
        self.has_only(MIDDLE).await
    }

    async fn a_rollout_removes_machines_while_outdated_ones_remain(&self) -> Result<()> {
        let before = self.names().await?;
        self.roll_out(json!({}), SignedDuration::ZERO).await?;
        wait::until("a sixth Machine exists", || async {
            let now = self.names().await?;
            ensure!(now.len() == 6, "{now:?}");
            Ok(())
        })
        .await?;
        self.patch(&json!({"spec": {"replicas": 3}})).await?;
        wait::until(
            "there are four Machines or fewer, some of them outdated",
            || async {
                let now = self.names().await?;
                ensure!(
                    now.len() <= 4 && !now.is_disjoint(&before),
                    "{before:?} became {now:?}"
                );
                Ok(())
            },
        )
        .await?;
        self.cluster.settled(3).await?;
        ensure!(self.names().await?.is_disjoint(&before), "{before:?}");
        Ok(())
    }

    async fn a_downgrade_replaces_every_machine(&self) -> Result<()> {
        self.patch(&json!({"spec": {"version": LOW}})).await?;
        self.cluster.settled(3).await?;
        self.has_only(LOW).await
    }

    async fn two_upgrades_mix_versions_two_minors_apart(&self) -> Result<()> {
        self.patch(&json!({"spec": {"version": MIDDLE}})).await?;
        wait::until("the first upgrade has created a Machine", || async {
            let versions = self.versions().await?;
            ensure!(versions.iter().any(|version| version == MIDDLE), "{versions:?}");
            Ok(())
        })
        .await?;
        self.patch(&json!({"spec": {"version": HIGH}})).await?;
        wait::until("Machines of two minor versions apart have joined", || async {
            let versions = self.joined_versions().await?;
            ensure!(
                versions.contains(LOW) && versions.contains(HIGH),
                "{versions:?} have joined"
            );
            Ok(())
        })
        .await?;
        self.cluster.settled(3).await?;
        self.has_only(HIGH).await
    }

    async fn omitted_replicas_leave_one_machine(&self) -> Result<()> {
        self.patch(&json!({"spec": {"replicas": null}})).await?;
        self.cluster.settled(1).await
    }

    /// Only a rollout that was planned before the scale can start: Cluster API denies every later change of the object.
    async fn scale_to_one_before_a_rollout(&self) -> Result<()> {
        self.patch(&json!({"spec": {"replicas": 3}})).await?;
        self.cluster.settled(3).await?;
        self.roll_out(json!({"strategy": surge(0)}), SignedDuration::from_secs(60))
            .await?;
        let target = format!("kubeadmcontrolplane/{}", self.cluster.name());
        let scale = ["scale", &target, "--replicas=1", "-n", NAMESPACE];
        self.management.kubectl().succeed(scale).await.map(drop)
    }

    async fn one_machine_is_deleted_without_surge(&self) -> Result<()> {
        let before = self.names().await?;
        self.scale_to_one_before_a_rollout().await?;
        wait::until("the controller deletes the only Machine", || async {
            self.wake_controller().await?;
            let now = self.names().await?;
            ensure!(now.is_disjoint(&before), "{before:?} became {now:?}");
            Ok(())
        })
        .await
    }

    async fn one_machine_is_never_replaced_without_surge(&self) -> Result<()> {
        self.scale_to_one_before_a_rollout().await?;
        let kubectl = self.management.kubectl();
        wait::until("the controller cannot replace the only Machine", || async {
            self.wake_controller().await?;
            has_logged(
                self.management,
                NAMESPACE,
                "no candidate machines for etcd leadership found",
            )
        })
        .await?;
        let before = self.names().await?;
        ensure!(before.len() == 1, "{before:?}");
        let target = format!("kubeadmcontrolplane/{}", self.cluster.name());
        let annotate = ["annotate", &target, "a=b", "-n", NAMESPACE, "--dry-run=server"];
        let denied = kubectl.run(annotate).await?;
        ensure!(
            denied.code == 1 && denied.stderr.contains("replica count needs to be at least 3"),
            "{denied}"
        );
        ensure!(self.names().await? == before, "{before:?}");
        self.patch(&json!({"spec": {"rollout": {"strategy": surge(1)}}}))
            .await?;
        self.cluster.settled(1).await?;
        ensure!(self.names().await?.is_disjoint(&before), "{before:?}");
        Ok(())
    }

    async fn a_deletion_waits_for_the_workers_and_cannot_be_undone(&self) -> Result<()> {
        self.cluster.add_worker(MIDDLE).await?;
        let name = self.cluster.name();
        let delete = [
            "delete",
            "kubeadmcontrolplane",
            name,
            "-n",
            NAMESPACE,
            "--wait=false",
        ];
        self.management.kubectl().succeed(delete).await?;
        wait::until("the deletion waits for the workers", || async {
            let control_plane = self.cluster.get().await?;
            let conditions = control_plane
                .pointer("/status/conditions")
                .and_then(Value::as_array);
            let mut conditions = conditions.into_iter().flatten();
            let waits = conditions.any(|condition| {
                condition.get("type") == Some(&json!("Deleting"))
                    && condition.get("reason") == Some(&json!("WaitingForWorkersDeletion"))
            });
            ensure!(waits, "{control_plane}");
            Ok(())
        })
        .await?;
        // The controller sees the new number, but creates no Machine.
        self.patch(&json!({"spec": {"replicas": 3}})).await?;
        wait::until("the controller has seen the new number", || async {
            let control_plane = self.cluster.get().await?;
            let observed = control_plane.pointer("/status/observedGeneration");
            ensure!(
                observed == control_plane.pointer("/metadata/generation"),
                "{observed:?}"
            );
            Ok(())
        })
        .await?;
        let names = self.names().await?;
        ensure!(names.len() == 1, "{names:?}");
        let deployments = resources::machine_deployments(self.management.client(), NAMESPACE);
        deployments.delete(name, &DeleteParams::default()).await?;
        wait::until("the control plane is deleted after its workers", || async {
            let names = self.names().await?;
            ensure!(names.is_empty(), "{names:?}");
            Ok(())
        })
        .await
    }

    /// The controller does not reconcile at the time of a planned rollout, but when an object changes, or after ten minutes.
    async fn wake_controller(&self) -> Result<()> {
        let woken = json!({"metadata": {"annotations": {"woken": Timestamp::now().to_string()}}});
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&woken));
        for machine in self.names().await? {
            let patched = self.machines.patch(&machine, &parameters, &patch).await;
            patched.context("annotating a Machine")?;
        }
        Ok(())
    }

    async fn patch(&self, patch: &Value) -> Result<()> {
        self.cluster.patch(patch).await
    }

    /// Starts a rollout after this time.
    async fn roll_out(&self, rollout: Value, later: SignedDuration) -> Result<()> {
        let mut rollout = rollout;
        let after = Timestamp::now().checked_add(later)?;
        if let Some(fields) = rollout.as_object_mut() {
            let after = after.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            fields.insert("after".to_owned(), json!(after));
        }
        self.patch(&json!({"spec": {"rollout": rollout}})).await
    }

    async fn names(&self) -> Result<BTreeSet<String>> {
        Ok(self.cluster.machines().await?.into_iter().collect())
    }

    /// The control plane Machines that are not being deleted.
    async fn living(&self) -> Result<Vec<DynamicObject>> {
        let names = self.names().await?;
        let list = self.machines.list(&ListParams::default()).await;
        let mut machines = list.context("listing Machines")?.items;
        machines.retain(|machine| {
            machine
                .metadata
                .name
                .as_ref()
                .is_some_and(|name| names.contains(name))
        });
        Ok(machines)
    }

    async fn versions(&self) -> Result<Vec<String>> {
        Ok(self.living().await?.iter().filter_map(version).collect())
    }

    async fn joined_versions(&self) -> Result<BTreeSet<String>> {
        let mut machines = self.living().await?;
        machines.retain(|machine| machine.data.pointer("/status/nodeRef/name").is_some());
        Ok(machines.iter().filter_map(version).collect())
    }

    async fn has_only(&self, expected: &str) -> Result<()> {
        let versions = self.versions().await?;
        ensure!(versions.iter().all(|version| version == expected), "{versions:?}");
        Ok(())
    }
}

fn version(machine: &DynamicObject) -> Option<String> {
    let version = machine.data.pointer("/spec/version")?;
    version.as_str().map(str::to_owned)
}

fn surge(max_surge: impl Into<Value>) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": max_surge.into()}})
}
