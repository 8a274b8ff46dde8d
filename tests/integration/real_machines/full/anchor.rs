//! The anchor on three real control plane machines, which also run Cluster API: their kubelets run kcp-webhook as static Pods, and
//! their API servers call it at 127.0.0.1. A client writes a control plane every 100 ms, and another one sets an even number of
//! replicas: no write of the first is refused, and none of the second is admitted. The API servers also load the webhook
//! configurations from files (manifest-based admission).

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kcp_rules::anchor::{ADMISSION_FOLDER, admission_api_server, admission_files};
use kcp_tests::cluster_api::install_deployments;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::machines::real::{Addons, Images, KubeadmCluster, Machine, Site, webhook_image};
use kcp_tests::managed::CONFIGURATION;
use kcp_tests::managed::writer::{Writer, control_planes};
use kcp_tests::{manifests, products, wait};
use serde_json::{Value, json};

use crate::objects::{control_plane, write};
use crate::real_machines::full::{create_control_plane, file_on, kubeadm_files};
use crate::real_machines::on_machines;

const NAMESPACE: &str = "kcp-webhook-system";
const ANCHOR: &str = "daemonset/kcp-webhook-anchor";
const NAMES: [&str; 3] = ["one", "two", "three"];

/// The namespace and the name of the control plane that is written.
const WRITTEN: (&str, &str) = ("default", "written");

const STATIC_PODS: &str = "https://127.0.0.1:11443/validate";
const MANIFEST: &str = "/etc/kubernetes/manifests/kcp-webhook.yaml";
const FILES: &str = "/etc/kubernetes/kcp-webhook";

/// How many checks `validate` makes on each Node.
const CHECKS_OF_A_NODE: usize = 6;

/// The manifest of somebody else in the folder of the kubelet.
const FOREIGN: &str = "/etc/kubernetes/manifests/foreign.yaml";

#[test]
#[ignore = "needs root: make test-machines PART=full"]
fn an_anchor_keeps_admission_beside_each_api_server() {
    on_machines("anchor", Images::All, async |site| {
        let mut anchored = Anchored::install(site).await?;
        anchored.rolling_update().await?;
        anchored.changed_static_pod().await?;
        anchored.rotation().await?;
        anchored.deleted_configurations().await?;
        anchored.lost_label().await?;
        anchored.two_of_three_come_back().await?;
        anchored.power_failure("recovered").await?;
        anchored.the_load_balancer_ends(site).await?;
        anchored.power_failure("recovered-without-load-balancer").await?;
        anchored.uninstallation().await
    });
}

/// A static Pod that sleeps.
fn foreign_pod(site: &Site) -> String {
    let metadata = json!({"name": "foreign", "namespace": "kube-system"});
    let containers = json!([{"name": "pause", "image": site.sandbox_image()}]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}})
        .to_string()
}

struct Anchored {
    foreign: String,
    machines: Vec<Arc<Machine>>,
    cluster: KubeadmCluster,
    good: Writer,
    even: Writer,
}

impl Anchored {
    async fn install(site: &Arc<Site>) -> Result<Self> {
        let machines: Vec<_> = NAMES
            .iter()
            .map(|name| site.machine(name))
            .collect::<Result<_>>()?;
        let [first, others @ ..] = machines.as_slice() else {
            anyhow::bail!("no machine")
        };
        for machine in &machines {
            for (path, content) in admission_files() {
                machine.write(&path, &content)?;
            }
            machine.power_on().await?;
        }
        let cluster = KubeadmCluster::init_with(first, Addons::All, &admission_api_server()).await?;
        for machine in others {
            let joined = cluster.join(machine, &cluster.control_plane()).await?;
            ensure!(joined.code == 0, "{joined}");
        }
        cluster.ready(&NAMES).await?;
        let kubectl = cluster.kubectl();
        install_deployments(&cluster, &machines).await?;
        let (namespace, name) = WRITTEN;
        create_control_plane(&cluster, WRITTEN).await?;
        let api = || control_planes(cluster.client(), namespace);
        let good = Writer::begin(api(), name);

        let image = webhook_image(site)?;
        let foreign = foreign_pod(site);
        for machine in &machines {
            machine.import_image(&image).await?;
            machine.write(FOREIGN, &foreign)?;
        }
        let clock = Instant::now();
        kubectl.apply_kustomization("manifests/anchor").await?;
        with_admission_manifests(kubectl).await?;
        // Short delays, so that a rotation takes seconds. In the delay, the anchors copy the CA to the files of the API servers.
        let more = ["--ca-trust-delay=10s", "--interval=1s"].map(
            |argument| json!({"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": argument}),
        );
        let manager = "deployment/kcp-webhook-manager";
        let patch = Value::from(more.to_vec()).to_string();
        kubectl
            .succeed(["patch", manager, "-n", NAMESPACE, "--type=json", "-p", &patch])
            .await?;
        calls_static_pods(kubectl, true).await?;
        wait::until("an even number is refused", || denies(kubectl)).await?;
        denies_scale(kubectl).await?;
        let even = Writer::begin_even(api(), name);
        let anchored = Self {
            foreign,
            machines,
            cluster,
            good,
            even,
        };
        anchored.end_step("installation", clock).await?;
        anchored.is_valid().await?;
        Ok(anchored)
    }

