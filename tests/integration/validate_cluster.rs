//! `kubectl kcp validate` on a workload cluster with a real API server. The Pods run the real `kcp-webhook probe` beside
//! the API server, and the real API server fetches their logs from kwok.

mod kubelet;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::assets::Assets;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{manifests, products, wait};
use serde_json::{Value, json};

use crate::{objects::written, schema, shared::with_controllers};
use kubelet::{Behavior, Kubelet};

const NAMESPACE: &str = "validate-cluster";
const NAME: &str = "edge";

/// The namespace of the Pods.
const POD_NAMESPACE: &str = "kcp-validation";

/// A user with the shipped roles only.
const VALIDATOR: &str = "validator";

/// A Node without a Machine, so that the cluster has two.
const EXTRA_NODE: &str = "extra";

#[test]
fn each_node_is_validated_and_no_pod_is_left() {
    with_controllers(NAMESPACE, validated);
}

async fn validated(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, "v1.34.2").await?;
    cluster.settled(1).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let kubelet = Kubelet {
        client: workload.client()?.clone(),
        kubectl: Kubectl::new(management.run(), &Assets::locate()?, workload.kubeconfig())?,
        folder: management.run().subfolder("validate-cluster")?,
    };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": EXTRA_NODE}});
    written(&kubelet.kubectl, "create", &[node], &[]).await?;
    let validation = Validation { management, kubelet };
    validation.needs_a_namespace().await?;
    validation.install().await?;
    validation.passes(&cluster).await?;
    validation.passes_without_a_management_cluster().await?;
    validation.needs_only_the_shipped_roles().await?;
    validation.finds_the_log_of_another_pod().await?;
    validation.finds_a_pod_that_does_not_run().await?;
    validation.leaves_no_pod_after_a_signal().await?;
    validation.creates_no_pod_without_permission().await?;
    cluster.delete().await
}

struct Validation<'m> {
    management: &'m ManagementCluster,
    kubelet: Kubelet,
}

/// The result and the message of each check, by Node and check.
type Results = BTreeMap<(String, String), (String, String)>;

const COMMAND: [&str; 8] = [
    "kcp",
    "validate",
    "-o",
    "json",
    // The API server's name is not known outside the cluster.
    "--resolve=localhost",
    NAME,
    "-n",
    NAMESPACE,
];

