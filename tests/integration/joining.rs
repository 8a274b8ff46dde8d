//! One Machine, and a second one whose etcd member votes although its Node has not appeared: what Cluster API does when the
//! second one becomes unwanted (kubernetes-sigs/cluster-api#11772), what our rule and checks say before, and the way out
//! afterwards.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::shared::with_controllers;

const NAMESPACE: &str = "joining";
const NAME: &str = "edge";
const OLD: &str = "v1.34.2";
const NEW: &str = "v1.35.0";
const OVERRIDE: &str = "kubectl-kcp.dev/override-rules";

/// The `nodeStartupTimeoutSeconds` of the health check that acts on its own.
const STARTUP_SECONDS: i64 = 60;

/// The commands read within seconds. A busy machine takes longer.
const EXPLAINED: Duration = Duration::from_secs(120);

#[test]
#[ignore = "takes minutes: make test-long"]
fn the_second_machine_is_kept_while_only_its_member_has_joined() {
    with_controllers(NAMESPACE, is_kept);
}

async fn is_kept(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, OLD).await?;
    cluster.settled(1).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let joining = Joining {
        management,
        cluster: &cluster,
        workload: &workload,
    };
    joining.a_reverted_version().await?;
    joining.a_health_check_alone().await?;
    cluster.delete().await
}

struct Joining<'t> {
    management: &'t ManagementCluster,
    cluster: &'t Cluster,
    workload: &'t WorkloadCluster,
}

