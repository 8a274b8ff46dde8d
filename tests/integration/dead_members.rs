//! etcd refuses changes of its members while one of them is dead. Cluster API does not know this: it starts deletions that
//! never end, and creates Machines that never join. The tests let Cluster API get into each of these states, compare it with
//! what `status`, `plan` and `why` say, and follow the commands that they print until the control plane is healthy.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{resources, wait};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::remedies;
use crate::shared::with_controllers;

const NAME: &str = "edge";

/// etcd's reply to a change of its members that it refuses.
const REFUSED_BY_ETCD: &str = "etcdserver: unhealthy cluster";

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_live_member_stays_while_another_is_dead() {
    with_controllers("live-member-stays", async |management| {
        deletions_that_etcd_refuses(management, "live-member-stays").await
    });
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn no_member_joins_while_another_is_dead() {
    with_controllers("no-member-joins", async |management| {
        joins_that_etcd_refuses(management, "no-member-joins").await
    });
}

struct Scene<'m> {
    management: &'m ManagementCluster,
    namespace: &'static str,
    cluster: Cluster,
    workload: std::sync::Arc<WorkloadCluster>,
}

async fn deletions_that_etcd_refuses(management: &ManagementCluster, namespace: &'static str) -> Result<()> {
    let scene = Scene::begin(management, namespace, 3).await?;
    scene.cluster.check_health().await?;
    scene
        .remediation_of_a_live_member()
        .await
        .context("a health check marks a Machine with a live member")?;
    scene
        .remediation_after_the_loss_of_a_rack()
        .await
        .context("a health check marks a live and a dead member")?;
    scene
        .deletion_by_a_user()
        .await
        .context("kubectl delete machine")?;
    scene.cluster.delete().await
}

async fn joins_that_etcd_refuses(management: &ManagementCluster, namespace: &'static str) -> Result<()> {
    let scene = Scene::begin(management, namespace, 5).await?;
    scene
        .replacements_of_two_dead_members()
        .await
        .context("machine replace of both")?;
    scene
        .remediations_of_two_dead_members()
        .await
        .context("a health check marks both")?;
    scene.cluster.delete().await
}

impl<'m> Scene<'m> {
    async fn begin(
        management: &'m ManagementCluster,
        namespace: &'static str,
        replicas: u32,
    ) -> Result<Self> {
        let cluster = Cluster::create(management.client(), namespace, NAME, replicas, "v1.34.2").await?;
        let replicas = usize::try_from(replicas)?;
        cluster.settled(replicas).await?;
        let scene = Self {
            workload: management.machines().cluster(namespace, NAME).await?,
            management,
            namespace,
            cluster,
        };
        scene.is_healthy(replicas).await?;
        Ok(scene)
    }

    /// Only B is marked: A runs everything but etcd. The way out is to start A's etcd again.
    async fn remediation_of_a_live_member(&self) -> Result<()> {
        let [_, live, dead] = self.three_machines().await?;
        self.dies(&dead).await?;
        let status = self.status().await?;
        let remediation = status.remediation(&live)?;
        ensure!(remediation.get("allowed") == Some(&json!(true)), "{remediation}");
        let never_ends = remediation.pointer("/neverEnds/message").and_then(Value::as_str);
        ensure!(
            never_ends.is_some_and(|why| why.contains("etcd refuses to remove") && why.contains(&dead)),
            "{remediation}"
        );
        for verb in ["replace", "remediate"] {
            let refused = self.kcp(&["machine", verb, &live, "--dry-run=server"]).await?;
            ensure!(refused.code == 1, "{refused}");
        }
        self.kubelet_dies(&live).await?;
        self.is_stuck(&live, &dead).await?;
        self.workload.inflict(Fault::Restart, &dead).await?;
        self.wake(&live).await?;
        self.is_gone(&live).await?;
        self.is_healthy(3).await
    }

    /// Both are marked: A lost its power, B only its kubelet. Cluster API takes B, because it is older. The way out is to
    /// remove A's member.
    async fn remediation_after_the_loss_of_a_rack(&self) -> Result<()> {
        let [live, dead, _] = self.three_machines().await?;
        self.dies(&dead).await?;
        self.are_marked([&live, &dead]).await?;
        let finding = self.status().await?.finding("remediation-blocked", &live)?;
        ensure!(
            finding.contains("the deletion would never end: etcd refuses to remove a running member"),
            "{finding}"
        );
        self.pause(false).await?;
        self.is_stuck(&live, &dead).await?;
        self.removes_the_member(&dead).await?;
        self.wake(&live).await?;
        self.is_gone(&live).await?;
        self.is_gone(&dead).await?;
        self.is_healthy(3).await
    }

