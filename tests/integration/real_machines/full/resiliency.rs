//! `kubectl kcp audit resiliency` on real machines: what it finds on a healthy cluster, and faults that the files and services of
//! the machines produce. Its other checks fail only on the machines of `crate::audit`, which has no faults of real kubelets.

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubeconfig;
use kcp_tests::machines::real::{Machine, Site};
use kcp_tests::management_cluster::ManagementCluster;
use kube::Client;
use serde_json::json;

use crate::audit::{Audit, faults};
use crate::real_machines::full::workload_kubeconfig;

/// What the audit finds on a healthy cluster: the load balancer of the site serves the endpoint, and it is no static Pod.
const HEALTHY: &[(&str, &str)] = &[("endpoint-external", "FAIL")];

const LOST_MEMBER: (&str, &str, &str) = (
    "etcd-loss-not-survived",
    "FAIL",
    "2 of 3 voting members healthy, 2 needed for quorum",
);

const MANIFESTS: &str = "/etc/kubernetes/manifests";

/// A folder of which kubeadm gives the API server's container a read-only view.
const ENCRYPTION: &str = "/etc/kubernetes/pki/encryption.json";

/// Produces each fault, checks that the audit finds exactly this fault, and undoes it.
pub(super) async fn is_audited(site: &Site, management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let client = kubeconfig::client_of(&workload_kubeconfig(site, management, cluster).await?).await?;
    let mut machines = management.machines().fleet()?.machines().await;
    machines.sort_by(|one, other| one.name().cmp(other.name()));
    let [first, second, third] = machines.as_slice() else {
        bail!("there are {} machines", machines.len());
    };
    let audit = Audit::new(
        management,
        super::cluster_api::NAMESPACE,
        super::cluster_api::NAME,
        HEALTHY,
    );
    audit.finds("a healthy cluster", &[]).await?;
    faults::durations_are_compared(&audit).await?;
    of_manifests(&audit, [first, second, third]).await?;
    of_an_api_server(&audit, first, third).await?;
    of_nodes(&audit, &client, [first, second, third]).await?;
    of_a_member(&audit, second).await?;
    faults::of_servers_in_the_cluster(&audit, &client).await?;
    faults::of_the_certificate_of_kcp_webhook(&audit, &client).await
}

/// The manifest of a static Pod, which its kubelet reads again after each change.
struct Manifest<'m> {
    machine: &'m Machine,
    component: &'static str,
    original: String,
}

impl<'m> Manifest<'m> {
    fn read(machine: &'m Machine, component: &'static str) -> Result<Self> {
        let original = super::file_on(machine, &path(component))?;
        Ok(Self {
            machine,
            component,
            original,
        })
    }

    /// Replaces parts of the text, of which each occurs once.
    async fn change(&self, replacements: &[(&str, &str)]) -> Result<()> {
        let mut text = self.original.clone();
        for (from, to) in replacements {
            let number = text.matches(from).count();
            ensure!(number == 1, "{} has {from:?} {number} times", self.component);
            text = text.replace(from, to);
        }
        self.put(&text).await
    }

    async fn remove(&self) -> Result<()> {
        self.machine
            .succeed(["rm", &path(self.component)])
            .await
            .map(drop)
    }

    async fn restore(&self) -> Result<()> {
        self.put(&self.original).await
    }

    /// The kubelet never reads half of the text.
    async fn put(&self, text: &str) -> Result<()> {
        let complete = format!("/etc/kubernetes/{}.complete", self.component);
        self.machine.write(&complete, text)?;
        self.machine
            .succeed(["mv", &complete, &path(self.component)])
            .await
            .map(drop)
    }
}

fn path(component: &str) -> String {
    format!("{MANIFESTS}/{component}.yaml")
}

/// The kubelet of the first machine ends a Pod, that of the second one cannot pull an image, and that of the third one starts a
/// Pod with other flags.
async fn of_manifests(audit: &Audit<'_>, [first, second, third]: [&Machine; 3]) -> Result<()> {
    let ended = Manifest::read(first, "kube-scheduler")?;
    ended.remove().await?;
    let pulled = Manifest::read(second, "kube-scheduler")?;
    let image = [
        ("image: registry.k8s.io/", "image: registry.infra.svc:5000/"),
        ("imagePullPolicy: IfNotPresent", "imagePullPolicy: Always"),
    ];
    pulled.change(&image).await?;
    let flagged = Manifest::read(third, "kube-controller-manager")?;
    let flags = [(
        "    - --leader-elect=true\n",
        "    - --leader-elect=true\n    - --v=1\n",
    )];
    flagged.change(&flags).await?;
    let (first, second, third) = (first.name(), second.name(), third.name());
    audit
        .finds(
            "changed manifests",
            &[
                (
                    "static-pods-missing",
                    "FAIL",
                    &format!("Node {first} has no static Pod of kube-scheduler"),
                ),
                (
                    "static-pods-not-ready",
                    "FAIL",
                    &format!("Pod kube-scheduler-{second} is not ready"),
                ),
                (
                    "images-always-pulled",
                    "FAIL",
                    &format!("Pod kube-scheduler-{second} has"),
                ),
                (
                    "images-from-the-cluster",
                    "FAIL",
                    &format!("Pod kube-scheduler-{second} uses"),
                ),
                (
                    "component-images-differ",
                    "FAIL",
                    "kube-scheduler: registry.infra.svc:5000",
                ),
                (
                    "component-flags-differ",
                    "FAIL",
                    &format!("kube-controller-manager: only --v=1 on {third}"),
                ),
            ],
        )
        .await?;
    for manifest in [ended, pulled, flagged] {
        manifest.restore().await?;
    }
    audit.finds("restored manifests", &[]).await
}

