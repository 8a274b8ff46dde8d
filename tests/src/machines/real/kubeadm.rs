//! A cluster that the real kubeadm creates on machines, without Cluster API.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::machine::Machine;
use super::site::Site;
use crate::kubeconfig;
use crate::kubectl::{CommandOutput, Kubectl};
use crate::wait;

/// The bootstrap token of every cluster: a site is reachable from itself only.
const TOKEN: &str = "abcdef.0123456789abcdef";

/// The key with which kubeadm encrypts the certificates that a control plane machine that joins reads.
const CERTIFICATE_KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// kubeadm asks whether the kernel's configuration is known and whether cgroups have version 2.
pub const IGNORED_CHECK: &str = "SystemVerification";

const CONTAINER_RUNTIME: &str = "unix:///run/containerd/containerd.sock";

/// What kubeadm installs besides the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addons {
    None,
    /// kube-proxy and `CoreDNS`, for which the site needs [`super::Images::All`].
    All,
}

/// A cluster after `kubeadm init`.
pub struct KubeadmCluster {
    site: Arc<Site>,
    kubectl: Kubectl,
    client: Client,
    authority_hash: String,
}

/// The arguments of `kubeadm join`.
#[derive(Debug, Clone)]
pub struct Join<'a> {
    pub token: &'a str,
    /// `sha256:` and the hash of the CA's public key.
    pub authority_hash: &'a str,
    pub control_plane: bool,
}

impl KubeadmCluster {
    /// Creates the control plane on one machine. Its endpoint is the load balancer.
    pub async fn init(first: &Machine, addons: Addons) -> Result<Self> {
        Self::init_with(first, addons, &json!({})).await
    }

    /// [`Self::init`] with `apiServer` of kubeadm's `ClusterConfiguration`.
    pub async fn init_with(first: &Machine, addons: Addons, api_server: &Value) -> Result<Self> {
        let site = first.site();
        first.write("/root/init.yaml", &configuration(first, api_server))?;
        // containerd listens a moment before it responds to kubeadm.
        wait::until("kubeadm's preflight checks pass", || async {
            let preflight = [
                "kubeadm",
                "init",
                "phase",
                "preflight",
                "--config=/root/init.yaml",
            ];
            first.succeed(preflight).await.map(drop)
        })
        .await?;
        let mut command = vec!["kubeadm", "init", "--config=/root/init.yaml", "--upload-certs"];
        if addons == Addons::None {
            command.push("--skip-phases=addon/coredns,addon/kube-proxy");
        }
        let initialized = first.succeed(command).await?;
        let kubeconfig = site.folder().join("admin.conf");
        fs::copy(first.file("/etc/kubernetes/admin.conf"), &kubeconfig).context("copying the kubeconfig")?;
        Ok(Self {
            site: site.clone(),
            kubectl: Kubectl::new(site.run(), site.assets(), kubeconfig.clone())?,
            client: kubeconfig::client_of(&kubeconfig).await?,
            authority_hash: authority_hash(&initialized.stdout)
                .context("kubeadm init printed no command to join")?,
        })
    }