    /// A user deletes the Machine of a live member: etcd keeps its quorum.
    async fn deletion_by_a_user(&self) -> Result<()> {
        let [live, dead, _] = self.three_machines().await?;
        self.dies(&dead).await?;
        let delete = ["delete", "machine", &live, "-n", self.namespace, "--wait=false"];
        self.management.kubectl().succeed(delete).await?;
        self.is_stuck(&live, &dead).await?;
        let members = self.workload.etcd().await?.members().await?.len();
        ensure!(members == 3, "etcd has {members} members");
        self.workload.etcd().await?.put("/still", "there").await?;
        self.removes_the_member(&dead).await?;
        self.wake(&live).await?;
        self.is_gone(&live).await?;
        let replaced = self.kcp(&["machine", "replace", &dead, "--yes"]).await?;
        ensure!(replaced.code == 0, "{replaced}");
        self.is_gone(&dead).await?;
        self.is_healthy(3).await
    }

    /// Without a health check: both dead Machines go before a Machine joins.
    async fn replacements_of_two_dead_members(&self) -> Result<()> {
        let machines = self.cluster.machines().await?;
        let [.., first, second] = machines.as_slice() else {
            bail!("the Machines are {machines:?}");
        };
        for dead in [first, second] {
            self.dies(dead).await?;
        }
        for dead in [first, second] {
            let replaced = self.kcp(&["machine", "replace", dead, "--yes"]).await?;
            ensure!(replaced.code == 0, "{replaced}");
        }
        for dead in [first, second] {
            self.is_gone(dead).await?;
        }
        self.is_healthy(5).await
    }

