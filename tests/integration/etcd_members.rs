//! `kubectl kcp etcd members` and `etcd promote` on real etcd members, through the real port-forward: a member that was added and
//! never started, and a learner that kubeadm has not promoted.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::remedies;
use crate::shared::with_controllers;

const NAME: &str = "edge";
const NAMESPACE: &str = "etcd-members";

/// The peer URL of a member that never starts.
const GHOST: &str = "https://10.0.0.99:2380";

#[test]
#[ignore = "takes minutes: make test-long"]
fn members_are_listed_and_a_learner_is_promoted() {
    with_controllers("etcd-members", listed_and_promoted);
}

struct Scene<'m> {
    management: &'m ManagementCluster,
    workload: std::sync::Arc<WorkloadCluster>,
}

async fn listed_and_promoted(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    let scene = Scene {
        management,
        workload: management.machines().cluster(NAMESPACE, NAME).await?,
    };
    scene.every_member_is_listed().await.context("healthy")?;
    scene.one_that_never_started().await.context("never started")?;
    let machines = cluster.machines().await?;
    let last = machines.last().context("no Machine")?;
    scene.a_learner(last).await.context("a learner")?;
    cluster.delete().await
}

impl Scene<'_> {
    async fn etcd(&self, verb: &str, more: &[&str]) -> Result<CommandOutput> {
        let fixed = ["kcp", "etcd", verb, NAME, "-n", NAMESPACE, "--timeout=60s"];
        self.management.kubectl().run(fixed.iter().chain(more)).await
    }

    /// The document of `etcd members`, which ends with this code.
    async fn members(&self, code: i32) -> Result<Value> {
        let listed = self.etcd("members", &["-o", "json"]).await?;
        ensure!(listed.code == code, "{listed}");
        Ok(serde_json::from_str(&listed.stdout)?)
    }

    /// The id of the member with this name, as etcdctl prints it. The name is empty if the member has not started.
    async fn id(&self, name: &str) -> Result<String> {
        let members = self.workload.etcd().await?.members().await?;
        let named = members.iter().find(|member| member.name == name);
        let id: u64 = named.context("no such member")?.id.parse()?;
        Ok(format!("{id:x}"))
    }

    async fn voters(&self) -> Result<usize> {
        let members = self.workload.etcd().await?.members().await?;
        Ok(members.iter().filter(|member| !member.is_learner).count())
    }

    async fn every_member_is_listed(&self) -> Result<()> {
        let document = wait::until("etcd members finds no problem", || self.members(0)).await?;
        let leader = self.workload.leader().await?;
        let members = all(&document)?;
        ensure!(members.len() == 3, "{document:#}");
        for member in members {
            let name = text(member, "/name");
            let expected = json!({
                "id": self.id(name).await?,
                "name": name,
                "machine": name,
                "node": name,
                "role": if name == leader { "leader" } else { "voter" },
                "problems": [],
            });
            let mut known = member.clone();
            let fields = known.as_object_mut().context("no object")?;
            let status = fields.remove("status").context("no status")?;
            let controller = fields.remove("controller").context("no condition")?;
            ensure!(known == expected, "{known:#} instead of {expected:#}");
            ensure!(text(&controller, "/status") == "True", "{controller}");
            ensure!(text(&status, "/leader") == self.id(&leader).await?, "{status}");
            ensure!(
                status.get("latencyMilliseconds").is_some_and(Value::is_u64)
                    && !text(&status, "/version").is_empty(),
                "{status}"
            );
        }
        let table = self.etcd("members", &[]).await?;
        ensure!(
            table.stdout.contains(" leader ") && table.stdout.contains("etcd: 3 of 3 voting members healthy"),
            "{table}"
        );
        Ok(())
    }

    async fn one_that_never_started(&self) -> Result<()> {
        wait::until("etcd accepts another member", || async {
            self.workload.etcd().await?.add_learner(GHOST).await
        })
        .await?;
        let id = self.id("").await?;
        let document = wait::until("the new member is a problem", || self.members(1)).await?;
        let ghost =
            json!({"id": id, "name": "", "role": "learner", "status": null, "problems": ["has not started"]});
        ensure!(all(&document)?.contains(&ghost), "{document:#}");
        let refused = self.etcd("promote", &[&id, "--yes"]).await?;
        ensure!(
            refused.code == 1
                && refused
                    .stdout
                    .contains(&format!("etcd member {id} belongs to no Machine")),
            "{refused}"
        );
        remedies::are_accepted(self.management, NAMESPACE, NAME).await?;
        let hint = format!("kubectl kcp etcd remove-member {NAME} {id} -n {NAMESPACE}");
        ensure!(refused.stderr.contains(&hint), "{refused}");
        let removed = self.etcd("remove-member", &[&id, "--yes"]).await?;
        ensure!(removed.code == 0, "{removed}");
        wait::until("etcd members finds no problem", || self.members(0)).await?;
        Ok(())
    }

    async fn a_learner(&self, machine: &str) -> Result<()> {
        self.workload.inflict(Fault::Relearn, machine).await?;
        let id = wait::until("the learner has caught up", || async {
            let document = self.members(1).await?;
            let member = all(&document)?
                .iter()
                .find(|member| text(member, "/name") == machine)
                .with_context(|| format!("{document:#}"))?;
            ensure!(member.get("problems") == Some(&json!([])), "{member:#}");
            let id = self.id(machine).await?;
            let hint = format!("promote the member: kubectl kcp etcd promote {NAME} {id} -n {NAMESPACE}");
            ensure!(document.to_string().contains(&hint), "{document:#}");
            Ok(id)
        })
        .await?;
        remedies::are_accepted(self.management, NAMESPACE, NAME).await?;

        self.workload.kill_member(machine).await?;
        let dead = self.etcd("promote", &[machine, "--yes"]).await?;
        ensure!(
            dead.code == 1
                && dead
                    .stdout
                    .contains(&format!("etcd member {machine} does not respond")),
            "{dead}"
        );
        ensure!(self.voters().await? == 2, "a dead learner votes");
        self.workload.inflict(Fault::Restart, machine).await?;

        let planned = wait::until("the learner has caught up again", || async {
            let planned = self.etcd("promote", &[machine, "--dry-run"]).await?;
            ensure!(planned.code == 0, "{planned}");
            Ok(planned)
        })
        .await?;
        ensure!(
            planned.stdout.contains(&format!("etcd member {machine} (id {id}) would be promoted"))
                && planned.stdout.contains(
                    "before: 2 of 2 voting members healthy, 2 needed for quorum, 1 not voting yet; after: 3 of 3 voting members healthy"
                ),
            "{planned}"
        );
        let unconfirmed = self.etcd("promote", &[machine]).await?;
        ensure!(
            unconfirmed.code == 2 && unconfirmed.stderr.contains("hint: confirm with --yes"),
            "{unconfirmed}"
        );
        ensure!(self.voters().await? == 2, "a dry run has promoted the learner");

        let promoted = self.etcd("promote", &[&id, "--yes", "-o", "json"]).await?;
        ensure!(promoted.code == 0, "{promoted}");
        let document: Value = serde_json::from_str(&promoted.stdout)?;
        ensure!(
            document.get("wasVoter") == Some(&json!(false))
                && document.pointer("/votesAfter/voters") == Some(&json!(3)),
            "{document:#}"
        );
        ensure!(self.voters().await? == 3, "the learner does not vote");
        let again = self.etcd("promote", &[machine, "--yes"]).await?;
        ensure!(
            again.code == 0
                && again.stdout
                    == format!(
                        "kubeadmcontrolplane/{NAME}: etcd unchanged: member {machine} (id {id}) is already a voter\n"
                    ),
            "{again}"
        );
        self.one_event().await?;
        wait::until("etcd members finds no problem", || self.members(0)).await?;
        Ok(())
    }

    /// The promotion has an Event, and the command that changed nothing has none.
    async fn one_event(&self) -> Result<()> {
        let events = ["get", "events.events.k8s.io", "-n", NAMESPACE, "-o", "json"];
        let events = self.management.kubectl().succeed(events).await?;
        let events: Value = serde_json::from_str(&events.stdout)?;
        let events = events
            .pointer("/items")
            .and_then(Value::as_array)
            .context("no list")?;
        let promoted = events
            .iter()
            .filter(|event| text(event, "/reason") == "EtcdMemberPromoted");
        ensure!(promoted.count() == 1, "{events:?}");
        Ok(())
    }
}

fn all(document: &Value) -> Result<&Vec<Value>> {
    document
        .pointer("/members")
        .and_then(Value::as_array)
        .context("no list")
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
