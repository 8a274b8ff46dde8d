//! Clusters on real machines, for minutes: Cluster API's unmodified bootstrap data, the anchor of kcp-webhook, and the scripts with
//! which hosts join, leave and bring back etcd.

#![expect(clippy::print_stderr, reason = "the figures of a run belong in its output")]

mod anchor;
mod ca_rotation;
mod client_certificate;
mod cluster_api;
mod discovery;
mod installation;
mod join_reports;
mod kubeadm_files;
mod nodes;
mod power_cuts;
mod recovery;
mod resiliency;
mod restore;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kcp_tests::cluster::Cluster;
use kcp_tests::etcd::EtcdClient;
use kcp_tests::machines::real::{Images, KubeadmCluster, Machine, Site};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::pki::KeyPairFiles;
use kcp_tests::wait;
use kube::Api;

use crate::objects::{control_plane, written};
use crate::real_machines::on_machines;

/// Runs a test with a management cluster of its own, in whose namespace Cluster API reconciles: one test after the other, because their
/// controllers have the same names in the run.
fn with_cluster_api(name: &str, test: impl AsyncFnOnce(&Arc<Site>, &ManagementCluster) -> Result<()> + Send) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    on_machines(name, Images::All, async |site| {
        let management = ManagementCluster::start_at(site).await?;
        management
            .with_controllers(cluster_api::NAMESPACE, async || test(site, &management).await)
            .await
    });
}

/// Creates a control plane that no controller reconciles, in a namespace and with a name. kube-proxy on the node of an API server
/// learns a moment later than others that a Pod is ready, so the first calls of Cluster API's webhooks may fail.
async fn create_control_plane(cluster: &KubeadmCluster, (namespace, name): (&str, &str)) -> Result<()> {
    let object = [control_plane(name, 3, "v1.34.2")];
    wait::until("Cluster API's webhooks admit a control plane", || async {
        written(cluster.kubectl(), "create", &object, &["-n", namespace]).await
    })
    .await
    .map(drop)
}

/// Prints how long each part takes. No test asserts it.
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn lap(&mut self, what: &str) {
        eprintln!("{:>5} s  {what}", self.0.elapsed().as_secs());
        self.0 = Instant::now();
    }
}

/// `ADDRESS:PORT` of each API server in the configuration of a machine's proxy.
fn listed_servers(machine: &Machine) -> Result<BTreeSet<String>> {
    let text = file_on(machine, "/etc/kubernetes/kcp-api-proxy/haproxy.cfg")?;
    let servers = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("server "));
    Ok(servers
        .filter_map(|server| server.split_whitespace().nth(1))
        .map(str::to_owned)
        .collect())
}

/// Succeeds if the kubelet of a machine connects to the proxy.
fn kubelet_uses_proxy(machine: &Machine) -> Result<()> {
    let kubeconfig = file_on(machine, "/etc/kubernetes/kubelet.conf")?;
    ensure!(
        kubeconfig.contains("server: https://127.0.0.1:7445\n"),
        "the kubelet does not use the proxy"
    );
    Ok(())
}

fn file_on(machine: &Machine, path: &str) -> Result<String> {
    let file = machine.file(path);
    fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))
}

/// `ADDRESS:PORT` of the API server of each machine.
fn servers_of<'a>(machines: impl IntoIterator<Item = &'a Machine>) -> BTreeSet<String> {
    let server = |machine: &Machine| format!("{}:6443", machine.address());
    machines.into_iter().map(server).collect()
}

/// The file with the kubeconfig that Cluster API has created for a cluster.
async fn workload_kubeconfig(
    site: &Site,
    management: &ManagementCluster,
    cluster: &Cluster,
) -> Result<PathBuf> {
    let secrets: Api<Secret> = Api::namespaced(management.client().clone(), cluster.namespace());
    let secret = secrets.get(&format!("{}-kubeconfig", cluster.name())).await?;
    let kubeconfig = secret.data.and_then(|mut data| data.remove("value"));
    let kubeconfig = kubeconfig.context("the Secret has no kubeconfig")?;
    let file = site.folder().join("workload.conf");
    fs::write(&file, kubeconfig.0).with_context(|| format!("writing {}", file.display()))?;
    Ok(file)
}

/// The etcd member of a machine.
async fn etcd_on(machine: &Machine) -> Result<EtcdClient> {
    let file = |name: &str| machine.file(&format!("/etc/kubernetes/pki/etcd/{name}"));
    let identity = KeyPairFiles {
        certificate: file("healthcheck-client.crt"),
        key: file("healthcheck-client.key"),
    };
    let address = machine.address();
    let address = address
        .parse()
        .with_context(|| format!("the address {address}"))?;
    EtcdClient::new(address, &file("ca.crt"), &identity).await
}