    pub const fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// A client with all permissions, whose calls fail while the control plane is off.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    pub const fn site(&self) -> &Arc<Site> {
        &self.site
    }

    /// What a worker needs to join.
    pub fn worker(&self) -> Join<'_> {
        Join {
            token: TOKEN,
            authority_hash: &self.authority_hash,
            control_plane: false,
        }
    }

    /// What a machine of the control plane needs to join, for two hours after [`Self::init`].
    pub fn control_plane(&self) -> Join<'_> {
        Join {
            control_plane: true,
            ..self.worker()
        }
    }

    /// The key to the certificates that [`Self::init`] uploaded for two hours.
    pub const fn certificate_key(&self) -> &'static str {
        CERTIFICATE_KEY
    }

    /// Runs `kubeadm join` on a machine, with any exit code.
    pub async fn join(&self, machine: &Machine, join: &Join<'_>) -> Result<CommandOutput> {
        let (host, port) = self.site.endpoint();
        let discovery = json!({
            "bootstrapToken": {
                "apiServerEndpoint": format!("{host}:{port}"),
                "token": join.token,
                "caCertHashes": [join.authority_hash],
            },
            "tlsBootstrapToken": join.token,
        });
        let mut configuration = json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "JoinConfiguration",
            "discovery": discovery,
            "nodeRegistration": registration(machine),
            // Otherwise kubeadm looks for an unknown token for five minutes.
            "timeouts": {"discovery": "20s"},
        });
        if let (true, Some(configuration)) = (join.control_plane, configuration.as_object_mut()) {
            let control_plane = json!({
                "localAPIEndpoint": {"advertiseAddress": machine.address()},
                "certificateKey": CERTIFICATE_KEY,
            });
            configuration.insert("controlPlane".to_owned(), control_plane);
        }
        machine.write("/root/join.yaml", &configuration.to_string())?;
        machine
            .exec(["kubeadm", "join", "--config=/root/join.yaml"])
            .await
    }

    /// The same cluster through the API server of one machine instead of the load balancer.
    pub async fn through(&self, machine: &Machine) -> Result<Self> {
        let (host, port) = self.site.endpoint();
        let path = self.site.folder().join(format!("{}.conf", machine.name()));
        let kubeconfig = fs::read_to_string(self.kubectl.kubeconfig()).context("reading the kubeconfig")?;
        let kubeconfig = kubeconfig.replace(
            &format!("https://{host}:{port}"),
            &format!("https://{}:{port}", machine.address()),
        );
        fs::write(&path, kubeconfig).with_context(|| format!("writing {}", path.display()))?;
        Ok(Self {
            site: self.site.clone(),
            kubectl: Kubectl::new(self.site.run(), self.site.assets(), path.clone())?,
            client: kubeconfig::client_of(&path).await?,
            authority_hash: self.authority_hash.clone(),
        })
    }

    /// Waits until these are the Nodes, and [`Self::is_ready_since`].
    pub async fn ready(&self, nodes: &[&str]) -> Result<()> {
        self.ready_since(nodes, Timestamp::UNIX_EPOCH).await
    }

    /// Waits until these are the Nodes, and [`Self::is_ready_since`]. After a power-off, the API server reports for a while what
    /// was true before.
    pub async fn ready_since(&self, nodes: &[&str], time: Timestamp) -> Result<()> {
        let what = format!("the Nodes {} are ready", nodes.join(", "));
        wait::until(&what, || self.is_ready_since(nodes, time)).await
    }

    /// Succeeds if these are the Nodes, if each is ready and has renewed its Lease after `time`, and if every pod is ready and its
    /// containers started after `time`.
    pub async fn is_ready_since(&self, nodes: &[&str], time: Timestamp) -> Result<()> {
        let all = ListParams::default();
        let found = Api::<Node>::all(self.client.clone()).list(&all).await?;
        let names: BTreeSet<_> = found.iter().map(kube::ResourceExt::name_any).collect();
        let expected: BTreeSet<_> = nodes.iter().map(|name| (*name).to_owned()).collect();
        ensure!(names == expected, "the Nodes are {names:?}");
        self.are_nodes_ready_since(nodes, time).await?;
        for pod in Api::<Pod>::all(self.client.clone()).list(&all).await? {
            is_pod_ready_since(&pod, time).with_context(|| format!("pod {}", pod.name_any()))?;
        }
        Ok(())
    }

    /// Succeeds if these Nodes are ready and have renewed their Leases after `time`.
    pub async fn are_nodes_ready_since(&self, nodes: &[&str], time: Timestamp) -> Result<()> {
        let all = Api::<Node>::all(self.client.clone());
        let leases = Api::<Lease>::namespaced(self.client.clone(), "kube-node-lease");
        for name in nodes {
            let node = all.get(name).await?;
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            let is_ready = |condition: &k8s_openapi::api::core::v1::NodeCondition| {
                condition.type_ == "Ready" && condition.status == "True"
            };
            ensure!(
                conditions.is_some_and(|all| all.iter().any(is_ready)),
                "{name} is not ready"
            );
            let renewed = leases.get(name).await?.spec.and_then(|spec| spec.renew_time);
            let renewed = renewed
                .with_context(|| format!("{name} has not renewed its Lease"))?
                .0;
            ensure!(renewed > time, "{name} renewed its Lease at {renewed}");
        }
        Ok(())
    }
}