/// An API server that serves: it uses the etcd member of another machine, encrypts Secrets, and trusts tokens of a Service.
async fn of_an_api_server(audit: &Audit<'_>, other: &Machine, machine: &Machine) -> Result<()> {
    let encryption = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [{"identity": {}}]}],
    });
    machine.write(ENCRYPTION, &encryption.to_string())?;
    let manifest = Manifest::read(machine, "kube-apiserver")?;
    let servers = format!(
        "    - --etcd-servers=https://{}:2379\n    - --encryption-provider-config={ENCRYPTION}\n    - \
         --oidc-issuer-url=https://dex.auth.svc\n    - --oidc-client-id=kubernetes\n",
        other.address()
    );
    manifest
        .change(&[("    - --etcd-servers=https://127.0.0.1:2379\n", &servers)])
        .await?;
    let name = machine.name();
    audit
        .finds(
            "an API server with other flags",
            &[
                (
                    "api-server-etcd-endpoints",
                    "FAIL",
                    &format!("Node {name} uses neither its own member nor all"),
                ),
                ("encryption-provider-unknown", "UNKNOWN", ENCRYPTION),
                (
                    "authentication-in-cluster",
                    "FAIL",
                    "asks https://dex.auth.svc, which is a Service",
                ),
                (
                    "component-flags-differ",
                    "FAIL",
                    "--oidc-issuer-url=https://dex.auth.svc",
                ),
            ],
        )
        .await?;
    manifest.restore().await?;
    machine.succeed(["rm", ENCRYPTION]).await?;
    audit.finds("the API server with its own flags", &[]).await
}

/// A Node whose machine is gone, and a kubelet that stops while no kube-controller-manager notices it.
async fn of_nodes(audit: &Audit<'_>, client: &Client, machines: [&Machine; 3]) -> Result<()> {
    let not_ready = ("node-leases-stale", "FAIL", "Node stray is not ready");
    faults::of_a_node_without_a_machine(audit, client, &[not_ready]).await?;

    let mut managers = Vec::new();
    for machine in machines {
        let manager = Manifest::read(machine, "kube-controller-manager")?;
        manager.remove().await?;
        managers.push(manager);
    }
    let missing = "has no static Pod of kube-controller-manager";
    let none = "found no static Pod of kube-controller-manager";
    let flags = "the Pods of kube-controller-manager show no flags";
    let managers_missing = [
        ("static-pods-missing", "FAIL", missing),
        ("component-images-differ", "UNKNOWN", none),
        ("component-flags-differ", "UNKNOWN", flags),
        // Its flag says how long the certificates of kubelets are valid.
        ("kubelet-certificates-expire-while-off", "UNKNOWN", missing),
    ];
    audit
        .finds("no kube-controller-manager", &managers_missing)
        .await?;
    let stopped = machines.last().context("no machine")?;
    stopped.succeed(["systemctl", "stop", "kubelet"]).await?;
    let stale = format!(
        "Node {} is shown as ready, but its kubelet renewed its Lease",
        stopped.name()
    );
    let of_the_kubelet = [
        ("node-leases-stale", "FAIL", stale.as_str()),
        // The audit reaches the member of a machine through its kubelet.
        LOST_MEMBER,
    ];
    let found = [managers_missing.as_slice(), &of_the_kubelet].concat();
    audit.finds("a kubelet that has stopped", &found).await?;
    stopped.succeed(["systemctl", "start", "kubelet"]).await?;
    for manager in managers {
        manager.restore().await?;
    }
    audit.finds("the kubelet runs again", &[]).await
}

/// An etcd member ends, and with it the API server beside it, which is the only one that the kubelet of the machine uses. So the
/// kubelet can neither renew its Lease nor delete the Pod of the member.
async fn of_a_member(audit: &Audit<'_>, machine: &Machine) -> Result<()> {
    let member = Manifest::read(machine, "etcd")?;
    member.remove().await?;
    let name = machine.name();
    audit
        .finds(
            "a member that has ended",
            &[
                LOST_MEMBER,
                ("node-leases-stale", "FAIL", &format!("Node {name} is not ready")),
                (
                    "static-pods-not-ready",
                    "FAIL",
                    &format!("Pod etcd-{name} is not ready"),
                ),
            ],
        )
        .await?;
    member.restore().await?;
    audit.finds("the member runs again", &[]).await
}