    /// With a health check: Cluster API replaces one of them, and the new Machine cannot join.
    async fn remediations_of_two_dead_members(&self) -> Result<()> {
        let machines = self.cluster.machines().await?;
        let [.., first, second] = machines.as_slice() else {
            bail!("the Machines are {machines:?}");
        };
        for dead in [first, second] {
            self.dies(dead).await?;
        }
        self.are_marked([first, second]).await?;
        // The control plane is paused, so the plan is what Cluster API is about to do.
        let plan = self.plan().await?;
        let steps: Vec<(&str, bool)> = plan
            .pointer("/steps")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|step| {
                let action = step.get("action").and_then(Value::as_str).unwrap_or_default();
                (action, step.get("neverEnds").is_some())
            })
            .collect();
        ensure!(steps == [("delete", false), ("create", true)], "{plan:#}");
        self.pause(false).await?;
        let (gone, left) = wait::until("Cluster API replaces one of them", || async {
            let now = self.cluster.machines().await?;
            let left: Vec<&String> = [first, second]
                .into_iter()
                .filter(|dead| now.contains(dead))
                .collect();
            let [left] = left.as_slice() else {
                bail!("the Machines are {now:?}");
            };
            let gone = if *left == first { second } else { first };
            let new = now.iter().find(|machine| !machines.contains(machine));
            new.context("there is no new Machine")?;
            Ok((gone.clone(), (*left).clone()))
        })
        .await?;
        let planned = plan.pointer("/steps/0/names/0").and_then(Value::as_str);
        ensure!(planned == Some(&gone), "{gone} was deleted: {plan:#}");
        self.has_logged("rejecting member add request").await?;
        let hint = format!("kubectl kcp machine replace {left} -n {}", self.namespace);
        self.says(&["why", NAME], 1, &["(etcd-refuses-join)", &hint])
            .await?;
        remedies::are_accepted(self.management, self.namespace, NAME).await?;
        let steps = self.plan().await?;
        let last = steps
            .pointer("/steps")
            .and_then(Value::as_array)
            .and_then(|all| all.last());
        ensure!(
            last.is_some_and(|step| step.get("neverEnds").is_some()),
            "{steps:#}"
        );
        let replaced = self.kcp(&["machine", "replace", &left, "--yes"]).await?;
        ensure!(replaced.code == 0, "{replaced}");
        self.is_gone(&left).await?;
        self.is_healthy(5).await
    }

    /// The deletion of `live` waits for etcd, and `status`, `plan` and `why` say so.
    async fn is_stuck(&self, live: &str, dead: &str) -> Result<()> {
        wait::until("Cluster API deletes the Machine of the live member", || async {
            let now = self.cluster.machines().await?;
            ensure!(!now.contains(&live.to_owned()), "the Machines are {now:?}");
            ensure!(now.contains(&dead.to_owned()), "{dead} is being deleted");
            Ok(())
        })
        .await?;
        let failed = format!(
            "failed to remove etcd member for deleting Machine {}/{live}",
            self.namespace
        );
        self.has_logged(&failed).await?;
        let command = format!(
            "kubectl kcp etcd remove-member {NAME} {dead} -n {}",
            self.namespace
        );
        self.says(&["why", NAME], 1, &["(etcd-refuses-removal)", &command])
            .await?;
        let plan = self.plan().await?;
        let steps = plan.pointer("/steps").and_then(Value::as_array);
        let [step] = steps.map(Vec::as_slice).unwrap_or_default() else {
            bail!("{plan:#}");
        };
        ensure!(
            step.get("names") == Some(&json!([live])) && step.get("neverEnds").is_some(),
            "{plan:#}"
        );
        self.offers_only_what_is_accepted(dead).await
    }

    /// No command that `status`, `why` or `plan` prints is refused.
    async fn offers_only_what_is_accepted(&self, dead: &str) -> Result<()> {
        remedies::are_accepted(self.management, self.namespace, NAME).await?;
        let shown = self.kcp(&["plan", NAME]).await?.words();
        for verb in ["replace", "remediate"] {
            let refused = format!("kubectl kcp machine {verb} {dead}");
            ensure!(!shown.contains(&refused), "{shown}");
        }
        let dry = self
            .kcp(&["etcd", "remove-member", NAME, dead, "--dry-run"])
            .await?;
        ensure!(dry.code == 0, "{dry}");
        Ok(())
    }

    async fn removes_the_member(&self, dead: &str) -> Result<()> {
        let before = self
            .member(dead)
            .await?
            .context("the dead member is not listed")?;
        let removed = self.kcp(&["etcd", "remove-member", NAME, dead, "--yes"]).await?;
        ensure!(removed.code == 0, "{removed}");
        // Cluster API can now remove the live member, which may be the one that is asked.
        wait::until("another member lists the members", || async {
            let after = self.member(dead).await?;
            ensure!(after.is_none(), "member {before} is still listed");
            Ok(())
        })
        .await?;
        let kubectl = self.management.kubectl();
        let events = kubectl
            .succeed(["get", "events", "-n", self.namespace, "-o", "json"])
            .await?;
        ensure!(events.stdout.contains("EtcdMemberRemoved"), "{events}");
        Ok(())
    }

    /// The ID of the etcd member of a Machine.
    async fn member(&self, machine: &str) -> Result<Option<String>> {
        let mut members = self.workload.etcd().await?.members().await?.into_iter();
        Ok(members
            .find(|member| member.name == machine)
            .map(|member| member.id))
    }

    async fn dies(&self, machine: &str) -> Result<()> {
        self.workload.inflict(Fault::Kill, machine).await?;
        wait::until(&format!("status reports the member of {machine}"), || async {
            let findings = self
                .status()
                .await?
                .0
                .pointer("/findings")
                .cloned()
                .unwrap_or_default()
                .to_string();
            // The other members elect a leader.
            let is_seen = findings.contains("etcd-voters-unhealthy") && !findings.contains("etcd-no-leader");
            ensure!(
                is_seen && findings.contains(&format!("EtcdMember/{machine}")),
                "{findings}"
            );
            Ok(())
        })
        .await
    }

    /// Pauses the control plane when the kubelets of both Machines are dead, and waits until a health check has marked both. Then
    /// the order does not depend on which one the health check marks first.
    async fn are_marked(&self, machines: [&str; 2]) -> Result<()> {
        let checks = resources::machine_health_checks(self.management.client(), self.namespace);
        if checks.get_opt(NAME).await?.is_some() {
            checks.delete(NAME, &DeleteParams::default()).await?;
        }
        for machine in machines {
            self.kubelet_dies(machine).await?;
        }
        for machine in machines {
            self.has_condition(machine, "APIServerPodHealthy", "Unknown")
                .await?;
        }
        self.pause(true).await?;
        self.cluster.check_health().await?;
        for machine in machines {
            self.has_condition(machine, "OwnerRemediated", "False").await?;
        }
        Ok(())
    }

    /// Pauses or resumes only the control plane, so that health checks still work.
    async fn pause(&self, paused: bool) -> Result<()> {
        let value = paused.then_some("");
        let patch = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
        self.cluster.patch(&patch).await
    }

    async fn has_condition(&self, machine: &str, kind: &str, status: &str) -> Result<()> {
        let machines = resources::machines(self.management.client(), self.namespace);
        wait::until(&format!("{kind} of {machine} is {status}"), || async {
            let object = machines.get(machine).await?;
            let conditions = object
                .data
                .pointer("/status/conditions")
                .and_then(Value::as_array);
            let mut conditions = conditions.into_iter().flatten();
            let found = conditions.find(|condition| condition.get("type") == Some(&json!(kind)));
            let found = found.and_then(|condition| condition.get("status"));
            ensure!(found == Some(&json!(status)), "it is {found:?}");
            Ok(())
        })
        .await
    }

    /// The node stops to report. kwok does not write its status again.
    async fn kubelet_dies(&self, machine: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.workload.client()?.clone());
        let silent = json!({"status": {"conditions": [{
            "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }]}});
        nodes
            .patch_status(machine, &PatchParams::default(), &Patch::Strategic(silent))
            .await?;
        Ok(())
    }

    /// Ends the backoff of Cluster API's controller: any write does.
    async fn wake(&self, machine: &str) -> Result<()> {
        let annotate = [
            "annotate",
            "machine",
            machine,
            "-n",
            self.namespace,
            "--overwrite",
        ];
        let time = format!("woken={}", jiff::Timestamp::now());
        let annotate = annotate.into_iter().chain([time.as_str()]);
        // The Machine may be gone already.
        self.management.kubectl().run(annotate).await.map(drop)
    }

    async fn is_gone(&self, machine: &str) -> Result<()> {
        let machines = resources::machines(self.management.client(), self.namespace);
        wait::until(&format!("{machine} is gone"), || async {
            let found = machines.get_opt(machine).await?;
            ensure!(found.is_none(), "{:?}", found.map(|found| found.name_any()));
            Ok(())
        })
        .await
    }

    async fn is_healthy(&self, replicas: usize) -> Result<()> {
        self.cluster.settled(replicas).await?;
        self.says(&["status", NAME], 0, &[]).await
    }

    /// Waits until a program has written this line, and, if it is about a refused change, etcd's reply.
    async fn has_logged(&self, text: &str) -> Result<()> {
        wait::until(&format!("a log has {text:?}"), || async {
            let mut lines = self.log_lines()?.into_iter();
            let found = lines.find(|line| line.contains(text));
            let found = found.with_context(|| format!("no log has {text:?}"))?;
            ensure!(found.contains(REFUSED_BY_ETCD), "{found}");
            Ok(())
        })
        .await
    }

    fn log_lines(&self) -> Result<BTreeSet<String>> {
        let mut lines = BTreeSet::new();
        for entry in fs::read_dir(self.management.run().logs())? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            if name.is_some_and(|name| name.contains(self.namespace)) {
                let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
                lines.extend(
                    text.lines()
                        .filter(|line| line.contains("etcdserver"))
                        .map(str::to_owned),
                );
                lines.extend(
                    text.lines()
                        .filter(|line| line.contains(REFUSED_BY_ETCD))
                        .map(str::to_owned),
                );
            }
        }
        Ok(lines)
    }

    async fn three_machines(&self) -> Result<[String; 3]> {
        let machines = self.cluster.machines().await?;
        let found: Result<[String; 3], _> = machines.try_into();
        found.map_err(|machines| anyhow::anyhow!("the Machines are {machines:?}"))
    }

    async fn status(&self) -> Result<Status> {
        let output = self.kcp(&["status", NAME, "-o", "json"]).await?;
        let document = serde_json::from_str(&output.stdout).with_context(|| output.to_string())?;
        Ok(Status(document))
    }

    async fn plan(&self) -> Result<Value> {
        let output = self.kcp(&["plan", NAME, "-o", "json"]).await?;
        serde_json::from_str(&output.stdout).with_context(|| output.to_string())
    }

    async fn kcp(&self, arguments: &[&str]) -> Result<CommandOutput> {
        self.management.kubectl().kcp(self.namespace, arguments).await
    }

    async fn says(&self, arguments: &[&str], code: i32, texts: &[&str]) -> Result<()> {
        let kubectl = self.management.kubectl();
        let output = kubectl.kcp_says(self.namespace, arguments, code, texts).await;
        output.map(drop)
    }
}

struct Status(Value);

impl Status {
    fn remediation(&self, machine: &str) -> Result<&Value> {
        let all = self.0.pointer("/preflight/remediation").and_then(Value::as_array);
        let mut all = all.into_iter().flatten();
        let found = all.find(|one| one.get("machine") == Some(&json!(machine)));
        found.with_context(|| format!("no remediation of {machine}: {:#}", self.0))
    }

    /// The message of a check's finding about a Machine.
    fn finding(&self, check: &str, machine: &str) -> Result<String> {
        let findings = self.0.pointer("/findings").and_then(Value::as_array);
        let mut findings = findings.into_iter().flatten();
        let object = format!("Machine/{machine}");
        let found = findings.find(|finding| {
            finding.get("id") == Some(&json!(check)) && finding.to_string().contains(&object)
        });
        let message = found.and_then(|finding| finding.get("message")?.as_str());
        message
            .map(str::to_owned)
            .with_context(|| format!("no finding of {check} about {machine}: {:#}", self.0))
    }
}