    /// Both writers write ten times more; then no good write has been refused, and no even number admitted, since the last step.
    async fn end_step(&self, step: &str, clock: Instant) -> Result<()> {
        self.good.admitted(10).await?;
        self.even.refused(10).await?;
        let (good, even) = (self.good.step().await, self.even.step().await);
        eprintln!(
            "{step}: {} s; {} writes admitted, {} refused; {} even numbers refused, {} admitted",
            clock.elapsed().as_secs(),
            good.admitted,
            good.refused.len(),
            even.refused.len(),
            even.admitted
        );
        good.none_refused(step)?;
        ensure!(even.admitted == 0, "{step}: an even number was admitted");
        let unjudged = even.refused.iter().find(|why| !why.contains("(replicas-even)"));
        ensure!(unjudged.is_none(), "{step}: {unjudged:?}");
        Ok(())
    }

    async fn rolling_update(&self) -> Result<()> {
        let clock = Instant::now();
        let kubectl = self.cluster.kubectl();
        let before = self.manifests()?;
        kubectl
            .succeed(["rollout", "restart", ANCHOR, "-n", NAMESPACE])
            .await?;
        kubectl
            .succeed(["rollout", "status", ANCHOR, "-n", NAMESPACE, "--timeout=10m"])
            .await?;
        ensure!(self.manifests()? == before, "the update has changed a manifest");
        calls_static_pods(kubectl, true).await?;
        self.end_step("rolling update", clock).await
    }

    /// The kubelet stops a static Pod before it starts its next version, so the API servers call the Service in between.
    async fn changed_static_pod(&self) -> Result<()> {
        let clock = Instant::now();
        let kubectl = self.cluster.kubectl();
        let argument = "--log-level=debug";
        let change = json!([{
            "op": "add",
            "path": "/spec/template/spec/containers/0/args/-",
            "value": format!("--serve-argument={argument}"),
        }]);
        kubectl
            .succeed([
                "patch",
                ANCHOR,
                "-n",
                NAMESPACE,
                "--type=json",
                "-p",
                &change.to_string(),
            ])
            .await?;
        wait::until("every static Pod has changed", || async {
            let manifests = self.manifests()?;
            let unchanged = manifests.iter().find(|manifest| !manifest.contains(argument));
            ensure!(unchanged.is_none(), "{unchanged:?}");
            Ok(())
        })
        .await?;
        calls_static_pods(kubectl, true).await?;
        self.end_step("the static Pods change", clock).await
    }

    async fn rotation(&self) -> Result<()> {
        let clock = Instant::now();
        let kubectl = self.cluster.kubectl();
        let before = bundle(kubectl).await?;
        kubectl
            .succeed([
                "annotate",
                "secret",
                "kcp-webhook-ca",
                "-n",
                NAMESPACE,
                "kubectl-kcp.dev/rotate=now",
            ])
            .await?;
        wait::until("the configurations trust the new CA alone", || async {
            let now = bundle(kubectl).await?;
            ensure!(now != before && now.matches("BEGIN").count() == 1, "{now}");
            Ok(())
        })
        .await?;
        calls_static_pods(kubectl, true).await?;
        self.end_step("new CA", clock).await
    }

