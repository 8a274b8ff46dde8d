//! Faults of the manifests of static Pods, which the kubelets of the machines read.

use anyhow::{Result, ensure};
use kcp_tests::machines::real::Machine;
use serde_json::json;

use crate::audit::Audit;
use crate::real_machines::full::file_on;

const FOLDER: &str = "/etc/kubernetes/manifests";

/// A folder of which kubeadm gives the API server's container a read-only view.
const ENCRYPTION: &str = "/etc/kubernetes/pki/encryption.json";

const KUBELET: &str = "/var/lib/kubelet/config.yaml";

/// The manifest of a static Pod, which its kubelet reads again after each change.
pub(super) struct Manifest<'m> {
    machine: &'m Machine,
    component: &'static str,
    original: String,
}

impl<'m> Manifest<'m> {
    pub(super) fn read(machine: &'m Machine, component: &'static str) -> Result<Self> {
        let original = file_on(machine, &path(component))?;
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

    pub(super) async fn remove(&self) -> Result<()> {
        self.machine
            .succeed(["rm", &path(self.component)])
            .await
            .map(drop)
    }

    pub(super) async fn restore(&self) -> Result<()> {
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
    format!("{FOLDER}/{component}.yaml")
}

/// The kubelet of the first machine ends a Pod, that of the second one cannot pull an image, and that of the third one starts a
/// Pod with other flags.
pub(super) async fn of_components(audit: &Audit<'_>, [first, second, third]: [&Machine; 3]) -> Result<()> {
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
pub(super) async fn of_an_api_server(audit: &Audit<'_>, other: &Machine, machine: &Machine) -> Result<()> {
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
                    &format!("Node {name} lists neither the etcd member on"),
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

/// A static Pod refers to a ConfigMap. A kubelet refuses such a manifest since 1.34, and the admission plugin `NodeRestriction` refuses
/// the mirror Pod, unless somebody has switched off both.
pub(super) async fn of_a_static_pod_with_a_config_map(
    audit: &Audit<'_>,
    machine: &Machine,
    image: &str,
) -> Result<()> {
    let server = Manifest::read(machine, "kube-apiserver")?;
    server
        .change(&[("    - --enable-admission-plugins=NodeRestriction\n", "")])
        .await?;
    let kubelet = file_on(machine, KUBELET)?;
    ensure!(!kubelet.contains("featureGates"), "{kubelet}");
    machine.write(
        KUBELET,
        &format!("{kubelet}\nfeatureGates:\n  PreventStaticPodAPIReferences: false\n"),
    )?;
    machine.succeed(["systemctl", "restart", "kubelet"]).await?;
    let agent = Manifest {
        machine,
        component: "agent",
        original: json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent", "namespace": "kube-system"},
            "spec": {"hostNetwork": true, "containers": [{
                "name": "agent", "image": image,
                "env": [{"name": "TOKEN", "valueFrom": {"configMapKeyRef": {"name": "agent", "key": "token"}}}],
            }]},
        })
        .to_string(),
    };
    agent.restore().await?;
    let name = machine.name();
    audit
        .finds(
            "a static Pod with a ConfigMap",
            &[
                (
                    "static-pods-need-the-api",
                    "FAIL",
                    &format!("Pod agent-{name} needs ConfigMap/agent"),
                ),
                // The ConfigMap does not exist.
                (
                    "static-pods-not-ready",
                    "FAIL",
                    &format!("Pod agent-{name} is not ready"),
                ),
                (
                    "component-flags-differ",
                    "FAIL",
                    "--enable-admission-plugins=NodeRestriction",
                ),
            ],
        )
        .await?;
    agent.remove().await?;
    machine.write(KUBELET, &kubelet)?;
    machine.succeed(["systemctl", "restart", "kubelet"]).await?;
    server.restore().await?;
    audit.finds("static Pods without a ConfigMap", &[]).await
}
