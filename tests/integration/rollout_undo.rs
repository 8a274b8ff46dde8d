//! `kubectl kcp rollout undo` under Cluster API's real controllers: a change with which a new Machine does not start is taken
//! back, and no Machine that works is replaced. The user has the shipped roles only.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::on_call::crash_api_server;
use crate::remedies;
use crate::roles;
use crate::shared::with_controllers;

const NAMESPACE: &str = "rollout-undo";
const NAME: &str = "edge";
const VERSION: &str = "v1.34.2";
const NEXT: &str = "v1.35.0";
const TEMPLATES: &str = "standinmachinetemplates.infrastructure.cluster.x-k8s.io";
const OTHER_TEMPLATE: &str = "edge-other";
const OPERATOR: &str = "undo-operator";

struct Subject<'m> {
    management: &'m ManagementCluster,
    cluster: Cluster,
    /// The spec and the Machines before the change.
    spec: Value,
    machines: BTreeSet<String>,
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_change_that_does_not_start_is_undone() {
    with_controllers(NAMESPACE, is_undone);
}

async fn is_undone(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, VERSION).await?;
    cluster.settled(3).await?;
    roles::bind_operator(management.kubectl(), OPERATOR, NAMESPACE).await?;
    let subject = Subject {
        management,
        spec: spec(&cluster).await?,
        machines: cluster.machines().await?.into_iter().collect(),
        cluster,
    };
    subject
        .refuses(&[], "nothing to undo: no Machine was created from another spec")
        .await?;
    subject.a_crashing_component().await?;
    subject.a_machine_that_does_not_join().await?;
    subject.a_version_that_has_joined().await?;
    subject.cluster.delete().await
}

