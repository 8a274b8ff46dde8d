//! One Machine, and a second one whose etcd member votes although its Node has not appeared: what Cluster API does when the
//! second one becomes unwanted (kubernetes-sigs/cluster-api#11772), what our rule and checks say before, and the way out
//! afterwards.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{resources, wait};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::shared::with_controllers;

const NAMESPACE: &str = "joining";
const NAME: &str = "edge";
const OLD: &str = "v1.34.2";
const NEW: &str = "v1.35.0";
const OVERRIDE: &str = "kubectl-kcp.dev/override-rules";

/// How long before its deadline the health check is created: long enough for `why` and `status` on a busy machine, and less
/// than the five minutes of `why`'s notice.
const NOTICE: SignedDuration = SignedDuration::from_secs(290);

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

        let soon = Timestamp::now() + SignedDuration::from_hours(1);
        self.override_rule(Some(soon)).await?;
        self.cluster.patch(&revert).await?;
        self.override_rule(None).await?;
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
        let created = self.created(&second).await?;
        let elapsed = Timestamp::now().duration_since(created).as_secs();
        // Cluster API's minimum is 30 s.
        let timeout = SignedDuration::from_secs(elapsed.max(30));
        let noticed = json!({"nodeStartupTimeoutSeconds": (timeout + NOTICE).as_secs()});
        self.cluster.check_health_with(&noticed).await?;
        let deadline = created + timeout + NOTICE;
        let limit = format!(
            "MachineHealthCheck {NAME} marks the Machine as unhealthy at {deadline} (nodeStartupTimeout "
        );
        self.is_explained(1, "A person must act: ", &second, &limit)
            .await?;

        let health_checks = resources::machine_health_checks(self.management.client(), NAMESPACE);
        let due = json!({"spec": {"checks": {"nodeStartupTimeoutSeconds": timeout.as_secs()}}});
        health_checks
            .patch(NAME, &PatchParams::default(), &Patch::Merge(&due))
            .await?;
        self.quorum_is_lost(&first, &second).await?;
        health_checks.delete(NAME, &DeleteParams::default()).await?;
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
            "{field}: Forbidden: Machine {machine} has no Node yet, but its etcd member may already vote; this change makes the Machine \
             outdated, so Cluster API would delete the Machine but not its etcd member, and etcd would lose its quorum; wait until the \
             Machine has a Node; if it never gets a Node, pause the control plane: kubectl kcp rollout pause {NAME} -n {NAMESPACE}; \
             remove the Machine's member from etcd, if there is one; make this change; then resume the control plane: kubectl kcp \
             rollout resume {NAME} -n {NAMESPACE} (joining-machine-outdated)"
        );
        ensure!(
            denied.code == 1 && denied.stderr.contains(&expected),
            "{denied}\nexpected: {expected}"
        );
        Ok(())
    }

    /// Turns the denial into a warning until then, so that Cluster API sees what it would see without our webhook.
    async fn override_rule(&self, until: Option<Timestamp>) -> Result<()> {
        let entry = until.map(|until| format!("joining-machine-outdated={until:.0}"));
        self.cluster
            .patch(&json!({"metadata": {"annotations": {OVERRIDE: entry}}}))
            .await
    }

    /// When the Machine was created. Cluster API counts `nodeStartupTimeout` from then on, because the infrastructure is not ready while
    /// the stand-in provider holds the Node.
    async fn created(&self, machine: &str) -> Result<Timestamp> {
        let machines = resources::machines(self.management.client(), NAMESPACE);
        let created = machines.get(machine).await?.metadata.creation_timestamp;
        Ok(created.context("it has no creation time")?.0)
    }

    async fn says(&self, arguments: &[&str], code: i32, texts: &[&str]) -> Result<CommandOutput> {
        let kubectl = self.management.kubectl();
        kubectl.kcp_says(NAMESPACE, arguments, code, texts).await
    }

    /// `why` says who acts next and what limits the time, and `status` what deletes the Machine.
    async fn is_explained(&self, code: i32, actor: &str, machine: &str, limit: &str) -> Result<()> {
        let expected = format!(
            "{actor}Machine/{machine}: its etcd member votes, but the Machine has no node yet: if the Machine is deleted, \
             Cluster API does not remove the member, and etcd loses its quorum; {limit}"
        );
        let remediation = format!(
            "remediation of {machine} yes nothing, but etcd then loses its quorum (joining-member-needed)"
        );
        let why = self.says(&["why", NAME], code, &[&expected]).await?;
        ensure!(why.words().starts_with(&expected), "{why}");
        let status = self.says(&["status", NAME], 1, &[&remediation]).await?;
        let words = status.words();
        ensure!(
            !words.contains("Verdict: Healthy") && !words.contains("no quorum"),
            "{status}"
        );
        Ok(())
    }

    /// The verbs that would make the Machine unwanted.
    async fn verbs_refuse(&self, machine: &str) -> Result<()> {
        let lost = "the Machine has no node yet, so Cluster API would leave its etcd member behind";
        for (verb, why) in [
            (&["machine", "replace", machine, "--yes"][..], lost),
            (&["machine", "remediate", machine], lost),
            (&["machine", "prefer-delete", machine], lost),
            (&["scale", NAME, "--replicas", "3"], "(replicas-during-rollout)"),
            (&["rollout", "start", NAME], "a rollout is in progress"),
            (
                &["upgrade", NAME, "--to", OLD, "--yes"],
                "(joining-machine-outdated)",
            ),
        ] {
            self.says(verb, 1, &[why]).await?;
        }
        Ok(())
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
        self.way_out_is_named(first).await
    }

    /// `status` and `why` name the Machine that is left and what to do there, and `plan` makes no changes.
    async fn way_out_is_named(&self, first: &str) -> Result<()> {
        let host = format!("on the host of Machine {first} (");
        let way_out = [
            host.as_str(),
            "start etcd if it does not run; if it runs and waits for a member whose Machine no longer exists",
            "make the member on this host the only member: kubectl kcp etcd recover edge -n joining --survivor",
            "(etcd-no-quorum)",
        ];
        for command in ["status", "why"] {
            let output = self.says(&[command, NAME], 1, &way_out).await?;
            ensure!(!output.words().contains("the stopped members"), "{output}");
        }
        let lost = "etcd has lost quorum: no known member is healthy";
        self.says(&["plan", NAME], 1, &[lost]).await.map(drop)
    }

    /// Follows the printed way out to health.
    #[expect(clippy::print_stderr, reason = "the figure is for people")]
    async fn recovers(&self, first: &str) -> Result<()> {
        let began = Instant::now();
        self.workload.inflict(Fault::ForceNewCluster, first).await?;
        self.workload.inflict(Fault::ReleaseNodes, first).await?;
        self.says(&["reconcile", NAME], 0, &[]).await?;
        self.cluster.settled(1).await?;
        self.says(&["status", NAME], 0, &["Verdict: Healthy"]).await?;
        eprintln!(
            "healthy {:.1} s after --force-new-cluster",
            began.elapsed().as_secs_f64()
        );
        Ok(())
    }
}
