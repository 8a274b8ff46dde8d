//! Removal of a control plane Node with a real etcd member. The machines are stand-ins, whose Cluster is paused, and whose Nodes
//! no longer name their Machines: as if kubeadm alone had joined them.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Secret};
use kcp_tests::assets::Assets;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::shared::with_controllers;

const NAMESPACE: &str = "node-member";
const NAME: &str = "edge";
/// A member without a Node.
const STRAY: &str = "stray";

#[test]
fn a_member_leaves_etcd_before_its_node_is_deleted() {
    with_controllers(NAMESPACE, removed);
}

async fn removed(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    let machines = cluster.machines().await?;
    let [first, second, third] = machines.as_slice() else {
        bail!("the Machines are {machines:?}");
    };
    cluster.pause(true).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let nodes: Api<Node> = Api::all(workload.client()?.clone());
    let plain = Plain::new(management).await?;
    let belongs = plain.remove(second).await?;
    ensure!(
        belongs.code == 1 && belongs.stdout.contains(&format!("Machine {NAMESPACE}/{second}")),
        "{belongs}"
    );
    for machine in &machines {
        let patch = json!({"metadata": {"annotations": {"cluster.x-k8s.io/machine": null}}});
        nodes
            .patch(machine, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
    }
    let without_files = plain
        .kubectl
        .run(["kcp", "node", "remove", second, "--yes"])
        .await?;
    ensure!(
        without_files.code == 2 && without_files.stderr.contains("--etcd-ca"),
        "{without_files}"
    );

    // Four members, of which one has no Node.
    workload.inflict(Fault::Stray, STRAY).await?;
    plain.upload_certificates().await?;
    plain
        .no_host_joins(
            STRAY,
            &format!("etcd lists the member {STRAY}, but the cluster has no Node {STRAY}"),
        )
        .await?;
    let gone = plain.remove(STRAY).await?;
    let removed = format!("etcd member {STRAY} removed; the cluster has no Node of this name\n");
    ensure!(gone.code == 0 && gone.stdout == removed, "{gone}");
    ensure!(members(&workload.etcd().await?.members().await?) == sorted([first, second, third]));
    let again = plain.remove(STRAY).await?;
    let unknown = format!("the cluster has no Node {STRAY}, and etcd has no member {STRAY}");
    ensure!(again.code == 1 && again.stdout.contains(&unknown), "{again}");

    workload.inflict(Fault::Kill, third).await?;
    plain
        .no_host_joins(third, &format!("etcd member {third} does not respond"))
        .await?;
    let refused = plain.remove(second).await?;
    ensure!(
        refused.code == 1
            && refused.stdout.contains(&format!(
                "without the member of {second}, etcd loses quorum: 1 of 2 voting members healthy, 2 needed for quorum"
            )),
        "{refused}"
    );
    ensure!(members(&workload.etcd().await?.members().await?) == sorted([first, second, third]));

    let done = plain.remove(third).await?;
    ensure!(
        done.code == 0 && done.stderr.contains("removed its etcd member"),
        "{done}"
    );
    ensure!(members(&workload.etcd().await?.members().await?) == sorted([first, second]));
    ensure!(nodes.get_opt(third).await?.is_none(), "{third} still exists");
    cluster.pause(false).await?;
    cluster.delete().await
}

fn sorted<const N: usize>(names: [&String; N]) -> Vec<String> {
    let mut names = names.map(Clone::clone).to_vec();
    names.sort();
    names
}

fn members(listed: &[kcp_tests::etcd::Member]) -> Vec<String> {
    let mut names: Vec<String> = listed.iter().map(|member| member.name.clone()).collect();
    names.sort();
    names
}

/// A user with a kubeconfig for the workload cluster, and the files that kubeadm stores on its hosts.
struct Plain {
    kubectl: Kubectl,
    files: Vec<String>,
}

impl Plain {
    async fn new(management: &ManagementCluster) -> Result<Self> {
        let client: &Client = management.client();
        let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        let value = async |name: &str, key: &str| {
            let secret = secrets.get(name).await?;
            let value = secret.data.and_then(|mut data| data.remove(key));
            Ok::<_, anyhow::Error>(value.with_context(|| format!("{name} has no {key}"))?.0)
        };
        let file = |name: &str| management.kubectl().scratch_file(&format!("node-member-{name}"));
        fs::write(file("kubeconfig"), value("edge-kubeconfig", "value").await?)?;
        fs::write(file("ca.crt"), value("edge-etcd", "tls.crt").await?)?;
        let workload = management.machines().cluster(NAMESPACE, NAME).await?;
        let client_pair = workload.etcd_client_files()?;
        let run = management.run();
        let kubectl = Kubectl::new(run, &Assets::locate()?, file("kubeconfig"))?;
        let files = [
            ("--etcd-ca", file("ca.crt")),
            ("--etcd-certificate", client_pair.certificate.clone()),
            ("--etcd-key", client_pair.key.clone()),
        ];
        let files = files
            .into_iter()
            .flat_map(|(flag, path)| [flag.to_owned(), path.display().to_string()]);
        Ok(Self {
            kubectl,
            files: files.collect(),
        })
    }

    /// What kubeadm uploads; this cluster has no kubeadm.
    async fn upload_certificates(&self) -> Result<()> {
        let upload = [
            "create",
            "secret",
            "generic",
            "kubeadm-certs",
            "-n",
            "kube-system",
        ];
        self.kubectl.succeed(upload).await.map(drop)
    }

    /// A script for another host of the control plane is refused because of this member, and the remedy is the removal.
    async fn no_host_joins(&self, member: &str, why: &str) -> Result<()> {
        let key = self
            .kubectl
            .scratch_file("node-member-certificate-key")
            .display()
            .to_string();
        fs::write(&key, "0".repeat(64))?;
        let words = [
            "kcp",
            "node",
            "join-script",
            "--control-plane",
            "--certificate-key-file",
            &key,
        ];
        let words = words.map(str::to_owned);
        let refused = self.kubectl.run(words.iter().chain(&self.files)).await?;
        let why = format!("no script was written: {why}");
        let then = ": kubeadm adds no member while an existing member does not respond\n";
        let remedy = format!("kubectl kcp node remove {member} --etcd-ca FILE");
        let parts = [why.as_str(), then, &remedy];
        ensure!(
            refused.code == 1 && parts.iter().all(|part| refused.stderr.contains(part)),
            "{refused}"
        );
        Ok(())
    }

    async fn remove(&self, node: &str) -> Result<CommandOutput> {
        let words = ["kcp", "node", "remove", node, "--yes", "--force"].map(str::to_owned);
        self.kubectl.run(words.iter().chain(&self.files)).await
    }
}
