//! `kubectl kcp machine diagnose` with Cluster API's controllers: a Machine that has joined, one that has an etcd member and no Node,
//! and one whose API server is not reachable.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use kcp_tests::workload_access::{AccessFault, WorkloadAccess};
use serde_json::json;

use crate::shared::with_controllers;

const NAMESPACE: &str = "diagnosis";
const NAME: &str = "edge";

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_machine_is_diagnosed_while_it_joins() {
    with_controllers(NAMESPACE, is_diagnosed);
}

async fn is_diagnosed(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, "v1.34.2").await?;
    cluster.settled(1).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let machines = cluster.machines().await?;
    let first = machines.first().context("no Machine")?;
    let scene = Scene { management };
    let joined = [
        "The Machine has joined, and has no known problems",
        "bootstrap data done",
        "infrastructure done",
        "Node registered done",
        "etcd member votes done",
        "static Pods ready done",
        "Node ready done",
        &format!("KubeadmControlPlane/{NAME} "),
        &format!("KubeadmConfig/{first} "),
        &format!("StandInMachine/{first} "),
        &format!("({first}): voter, leader, healthy, no alarm"),
        "taints: node-role.kubernetes.io/control-plane:NoSchedule",
        "SuccessfulSetNodeRef",
    ];
    scene.says(first, 0, &joined).await?;

    let second = scene.votes_without_node(&cluster, &workload, first).await?;
    let joining = [
        "kubeadm on the new Machine acts next: ",
        "infrastructure done",
        "Node registered missing",
        "etcd member votes done",
        "static Pods ready waits",
        "next: on the host: tail -n 100 /var/log/cloud-init-output.log",
    ];
    scene.says(&second, 0, &joining).await?;
    let template = "jsonpath={.steps[?(@.state==\"missing\")].step} {.steps[?(@.state==\"missing\")].actor}";
    let arguments = ["machine", "diagnose", &second, "-o", template];
    let kubectl = management.kubectl();
    kubectl
        .kcp_says(NAMESPACE, &arguments, 0, &["nodeRegistered kubeadm"])
        .await?;

    let access = WorkloadAccess::read(management.run(), management.client(), NAMESPACE, NAME).await?;
    access.inflict(AccessFault::Nowhere).await?;
    let unreachable = [
        "It is unknown whether the Machine is healthy",
        "static Pods ready unknown",
        "next: on the host: crictl logs $(crictl ps -a --name kube-apiserver --latest -q)",
        "What could not be read:",
    ];
    scene.says(first, 2, &unreachable).await?;
    access.inflict(AccessFault::Restore).await?;

    let unknown = kubectl
        .kcp(NAMESPACE, &["machine", "diagnose", "edge-none"])
        .await?;
    ensure!(
        unknown.code == 2
            && unknown
                .stderr
                .contains(&format!("Machines of control planes in namespace {NAMESPACE}: "))
            && unknown.stderr.contains(first),
        "{unknown}"
    );
    workload.inflict(Fault::ReleaseNodes, first).await?;
    cluster.settled(3).await?;
    cluster.delete().await
}

struct Scene<'m> {
    management: &'m ManagementCluster,
}

impl Scene<'_> {
    async fn says(&self, machine: &str, code: i32, texts: &[&str]) -> Result<()> {
        let arguments = ["machine", "diagnose", machine];
        let kubectl = self.management.kubectl();
        kubectl
            .kcp_says(NAMESPACE, &arguments, code, texts)
            .await
            .map(drop)
    }

    /// Scales up, and waits until the member of the new Machine votes and the Machine has no Node.
    async fn votes_without_node(
        &self,
        cluster: &Cluster,
        workload: &WorkloadCluster,
        first: &str,
    ) -> Result<String> {
        workload.inflict(Fault::HoldNodes, first).await?;
        cluster.patch(&json!({"spec": {"replicas": 3}})).await?;
        wait::until("the second member votes", || async {
            let members = workload.etcd().await?.members().await?;
            let mut voters = members.iter().filter(|member| !member.is_learner);
            let second = voters.find(|member| !member.name.is_empty() && member.name != first);
            second
                .map(|member| member.name.clone())
                .context("no second voter")
        })
        .await
    }
}