    /// Somebody deletes the stored webhook configurations. Each API server still calls the static Pod beside it.
    async fn deleted_configurations(&self) -> Result<()> {
        let clock = Instant::now();
        let kubectl = self.cluster.kubectl();
        for machine in &self.machines {
            let client = self.cluster.through(machine).await?;
            wait::until("the API server has loaded both files", || async {
                let metrics = client.kubectl().succeed(["get", "--raw=/metrics"]).await?.stdout;
                let loaded = metrics.lines().filter(|line| {
                    line.contains("_last_config_info{")
                        && line.contains("plugin=")
                        && line.contains("sha256:")
                });
                let loaded: Vec<_> = loaded.collect();
                ensure!(loaded.len() == 2, "{loaded:?}");
                Ok(())
            })
            .await
            .with_context(|| machine.name().to_owned())?;
        }
        let scale = ["scale", "deployment/kcp-webhook-manager", "-n", NAMESPACE];
        kubectl.succeed(scale.iter().chain(&["--replicas=0"])).await?;
        let gone = [
            "wait",
            "--for=delete",
            "pod",
            "-l",
            "app.kubernetes.io/name=kcp-webhook-manager",
            "-n",
            NAMESPACE,
        ];
        kubectl.succeed(gone.iter().chain(&["--timeout=5m"])).await?;
        let kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration";
        kubectl.succeed(["delete", kinds, CONFIGURATION]).await?;
        for machine in &self.machines {
            denies(self.cluster.through(machine).await?.kubectl()).await?;
        }
        self.end_step("the stored webhook configurations are deleted", clock)
            .await?;
        let clock = Instant::now();
        kubectl.succeed(scale.iter().chain(&["--replicas=1"])).await?;
        calls_static_pods(kubectl, true).await?;
        self.end_step("the manager stores them again", clock).await
    }

    async fn lost_label(&self) -> Result<()> {
        let clock = Instant::now();
        let kubectl = self.cluster.kubectl();
        let machine = self.machines.last().context("no machine")?;
        let label = "node-role.kubernetes.io/control-plane";
        kubectl
            .succeed(["label", "node", machine.name(), &format!("{label}-")])
            .await?;
        removed(machine).await?;
        calls_static_pods(kubectl, false).await?;
        self.end_step("a node loses its label", clock).await?;
        let clock = Instant::now();
        kubectl
            .succeed(["label", "node", machine.name(), &format!("{label}=")])
            .await?;
        calls_static_pods(kubectl, true).await?;
        self.end_step("the label returns", clock).await
    }

    /// `validate` passes on each Node: real kubelets run its Pods, which resolve names with the DNS of the cluster.
    async fn is_valid(&self) -> Result<()> {
        let clock = Instant::now();
        let roles = products::workspace().join("manifests/operator/validator.yaml");
        let kubectl = self.cluster.kubectl();
        kubectl
            .succeed(["apply", "-f", &roles.display().to_string()])
            .await?;
        let validated = kubectl.run(["kcp", "validate", "--this-cluster"]).await?;
        let lines: Vec<&str> = validated.stdout.lines().skip(1).collect();
        let passes = |name| {
            let mut of_node = lines
                .iter()
                .filter(|line| line.split_whitespace().next() == Some(name));
            of_node.any(|line| line.matches("PASS").count() == CHECKS_OF_A_NODE)
        };
        ensure!(
            validated.code == 0 && lines.len() == NAMES.len() && NAMES.into_iter().all(passes),
            "{validated}"
        );
        eprintln!("validate: {} s", clock.elapsed().as_secs());
        Ok(())
    }

    /// Every machine loses power. Returns after a write has failed, because no API server ran.
    async fn lose_power(&self) -> Result<()> {
        for machine in &self.machines {
            machine.power_off().await?;
        }
        self.even.refused(1).await?;
        let (_, even) = (self.good.step().await, self.even.step().await);
        ensure!(
            even.admitted == 0,
            "an even number was admitted at the power failure"
        );
        Ok(())
    }

    /// Waits until an API server is ready, and until an even number is refused. Returns the time of each since `clock`.
    async fn denies_again(&self, clock: Instant) -> Result<(Duration, Duration)> {
        let kubectl = self.cluster.kubectl();
        wait::until("an API server is ready", || async {
            kubectl.succeed(["get", "--raw=/readyz"]).await.map(drop)
        })
        .await?;
        let api = clock.elapsed();
        wait::until("an even number is refused", || denies(kubectl)).await?;
        Ok((api, clock.elapsed()))
    }