fn is_pod_ready_since(pod: &Pod, time: Timestamp) -> Result<()> {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let statuses = statuses.context("it has no containers yet")?;
    ensure!(!statuses.is_empty(), "it has no containers yet");
    for status in statuses {
        ensure!(status.ready, "{} is not ready", status.name);
        let running = status.state.as_ref().and_then(|state| state.running.as_ref());
        let started = running.and_then(|running| running.started_at.as_ref());
        let started = started
            .with_context(|| format!("{} does not run", status.name))?
            .0;
        ensure!(started >= time, "{} started at {started}", status.name);
    }
    Ok(())
}

/// kubeadm's configuration of the first machine.
fn configuration(first: &Machine, api_server: &Value) -> String {
    let (host, port) = first.site().endpoint();
    let documents = [
        json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": first.address()},
            "nodeRegistration": registration(first),
            "bootstrapTokens": [{"token": TOKEN, "ttl": "2h0m0s"}],
            "certificateKey": CERTIFICATE_KEY,
        }),
        json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": first.site().machine_assets.version(),
            "controlPlaneEndpoint": format!("{host}:{port}"),
            "networking": {"podSubnet": "10.244.0.0/16", "serviceSubnet": "10.96.0.0/16"},
            "apiServer": api_server,
        }),
        kube_proxy(),
    ];
    documents.map(|document| document.to_string()).join("\n---\n")
}

/// The `kubeadmConfigSpec` of a control plane of Cluster API on real machines. Node names and provider ids come from the data
/// that the infrastructure provider gives to cloud-init.
pub(crate) fn kubeadm_config(provider_id: &str) -> Value {
    let name = "{{ ds.meta_data.local_hostname }}";
    let node = json!({"nodeRegistration": {
        "name": name,
        "criSocket": CONTAINER_RUNTIME,
        "ignorePreflightErrors": [IGNORED_CHECK],
        "imagePullPolicy": "Never",
        "kubeletExtraArgs": [{"name": "provider-id", "value": format!("{provider_id}/{name}")}],
    }});
    // Cluster API has no field for the configuration of kube-proxy.
    let append = format!(
        "if grep -q '^kind: InitConfiguration' /run/kubeadm/kubeadm.yaml; then \
         printf '\\n---\\n%s\\n' '{}' >>/run/kubeadm/kubeadm.yaml; fi",
        kube_proxy()
    );
    json!({"initConfiguration": node, "joinConfiguration": node, "preKubeadmCommands": [append]})
}

/// kube-proxy cannot change the settings of connection tracking, which belong to the host.
fn kube_proxy() -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "oomScoreAdj": 0,
        "conntrack": {"maxPerCore": 0, "min": 0},
    })
}

fn registration(machine: &Machine) -> Value {
    json!({
        "name": machine.name(),
        "criSocket": CONTAINER_RUNTIME,
        "ignorePreflightErrors": [IGNORED_CHECK],
        // There is no registry.
        "imagePullPolicy": "Never",
        "kubeletExtraArgs": [{"name": "node-ip", "value": machine.address()}],
    })
}

/// The hash of the CA's public key in the command that `kubeadm init` prints.
fn authority_hash(init: &str) -> Option<String> {
    let mut words = init.split_whitespace();
    words.find(|word| *word == "--discovery-token-ca-cert-hash")?;
    words.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::authority_hash;

    #[test]
    fn finds_the_hash_in_the_output_of_kubeadm() {
        let output = "Then you can join:\n\nkubeadm join 172.31.77.10:6443 --token abcdef.0123456789abcdef \\\n\t\
                      --discovery-token-ca-cert-hash sha256:a1b2 \n";
        assert_eq!(authority_hash(output).as_deref(), Some("sha256:a1b2"));
        assert_eq!(authority_hash("kubeadm join"), None);
    }
}
