//! One Machine, and a second one whose etcd member votes although its Node has not appeared: what Cluster API does when the
//! second one becomes unwanted (kubernetes-sigs/cluster-api#11772), and what our rule denies.

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kcp_tests::cluster::Cluster;
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
        self.override_rule().await?;
        self.cluster.patch(&revert).await?;
        self.quorum_is_lost(&first, &second).await
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
             Node; if this never happens, pause the control plane: kubectl kcp rollout pause {NAME} -n {NAMESPACE}; remove the \
             Machine's member from etcd if there is one; make this change; then resume: kubectl kcp rollout resume {NAME} -n \
             {NAMESPACE} (joining-machine-outdated)"
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

    /// Cluster API deletes the second Machine and leaves its member.
    async fn quorum_is_lost(&self, first: &str, second: &str) -> Result<()> {
        wait::until("the second Machine is gone", || async {
            let machines = self.cluster.machines().await?;
            ensure!(machines == [first], "the Machines are {machines:?}");
            Ok(())
        })
        .await?;
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
        Ok(())
    }
}