    /// Two machines come back, and much later the third one. Until then, Cluster API's only Pod of a kind may be lost, so nothing
    /// requires that a good write is admitted.
    async fn two_of_three_come_back(&self) -> Result<()> {
        self.lose_power().await?;
        let clock = Instant::now();
        let switched_on = Timestamp::now();
        let [first, second, third] = self.machines.as_slice() else {
            anyhow::bail!("there are {} machines", self.machines.len());
        };
        for machine in [first, second] {
            machine.power_on().await?;
        }
        let (api, denied) = self.denies_again(clock).await?;
        third.power_on().await?;
        self.cluster.ready_since(&NAMES, switched_on).await?;
        self.good.admitted(1).await?;
        eprintln!(
            "power failure, two of three machines come back: an API server is ready after {:.1} s, an even number refused by {:.1} s",
            api.as_secs_f64(),
            denied.as_secs_f64(),
        );
        let even = self.even.step().await;
        ensure!(even.admitted == 0, "an even number was admitted by two of three");
        self.good.step().await;
        self.end_step("after the third machine has come back", clock)
            .await
    }

    /// All machines come back, and Cluster API reconciles a new Cluster with this name.
    async fn power_failure(&self, new_cluster: &str) -> Result<()> {
        let kubectl = self.cluster.kubectl();
        self.lose_power().await?;
        let clock = Instant::now();
        let switched_on = Timestamp::now();
        for machine in &self.machines {
            machine.power_on().await?;
        }
        let (api, denied) = self.denies_again(clock).await?;
        // Until a Pod of Cluster API serves its webhooks, the API servers refuse every write.
        self.good.admitted(1).await?;
        let admitted = clock.elapsed();
        reconciles(kubectl, new_cluster).await?;
        let reconciled = clock.elapsed();
        self.cluster.ready_since(&NAMES, switched_on).await?;
        eprintln!(
            "power failure of three machines, {new_cluster}: an API server is ready after {:.1} s, an even number refused by {:.1} s, \
             the first write by {:.1} s, Cluster API reconciles by {:.1} s, all Pods are ready after {} s",
            api.as_secs_f64(),
            denied.as_secs_f64(),
            admitted.as_secs_f64(),
            reconciled.as_secs_f64(),
            clock.elapsed().as_secs()
        );
        let even = self.even.step().await;
        ensure!(
            even.admitted == 0,
            "an even number was admitted after the power failure"
        );
        self.good.step().await;
        denies_scale(kubectl).await?;
        self.end_step("after the power failure", clock).await
    }

    /// Every machine gets a proxy in front of the API servers. Then the load balancer stops.
    async fn the_load_balancer_ends(&mut self, site: &Arc<Site>) -> Result<()> {
        let clock = Instant::now();
        kubeadm_files::install_proxies(site, &self.cluster, &self.machines).await?;
        let first = self.machines.first().context("no machine")?;
        self.cluster = self.cluster.through(first).await?;
        let (namespace, name) = WRITTEN;
        let api = || control_planes(self.cluster.client(), namespace);
        (self.good, self.even) = (Writer::begin(api(), name), Writer::begin_even(api(), name));
        site.stop_load_balancer().await?;
        self.end_step("without the load balancer", clock).await
    }

    async fn uninstallation(&self) -> Result<()> {
        let clock = Instant::now();
        let kubectl = self.cluster.kubectl();
        kubectl
            .succeed(["delete", ANCHOR, "-n", NAMESPACE, "--timeout=5m"])
            .await?;
        for machine in &self.machines {
            removed(machine).await?;
            for folder in ["mutating", "validating"] {
                let file = machine.file(&format!("{ADMISSION_FOLDER}/{folder}/kcp-webhook.yaml"));
                ensure!(!file.exists(), "{} is there", file.display());
            }
            let foreign = machine.succeed(["cat", FOREIGN]).await?;
            ensure!(foreign.stdout == self.foreign, "{foreign}");
        }
        calls_static_pods(kubectl, false).await?;
        self.end_step("the anchors are uninstalled", clock).await
    }

    fn manifests(&self) -> Result<Vec<String>> {
        let read = |machine: &Arc<Machine>| file_on(machine, MANIFEST);
        self.machines.iter().map(read).collect()
    }
}

/// Applies the patch of the kustomize component to the anchor, which then makes a pass every second.
async fn with_admission_manifests(kubectl: &Kubectl) -> Result<()> {
    let file = products::workspace().join("manifests/components/admission-manifests/kustomization.yaml");
    let component = manifests::read(&file)?.pop().context("the component is empty")?;
    let patch = component.pointer("/patches/0/patch").and_then(Value::as_str);
    let patch = patch.context("the component has no patch")?.to_owned()
        + "- {op: add, path: /spec/template/spec/containers/0/args/-, value: --interval=1s}\n";
    kubectl
        .succeed(["patch", ANCHOR, "-n", NAMESPACE, "--type=json", "-p", &patch])
        .await
        .map(drop)
}