impl Subject<'_> {
    /// A flag with which the API server ends: `why` offers the way back, and each dry run shows it.
    async fn a_crashing_component(&self) -> Result<()> {
        let flags = json!([{"name": "audit-log-format", "value": "soon"}]);
        let flags = json!({"clusterConfiguration": {"apiServer": {"extraArgs": flags}}});
        let new = self
            .change(&json!({"spec": {"kubeadmConfigSpec": flags}}))
            .await?;
        // Otherwise the controller could delete an earlier Machine before the component crashes.
        let crashed = async || crash_api_server(self.management, NAMESPACE, &new).await;
        self.management
            .without_control_plane_controller(NAMESPACE, crashed)
            .await?;
        let offered = format!("write the earlier spec back: kubectl kcp rollout undo {NAME} -n {NAMESPACE}");
        self.management
            .kubectl()
            .kcp_says(NAMESPACE, &["why", NAME], 1, &[&offered])
            .await?;
        remedies::are_accepted(self.management, NAMESPACE, NAME).await?;

        let changed = spec(&self.cluster).await?;
        let line =
            "- spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[audit-log-format].value: soon";
        let replaced = format!("replaced: {new}");
        for place in ["client", "server"] {
            let shown = self.undo(&[&format!("--dry-run={place}")]).await?;
            ensure!(
                shown.code == 0 && shown.stdout.contains(line) && shown.stdout.contains(&replaced),
                "{shown}"
            );
        }
        let unconfirmed = self.undo(&[]).await?;
        ensure!(
            unconfirmed.code == 2 && unconfirmed.stderr.contains("confirm with --yes"),
            "{unconfirmed}"
        );
        ensure!(
            spec(&self.cluster).await? == changed,
            "an undo without --yes has changed the spec"
        );
        let document = self.undo(&["--dry-run=server", "-o", "json"]).await?;
        let document: Value = serde_json::from_str(&document.stdout).with_context(|| document.to_string())?;
        ensure!(document.get("spec") == Some(&self.spec), "{document:#}");

        let undone = self.undo(&["--yes"]).await?;
        ensure!(
            undone.code == 0 && undone.stdout.contains(line) && undone.stdout.contains(&replaced),
            "{undone}"
        );
        self.is_as_before().await
    }

    /// A minor version and another template with which the new Machine gets no Node, but its etcd member votes.
    async fn a_machine_that_does_not_join(&self) -> Result<()> {
        let workload = self.management.machines().cluster(NAMESPACE, NAME).await?;
        let first = self.machines.first().context("no Machine")?;
        workload.inflict(Fault::HoldNodes, first).await?;
        let template = self.template().await?;
        let mut other = template.clone();
        *other.pointer_mut("/metadata/name").context("no name")? = json!(OTHER_TEMPLATE);
        self.apply(&other).await?;
        let reference = json!({"spec": {"infrastructureRef": {"name": OTHER_TEMPLATE}}});
        let new = self
            .change(&json!({"spec": {"version": NEXT, "machineTemplate": reference}}))
            .await?;
        wait::until("the new member votes", || async {
            let members = workload.etcd().await?.members().await?;
            let mut voters = members.iter().filter(|member| !member.is_learner);
            ensure!(
                voters.any(|member| member.name == new),
                "the members are {members:?}"
            );
            Ok(())
        })
        .await?;
        let kubectl = self.management.kubectl();
        kubectl
            .succeed(["delete", TEMPLATES, NAME, "-n", NAMESPACE])
            .await?;
        self.refuses(&["--yes"], "StandInMachineTemplate edge does not exist")
            .await?;
        self.apply(&template).await?;
        let undone = self.undo(&["--yes", "--wait=5m"]).await?;
        ensure!(
            undone.code == 0 && undone.stdout.contains("+ spec.version: v1.34.2"),
            "{undone}"
        );
        workload.inflict(Fault::ReleaseNodes, first).await?;
        self.is_as_before().await
    }

    /// The way back is denied, as kcp-webhook denies it.
    async fn a_version_that_has_joined(&self) -> Result<()> {
        let new = self.change(&json!({"spec": {"version": NEXT}})).await?;
        wait::until("the new Machine has a Node", || async {
            let joined = self.cluster.with_nodes().await?;
            ensure!(joined.contains(&new), "{joined:?}");
            Ok(())
        })
        .await?;
        self.refuses(&["--yes"], "(version-lowered)").await?;
        self.refuses(&["--yes", "--force"], "(version-lowered)").await
    }

    /// The infrastructure template of the control plane, so that it can be created again.
    async fn template(&self) -> Result<Value> {
        let read = ["get", TEMPLATES, NAME, "-n", NAMESPACE, "-o", "json"];
        let read = self.management.kubectl().succeed(read).await?;
        let mut template: Value = serde_json::from_str(&read.stdout)?;
        *template.get_mut("metadata").context("no metadata")? = json!({"name": NAME, "namespace": NAMESPACE});
        Ok(template)
    }

    async fn apply(&self, object: &Value) -> Result<()> {
        let kubectl = self.management.kubectl();
        let file = kubectl.scratch_file("rollout-undo.json");
        std::fs::write(&file, object.to_string())?;
        kubectl
            .succeed(["apply", "-f", &file.display().to_string()])
            .await
            .map(drop)
    }

    /// Writes a change, and returns the name of the first new Machine.
    async fn change(&self, patch: &Value) -> Result<String> {
        self.cluster.patch(patch).await?;
        wait::until("the controller creates a Machine", || async {
            let machines = self.cluster.machines().await?;
            let mut new = machines.into_iter().filter(|name| !self.machines.contains(name));
            new.next().context("no new Machine")
        })
        .await
    }

    async fn is_as_before(&self) -> Result<()> {
        self.cluster.settled(3).await?;
        let machines: BTreeSet<String> = self.cluster.machines().await?.into_iter().collect();
        ensure!(
            machines == self.machines,
            "{:?} became {machines:?}",
            self.machines
        );
        let spec = spec(&self.cluster).await?;
        ensure!(spec == self.spec, "{:#} became {spec:#}", self.spec);
        let status = ["status", NAME];
        self.management
            .kubectl()
            .kcp_says(NAMESPACE, &status, 0, &["Healthy"])
            .await?;
        Ok(())
    }

    async fn refuses(&self, flags: &[&str], why: &str) -> Result<()> {
        let refused = self.undo(flags).await?;
        ensure!(
            refused.code == 1 && refused.words().contains(why),
            "{why} expected: {refused}"
        );
        Ok(())
    }

    async fn undo(&self, flags: &[&str]) -> Result<CommandOutput> {
        let words = ["rollout", "undo", NAME, "--as", OPERATOR]
            .iter()
            .chain(flags)
            .copied();
        let words: Vec<&str> = words.collect();
        self.management.kubectl().kcp(NAMESPACE, &words).await
    }
}

async fn spec(cluster: &Cluster) -> Result<Value> {
    cluster.get().await?.get("spec").cloned().context("no spec")
}