impl Validation<'_> {
    /// Runs the command while the Pods of each Node behave in this way.
    async fn run(
        &self,
        kubectl: &Kubectl,
        words: &[&str],
        behavior: impl Fn(&str) -> Behavior,
    ) -> Result<CommandOutput> {
        let ended = tokio::select! {
            ended = kubectl.run(words) => ended?,
            failed = self.kubelet.run(behavior) => match failed? {},
        };
        let left = self.kubelet.pods().await?;
        ensure!(left.is_empty(), "{} Pods are left: {ended}", left.len());
        Ok(ended)
    }

    async fn passes(&self, cluster: &Cluster) -> Result<()> {
        let document = wait::until("both Nodes pass", || async {
            let ended = self
                .run(self.management.kubectl(), &COMMAND, |_| Behavior::Runs)
                .await?;
            ensure!(ended.code == 0, "{ended}");
            parsed(&ended)
        })
        .await?;
        let image = document.get("image").and_then(Value::as_str).unwrap_or_default();
        ensure!(image.contains("kcp-webhook"), "{document:#}");
        ensure!(
            document.pointer("/metadata/name") == Some(&json!(NAME))
                && document.get("outcome") == Some(&json!("PASS")),
            "{document:#}"
        );
        let results = results(&document);
        let machine = cluster.machines().await?;
        let machine = machine.first().context("no Machine")?;
        let nodes: Vec<&str> = results.keys().map(|(node, _)| node.as_str()).collect();
        ensure!(
            nodes.contains(&EXTRA_NODE) && nodes.contains(&machine.as_str()),
            "{nodes:?}"
        );
        ensure!(results.len() == 12, "{results:#?}");
        for (node, check, expected) in [
            (EXTRA_NODE, "names-resolve", "localhost: "),
            (machine, "api-server-responds", "version v"),
            (EXTRA_NODE, "lease-renewed", "the kubelet last renewed its Lease "),
        ] {
            let (_, message) = result(&results, node, check)?;
            ensure!(message.starts_with(expected), "{message}");
        }
        Ok(())
    }

    async fn passes_without_a_management_cluster(&self) -> Result<()> {
        let words = [
            "kcp",
            "validate",
            "--this-cluster",
            "--image=kcp-webhook:test",
            "--resolve=localhost",
        ];
        let ended = self
            .run(&self.kubelet.kubectl, &words, |_| Behavior::Runs)
            .await?;
        let lines: Vec<&str> = ended.stdout.lines().collect();
        ensure!(
            ended.code == 0
                && lines.len() == 3
                && lines.iter().skip(1).all(|line| line.matches("PASS").count() == 6),
            "{ended}"
        );
        // There is no Deployment of the webhook in this cluster.
        let without_image = self
            .kubelet
            .kubectl
            .run(["kcp", "validate", "--this-cluster"])
            .await?;
        ensure!(
            without_image.code == 2 && without_image.stderr.contains("specify an image with --image"),
            "{without_image}"
        );
        Ok(())
    }

    async fn needs_a_namespace(&self) -> Result<()> {
        let ended = self.management.kubectl().run(COMMAND).await?;
        let why = "namespace kcp-validation does not exist; create it as manifests/operator/validator.yaml does, or specify another one \
                   with --pod-namespace";
        ensure!(ended.code != 0 && ended.stdout.contains(why), "{ended}");
        Ok(())
    }

    /// Creates the namespace and the roles, and binds the roles.
    async fn install(&self) -> Result<()> {
        let mut objects = manifests::read(&products::workspace().join("manifests/operator/validator.yaml"))?;
        let roles = objects.iter().filter(|object| object.get("rules").is_some());
        let bindings: Vec<Value> = roles.map(binding).collect();
        ensure!(bindings.len() == 3, "{objects:?}");
        objects.extend(bindings);
        written(&self.kubelet.kubectl, "apply", &objects, &[]).await?;
        Ok(())
    }

    async fn needs_only_the_shipped_roles(&self) -> Result<()> {
        let user = format!("--as={VALIDATOR}");
        let words = [
            "kcp",
            "validate",
            "--this-cluster",
            "--image=kcp-webhook:test",
            "--resolve=localhost",
            &user,
        ];
        wait::until("the roles allow everything", || async {
            let ended = self
                .run(&self.kubelet.kubectl, &words, |_| Behavior::Runs)
                .await?;
            ensure!(ended.code == 0, "{ended}");
            Ok(())
        })
        .await
    }

    async fn finds_the_log_of_another_pod(&self) -> Result<()> {
        let confuses = |node: &str| {
            if node == EXTRA_NODE {
                Behavior::Confuses
            } else {
                Behavior::Runs
            }
        };
        let ended = self.run(self.management.kubectl(), &COMMAND, confuses).await?;
        ensure!(ended.code == 1, "{ended}");
        let results = results(&parsed(&ended)?);
        let problems: Vec<_> = results
            .iter()
            .filter(|(_, (outcome, _))| outcome != "PASS")
            .collect();
        let found: Vec<(&str, &str, &str)> = problems
            .iter()
            .map(|((node, check), (outcome, _))| (node.as_str(), check.as_str(), outcome.as_str()))
            .collect();
        ensure!(
            found
                == [
                    (EXTRA_NODE, "api-server-responds", "UNKNOWN"),
                    (EXTRA_NODE, "log-matches", "FAIL"),
                    (EXTRA_NODE, "names-resolve", "UNKNOWN"),
                ],
            "{results:#?}"
        );
        Ok(())
    }

    /// Nothing schedules the Pod of one Node.
    async fn finds_a_pod_that_does_not_run(&self) -> Result<()> {
        let ignores = |node: &str| {
            if node == EXTRA_NODE {
                Behavior::Ignores
            } else {
                Behavior::Runs
            }
        };
        let words = [&COMMAND[..], &["--timeout=20s"]].concat();
        let ended = self.run(self.management.kubectl(), &words, ignores).await?;
        ensure!(ended.code == 1, "{ended}");
        let results = results(&parsed(&ended)?);
        let (outcome, message) = result(&results, EXTRA_NODE, "pod-completes")?;
        ensure!(
            outcome == "FAIL" && message.starts_with("the Pod did not end in time"),
            "{results:#?}"
        );
        Ok(())
    }

    async fn leaves_no_pod_after_a_signal(&self) -> Result<()> {
        let running = self.management.kubectl().spawn(COMMAND)?;
        wait::until("both Pods exist", || async {
            let pods = self.kubelet.pods().await?;
            ensure!(pods.len() == 2, "{} Pods", pods.len());
            Ok(())
        })
        .await?;
        let code = running.terminate().await?;
        let left = self.kubelet.pods().await?;
        ensure!(
            code == 130 && left.is_empty(),
            "exit code {code}, {} Pods",
            left.len()
        );
        Ok(())
    }

    async fn creates_no_pod_without_permission(&self) -> Result<()> {
        let words = [
            "kcp",
            "validate",
            "--this-cluster",
            "--image=kcp-webhook:test",
            "--as=nobody",
        ];
        let refused = self.kubelet.kubectl.run(words).await?;
        ensure!(
            refused.code == 2
                && refused
                    .stderr
                    .contains("cannot read the Nodes: cannot list nodes in all namespaces: forbidden for user \"nobody\""),
            "{refused}"
        );
        Ok(())
    }
}

/// Binds a shipped role to the user [`VALIDATOR`].
fn binding(role: &Value) -> Value {
    let text = |pointer: &str| role.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or_default();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
        "metadata": {"name": VALIDATOR, "namespace": text("/metadata/namespace")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": text("/metadata/name")},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": VALIDATOR}],
    })
}

fn parsed(ended: &CommandOutput) -> Result<Value> {
    let document = serde_json::from_str(&ended.stdout).with_context(|| format!("{ended}"))?;
    schema::holds("clustervalidation.json", &document)?;
    Ok(document)
}

fn results(document: &Value) -> Results {
    let list = |value: &Value, field: &str| {
        let list = value.get(field).and_then(Value::as_array);
        list.cloned().unwrap_or_default()
    };
    let text = |value: &Value, field: &str| {
        let text = value.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let nodes = list(document, "nodes").into_iter();
    let results = nodes.flat_map(|node| {
        let checks = list(&node, "checks").into_iter();
        let results = checks.map(|check| {
            let key = (text(&node, "name"), text(&check, "id"));
            (key, (text(&check, "outcome"), text(&check, "message")))
        });
        results.collect::<Vec<_>>()
    });
    results.collect()
}

fn result<'r>(results: &'r Results, node: &str, check: &str) -> Result<(&'r str, &'r str)> {
    let Some((outcome, message)) = results.get(&(node.to_owned(), check.to_owned())) else {
        bail!("no {check} of {node}: {results:#?}");
    };
    Ok((outcome, message))
}