/// Waits until the validating configuration, which the manager writes last, calls the static Pods, or the Service.
async fn calls_static_pods(kubectl: &Kubectl, expected: bool) -> Result<()> {
    let what = if expected {
        "the API servers call the static Pods"
    } else {
        "the API servers call the Service"
    };
    wait::until(what, || async {
        let urls = kubectl
            .succeed([
                "get",
                "validatingwebhookconfiguration",
                CONFIGURATION,
                "-o",
                "jsonpath={.webhooks[*].clientConfig.url}",
            ])
            .await?
            .stdout;
        let is_called = urls.split_whitespace().any(|url| url == STATIC_PODS);
        let log = || {
            kubectl.run([
                "logs",
                "deployment/kcp-webhook-manager",
                "-n",
                NAMESPACE,
                "--tail=5",
            ])
        };
        if is_called != expected {
            anyhow::bail!("{urls:?}; the manager logged: {}", log().await?);
        }
        Ok(())
    })
    .await
}

/// Waits until the anchor has removed what it wrote. The folder itself may stay, because it is a mount point in the anchor's Pod.
async fn removed(machine: &Machine) -> Result<()> {
    let files = machine.file(FILES);
    wait::until(
        &format!("the anchor has removed its files from {}", machine.name()),
        || async {
            ensure!(!machine.file(MANIFEST).exists(), "{MANIFEST} is there");
            let left = std::fs::read_dir(&files).map_or(0, Iterator::count);
            ensure!(left == 0, "{left} files in {FILES}");
            Ok(())
        },
    )
    .await
}

async fn bundle(kubectl: &Kubectl) -> Result<String> {
    let bundle = "jsonpath={.webhooks[0].clientConfig.caBundle}";
    let read = ["get", "mutatingwebhookconfiguration", CONFIGURATION, "-o", bundle];
    let encoded = kubectl.succeed(read).await?.stdout;
    let decoded: k8s_openapi::ByteString = serde_json::from_value(json!(encoded))?;
    Ok(String::from_utf8(decoded.0)?)
}

/// Creates a Cluster and its control plane. Waits until Cluster API's core manager has made the Cluster the owner of the control
/// plane, and until the control plane manager has reported a condition. No provider creates the infrastructure, so there is no
/// Machine.
async fn reconciles(kubectl: &Kubectl, name: &str) -> Result<()> {
    let reference =
        json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": name});
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"controlPlaneRef": reference},
    });
    let objects = [cluster, control_plane(name, 3, "v1.34.2")];
    let namespace = ["-n", "default"];
    wait::until("a Cluster is created", || async {
        let applied = write(kubectl, "apply", &objects, &namespace).await?;
        ensure!(applied.code == 0, "{applied}");
        Ok(())
    })
    .await?;
    wait::until("Cluster API reconciles the Cluster", || async {
        let read = "jsonpath={.metadata.ownerReferences[*].name} {.status.conditions[?(@.type==\"Available\")].status}";
        let of_name = ["get", "kubeadmcontrolplane", name, "-o", read];
        let observed = kubectl.succeed(of_name.iter().chain(&namespace)).await?.stdout;
        ensure!(observed == format!("{name} False"), "{observed:?}");
        Ok(())
    })
    .await
}

/// A static Pod judges a change of the subresource only if it can read the control plane with the credential of its anchor.
async fn denies_scale(kubectl: &Kubectl) -> Result<()> {
    let (namespace, name) = WRITTEN;
    let scale = [
        "scale",
        "kubeadmcontrolplane",
        name,
        "--replicas=4",
        "-n",
        namespace,
    ];
    let scaled = kubectl.run(scale).await?;
    ensure!(
        scaled.code == 1 && scaled.stderr.contains("(replicas-even)"),
        "{scaled}"
    );
    Ok(())
}

async fn denies(kubectl: &Kubectl) -> Result<()> {
    let even = control_plane("even", 4, "v1.34.2");
    let answer = write(kubectl, "create", &[even], &["-n", "default", "--dry-run=server"]).await?;
    ensure!(
        answer.code == 1 && answer.stderr.contains("(replicas-even)"),
        "{answer}"
    );
    Ok(())
}