impl Joining<'_> {
    async fn a_reverted_version(&self) -> Result<()> {
        let upgrade = json!({"spec": {"version": NEW}});
        let revert = json!({"spec": {"version": OLD}});
        let [first, second] = self.votes_without_node(&upgrade).await?;
        self.is_denied(&revert, "spec.version", &second).await?;
        let other = json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"apiServer":
            {"certSANs": ["127.0.0.1", "other.example"]}}}}});
        self.is_denied(&other, "spec.kubeadmConfigSpec", &second).await?;
        let kubeadm = "kubeadm on the new Machine acts next: ";
        let limit = "no MachineHealthCheck limits the time until its node appears";
        self.is_explained(0, kubeadm, &second, limit).await?;
        self.verbs_refuse(&second).await?;

        self.override_rule().await?;
        self.cluster.patch(&revert).await?;
        self.quorum_is_lost(&first, &second).await?;
        self.recovers(&first).await
    }

    /// Nobody acts.
    async fn a_health_check_alone(&self) -> Result<()> {
        let before = self.cluster.get().await?;
        let configuration = "/spec/kubeadmConfigSpec/clusterConfiguration/apiServer/certSANs";
        let names = before.pointer(configuration).context("no certSANs")?;
        let sans = |names: Value| json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"apiServer": {"certSANs": names}}}}});
        let [first, second] = self
            .votes_without_node(&sans(json!(["127.0.0.1", "edge.example"])))
            .await?;
        self.is_denied(&sans(names.clone()), "spec.kubeadmConfigSpec", &second)
            .await?;
        let deadline = self.starts_within(&second, STARTUP_SECONDS).await?;
        let limit =
            format!("MachineHealthCheck {NAME} marks it as unhealthy at {deadline} (nodeStartupTimeout 1m)");
        self.is_explained(1, "A person must act: ", &second, &limit)
            .await?;
        let lost = self.quorum_is_lost(&first, &second).await?;
        ensure!(lost > deadline, "etcd was lost at {lost}, before {deadline}");
        self.recovers(&first).await
    }

    /// Starts a rollout with a patch, and waits until the member of the new Machine votes and the Machine has no Node.
    async fn votes_without_node(&self, patch: &Value) -> Result<[String; 2]> {
        let machines = self.cluster.machines().await?;
        let first = machines.first().context("no Machine")?.clone();
        self.workload.inflict(Fault::HoldNodes, &first).await?;
        self.cluster.patch(patch).await?;
        let second = wait::until("the second member votes", || async {
            let members = self.workload.etcd().await?.members().await?;
            let voters = members.iter().filter(|member| !member.is_learner);
            let second = voters
                .clone()
                .find(|member| !member.name.is_empty() && member.name != first);
            ensure!(voters.count() == 2, "the members are {members:?}");
            second.map(|member| member.name.clone()).context("it has no name")
        })
        .await?;
        Ok([first, second])
    }

    async fn is_denied(&self, patch: &Value, field: &str, machine: &str) -> Result<()> {
        let patch = patch.to_string();
        let arguments = [
            "patch",
            "kcp",
            NAME,
            "-n",
            NAMESPACE,
            "--type=merge",
            "-p",
            &patch,
        ];
        let denied = self.management.kubectl().run(arguments).await?;
        let expected = format!(
            "{field}: Forbidden: Machine {machine} has no Node yet, but may already vote in etcd; this change makes it outdated, so \
             Cluster API would delete it without its etcd member, and etcd would lose its quorum; wait until the Machine has a \
             Node; if this never happens: kubectl kcp rollout pause {NAME} -n {NAMESPACE}, remove the Machine's member from etcd \
             if there is one, make this change, and: kubectl kcp rollout resume {NAME} -n {NAMESPACE} (joining-machine-outdated)"
        );
        ensure!(
            denied.code == 1 && denied.stderr.contains(&expected),
            "{denied}\nexpected: {expected}"
        );
        Ok(())
    }

    /// Turns the denial into a warning, so that Cluster API sees what it would see without our webhook.
    async fn override_rule(&self) -> Result<()> {
        let until = Timestamp::now() + SignedDuration::from_hours(1);
        let entry = format!("joining-machine-outdated={until:.0}");
        self.cluster
            .patch(&json!({"metadata": {"annotations": {OVERRIDE: entry}}}))
            .await
    }

    /// Creates a health check with this timeout, and returns when it ends for the Machine.
    async fn starts_within(&self, machine: &str, seconds: i64) -> Result<Timestamp> {
        let check = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {"clusterName": NAME,
                "selector": {"matchLabels": {"cluster.x-k8s.io/control-plane": ""}},
                "checks": {"nodeStartupTimeoutSeconds": seconds}},
        });
        let kubectl = self.management.kubectl();
        let file = kubectl.scratch_file("joining-health-check.json");
        std::fs::write(&file, check.to_string())?;
        kubectl
            .succeed(["create", "-f", &file.display().to_string()])
            .await?;
        let created = [
            "get",
            "machine",
            machine,
            "-n",
            NAMESPACE,
            "-o",
            "jsonpath={.metadata.creationTimestamp}",
        ];
        let created: Timestamp = kubectl.succeed(created).await?.stdout.parse()?;
        Ok(created + SignedDuration::from_secs(seconds))
    }

    async fn kcp(&self, arguments: &[&str]) -> Result<CommandOutput> {
        let place = ["-n", NAMESPACE];
        let arguments = ["kcp"].iter().chain(arguments).chain(&place);
        self.management.kubectl().run(arguments).await
    }

    /// `why` says who acts next and what limits the time, and `status` what deletes the Machine.
    async fn is_explained(&self, code: i32, actor: &str, machine: &str, limit: &str) -> Result<()> {
        let expected = format!(
            "{actor}Machine/{machine}: its etcd member votes, but the Machine has no node yet: if it is deleted, Cluster API \
             does not remove the member, and etcd loses its quorum; {limit}"
        );
        let remediation = format!(
            "remediation of {machine} yes nothing, but etcd then loses its quorum (joining-member-needed)"
        );
        wait::until_within("the Machine is explained", EXPLAINED, || async {
            let why = self.kcp(&["why", NAME]).await?;
            let first = why.stdout.lines().next().unwrap_or_default();
            ensure!(
                why.code == code
                    && first.starts_with(&expected)
                    && first.ends_with("(joining-member-needed)"),
                "{why}\nexpected: {code} {expected}"
            );
            let status = self.kcp(&["status", NAME]).await?;
            let text = status.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
            ensure!(
                status.code == 1 && text.contains(&remediation) && !text.contains("Verdict: Healthy"),
                "{status}"
            );
            Ok(())
        })
        .await
    }

    /// The verbs that would make the Machine unwanted.
    async fn verbs_refuse(&self, machine: &str) -> Result<()> {
        for verb in [
            &["machine", "replace", machine, "--yes"][..],
            &["machine", "remediate", machine],
            &["machine", "prefer-delete", machine],
            &["scale", NAME, "--replicas", "3"],
            &["rollout", "start", NAME],
            &["upgrade", NAME, "--version", OLD, "--yes"],
        ] {
            let refused = self.kcp(verb).await?;
            ensure!(refused.code == 1, "{refused}");
        }
        Ok(())
    }

    /// Cluster API deletes the second Machine and leaves its member. Returns when the Machine was gone.
    async fn quorum_is_lost(&self, first: &str, second: &str) -> Result<Timestamp> {
        wait::until("the second Machine is gone", || async {
            let machines = self.cluster.machines().await?;
            ensure!(machines == [first], "the Machines are {machines:?}");
            Ok(())
        })
        .await?;
        let gone = Timestamp::now();
        let etcd = self.workload.etcd_of(first).await?;
        wait::until("etcd has no leader", || async {
            let status = etcd.status().await?;
            ensure!(status.leader == "0", "the leader is {}", status.leader);
            Ok(())
        })
        .await?;
        let members = etcd.known_members().await?;
        ensure!(
            members.len() == 2 && members.iter().any(|member| member.name == second),
            "the members are {members:?}"
        );
        self.way_out_is_named(first).await?;
        Ok(gone)
    }

    async fn way_out_is_named(&self, first: &str) -> Result<()> {
        wait::until_within("the way out is named", EXPLAINED, || async {
            let status = self.kcp(&["status", NAME]).await?;
            let text = status.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
            ensure!(
                status.code == 1
                    && text.contains("(etcd-no-quorum)")
                    && text.contains(&format!(
                        "on the host of Machine {first}, start etcd if it does not run, and list its members"
                    ))
                    && text.contains("add --force-new-cluster to the command"),
                "{status}"
            );
            let plan = self.kcp(&["plan", NAME]).await?;
            ensure!(
                plan.code == 1
                    && format!("{}{}", plan.stdout, plan.stderr)
                        .contains("etcd has lost quorum: no known member is healthy"),
                "{plan}"
            );
            Ok(())
        })
        .await
    }

    /// Follows the printed way out to health.
    #[expect(clippy::print_stderr, reason = "the figure is for people")]
    async fn recovers(&self, first: &str) -> Result<()> {
        let began = Instant::now();
        let check = [
            "delete",
            "machinehealthcheck",
            NAME,
            "-n",
            NAMESPACE,
            "--ignore-not-found",
        ];
        self.management.kubectl().succeed(check).await?;
        self.workload.inflict(Fault::ForceNewCluster, first).await?;
        self.workload.inflict(Fault::ReleaseNodes, first).await?;
        self.cluster.settled(1).await?;
        wait::until("status says that all is well", || async {
            let status = self.kcp(&["status", NAME]).await?;
            ensure!(status.code == 0 && status.stdout.contains("Healthy"), "{status}");
            Ok(())
        })
        .await?;
        eprintln!(
            "healthy {:.1} s after --force-new-cluster",
            began.elapsed().as_secs_f64()
        );
        Ok(())
    }
}
