//! What nothing reports while a control plane is healthy: a health check that never acts, a move that failed, a kubeconfig that
//! was not renewed, a Node that is left from a deleted Machine, a kubelet that is older than its Machine, and certificates that have
//! expired. All share one cluster. Each is caused by the real
//! controllers or the real clusterctl, and followed to its end.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::workload_access::WorkloadAccess;
use kcp_tests::{resources, wait};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::remedies;
use crate::shared::with_controllers;

const NAMESPACE: &str = "overlooked";
const NAME: &str = "edge";
const VERSION: &str = "v1.34.2";

#[test]
fn a_healthy_control_plane_shows_what_is_going_to_hurt() {
    with_controllers(NAMESPACE, overlooked);
}

async fn overlooked(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, VERSION).await?;
    cluster.settled(3).await?;
    let asked = Asked { management };
    a_failed_move(&asked, &cluster).await?;
    a_kubeconfig_that_was_not_renewed(&asked).await?;
    a_node_that_is_left(&asked, &cluster).await?;
    a_kubelet_of_an_earlier_version(&asked, &cluster).await?;
    certificates_that_expired(&asked, &cluster).await?;
    a_health_check_that_never_acts(&asked, &cluster).await?;
    cluster.delete().await
}

struct Asked<'m> {
    management: &'m ManagementCluster,
}

impl Asked<'_> {
    /// Runs `kubectl kcp` in the namespace.
    async fn kcp(&self, arguments: &[&str]) -> Result<CommandOutput> {
        self.management.kubectl().kcp(NAMESPACE, arguments).await
    }

    async fn document(&self, arguments: &[&str]) -> Result<Value> {
        let output = self.kcp(&[arguments, &["-o", "json"]].concat()).await?;
        serde_json::from_str(&output.stdout).with_context(|| format!("{output}"))
    }

    /// Waits until `status` has one finding of a check, and returns its outcome, message and hint.
    async fn finding(&self, check: &str) -> Result<[String; 3]> {
        let finding = wait::until(&format!("status has a finding of {check}"), || async {
            let status = self.document(&["status", NAME]).await?;
            let [finding] = findings(&status, check)? else {
                anyhow::bail!("{status:#}");
            };
            Ok(["outcome", "message", "hint"].map(|field| text(finding, field)))
        })
        .await?;
        remedies::are_accepted(self.management, NAMESPACE, NAME).await?;
        Ok(finding)
    }

    /// Waits until a check of `status` finds nothing.
    async fn passes(&self, check: &str) -> Result<()> {
        wait::until(&format!("{check} passes"), || async {
            let status = self.document(&["status", NAME]).await?;
            ensure!(findings(&status, check)?.is_empty(), "{status:#}");
            Ok(())
        })
        .await
    }
}

fn findings<'s>(status: &'s Value, check: &str) -> Result<&'s [Value]> {
    let checks = status
        .pointer("/items/0/checks")
        .or_else(|| status.pointer("/checks"));
    let mut checks = checks.and_then(Value::as_array).into_iter().flatten();
    let found = checks.find(|found| found.get("id") == Some(&json!(check)));
    let found = found.with_context(|| format!("{check} is not in {status:#}"))?;
    let findings = found.get("findings").and_then(Value::as_array);
    Ok(findings.map(Vec::as_slice).unwrap_or_default())
}

fn text(finding: &Value, field: &str) -> String {
    let value = finding.get(field).and_then(Value::as_str);
    value.unwrap_or_default().to_owned()
}

/// clusterctl pauses the Cluster, cannot write its first file, and leaves the Cluster paused.
async fn a_failed_move(asked: &Asked<'_>, cluster: &Cluster) -> Result<()> {
    let kubectl = asked.management.kubectl();
    let file = kubectl.scratch_file("no-directory");
    fs::write(&file, "").context("writing a file")?;
    let target = file.display().to_string();
    let moved = kubectl
        .run_clusterctl(["move", "-n", NAMESPACE, "--to-directory", &target])
        .await?;
    ensure!(
        moved.code != 0 && moved.stderr.contains("not a directory"),
        "{moved}"
    );

    let [outcome, message, hint] = asked.finding("paused").await?;
    let who = "the Cluster is paused: no controller reconciles the control plane; field manager clusterctl paused the Cluster";
    let first = "first make sure that no other management cluster has this Cluster";
    ensure!(
        outcome == "warn"
            && message == who
            && hint.contains(first)
            && hint.contains("; then resume the Cluster: kubectl"),
        "{outcome} {message} {hint}"
    );
    for command in [
        &["why", NAME] as &[_],
        &["plan", NAME],
        &["scale", NAME, "--replicas", "5"],
        &["rollout", "start", NAME],
    ] {
        let output = asked.kcp(command).await?;
        let words = format!("{} {}", output.stdout, output.stderr);
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(words.contains(first), "{command:?}: {output}");
    }

    cluster.pause(false).await?;
    asked.passes("paused").await?;
    let pause = [
        "patch",
        "cluster",
        NAME,
        "-n",
        NAMESPACE,
        "--type=merge",
        "-p",
        r#"{"spec":{"paused":true}}"#,
    ];
    kubectl.succeed(pause).await?;
    let [_, message, hint] = asked.finding("paused").await?;
    ensure!(
        message.ends_with("; field manager kubectl-patch paused the Cluster")
            && hint.starts_with("resume the Cluster: "),
        "{message} {hint}"
    );
    cluster.pause(false).await?;
    asked.passes("paused").await
}

/// The controller renews the kubeconfig once the control plane is no longer paused.
async fn a_kubeconfig_that_was_not_renewed(asked: &Asked<'_>) -> Result<()> {
    let management = asked.management;
    let paused = asked.kcp(&["rollout", "pause", NAME]).await?;
    ensure!(paused.code == 0, "{paused}");
    let access = WorkloadAccess::read(management.run(), management.client(), NAMESPACE, NAME).await?;
    access.expire_client_in(90).await?;

    let [outcome, message, hint] = asked.finding("secret-certificates-expiring").await?;
    ensure!(
        outcome == "warn"
            && message.starts_with("the certificate (admin kubeconfig) expires in 89d")
            && message.contains("; it should have been renewed on ")
            && message.ends_with(", but the control plane is paused: no controller reconciles it")
            && hint
                == "the controller renews the certificate as soon as it reconciles the control plane again",
        "{outcome} {message} {hint}"
    );
    let kubeconfig = async || {
        let certificates = asked.document(&["certificates", NAME]).await?;
        let all = certificates
            .pointer("/items/0/certificates")
            .and_then(Value::as_array);
        let mut all = all.into_iter().flatten();
        let found = all
            .find(|certificate| certificate.get("purpose") == Some(&json!("adminKubeconfig")))
            .cloned();
        found.with_context(|| format!("{certificates:#}"))
    };
    let before = kubeconfig().await?;
    ensure!(
        before.get("state") == Some(&json!("notRenewed"))
            && before.get("overdueSince").is_some()
            && text(&before, "renewal")
                .ends_with(", but the control plane is paused: no controller reconciles it"),
        "{before:#}"
    );

    let resumed = asked.kcp(&["rollout", "resume", NAME]).await?;
    ensure!(resumed.code == 0, "{resumed}");
    wait::until("the controller renews the kubeconfig", || async {
        let after = kubeconfig().await?;
        ensure!(after.get("state") == Some(&json!("valid")), "{after:#}");
        ensure!(text(&after, "expires") > text(&before, "expires"), "{after:#}");
        Ok(())
    })
    .await?;
    asked.passes("secret-certificates-expiring").await
}

/// As after a rollout in which Cluster API gave up the deletion of the Node.
async fn a_node_that_is_left(asked: &Asked<'_>, cluster: &Cluster) -> Result<()> {
    const LEFT: &str = "left-behind";
    let workload = asked.management.machines().cluster(NAMESPACE, NAME).await?;
    let nodes: Api<Node> = Api::all(workload.client()?.clone());
    let node = json!({
        "metadata": {
            "name": LEFT,
            "labels": {"node-role.kubernetes.io/control-plane": ""},
            "annotations": {"cluster.x-k8s.io/machine": "edge-old", "cluster.x-k8s.io/cluster-name": NAME},
        },
        "spec": {"providerID": "stand-in:///left-behind"},
    });
    nodes
        .create(&PostParams::default(), &serde_json::from_value(node)?)
        .await?;
    wait::until("kwok initializes the Node", || async {
        let status = nodes.get(LEFT).await?.status.context("no status")?;
        let ready = status
            .conditions
            .into_iter()
            .flatten()
            .any(|item| item.type_ == "Ready");
        ensure!(ready, "no condition Ready");
        Ok(())
    })
    .await?;
    // As kube-controller-manager reports a Node whose kubelet is silent.
    let silent = json!({"status": {"conditions": [
        {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": "2026-11-01T00:00:00Z"},
    ]}});
    nodes
        .patch_status(LEFT, &PatchParams::default(), &Patch::Strategic(&silent))
        .await?;

    let [outcome, message, hint] = asked.finding("nodes-left-behind").await?;
    let remedy = format!("kubectl kcp kubectl {NAME} -n {NAMESPACE} -- delete node {LEFT}");
    ensure!(
        outcome == "warn"
            && message == "is not ready and has no Machine: it is left over from Machine edge-old"
            && remedies::repairs(&hint) == [remedy.as_str()],
        "{outcome} {message} {hint}"
    );
    // The controller does not watch Nodes.
    cluster
        .patch(&json!({"metadata": {"annotations": {"example.com/reconcile": "now"}}}))
        .await?;
    wait::until("the controller reports the Node", || async {
        let status = asked.kcp(&["rollout", "status", NAME]).await?;
        let line = "Control plane Node left-behind does not have a corresponding Machine";
        ensure!(status.code == 0 && status.stdout.contains(line), "{status}");
        Ok(())
    })
    .await?;

    let apart = json!({
        "metadata": {"name": "kube-apiserver-left-behind", "namespace": "kube-system",
            "labels": {"component": "kube-apiserver", "tier": "control-plane"}},
        "spec": {"nodeName": LEFT, "containers": [{"name": "kube-apiserver", "image": "kube-apiserver"}]},
    });
    let pods: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(workload.client()?.clone(), "kube-system");
    pods.create(&PostParams::default(), &serde_json::from_value(apart)?)
        .await?;
    asked.finding("nodes-left-behind").await?;
    asked.passes("api-servers-mismatch").await?;
    asked.passes("api-servers-not-ready").await?;
    asked.passes("etcd-members-unresponsive").await?;

    let deleted = asked.management.kubectl().script("sh", ["-c", &remedy]).await?;
    ensure!(deleted.code == 0, "{deleted}");
    pods.delete(
        "kube-apiserver-left-behind",
        &DeleteParams::default().grace_period(0),
    )
    .await?;
    asked.passes("nodes-left-behind").await?;
    cluster.settled(3).await
}

/// As if the image of the Machine had the kubelet of an earlier version.
async fn a_kubelet_of_an_earlier_version(asked: &Asked<'_>, cluster: &Cluster) -> Result<()> {
    let workload = asked.management.machines().cluster(NAMESPACE, NAME).await?;
    let nodes: Api<Node> = Api::all(workload.client()?.clone());
    let machines = cluster.machines().await?;
    let node = machines.first().context("there is no Machine")?;
    let runs = async |version: &str| {
        let patch = json!({"status": {"nodeInfo": {"kubeletVersion": version}}});
        nodes
            .patch_status(node, &PatchParams::default(), &Patch::Strategic(&patch))
            .await
    };
    runs("v1.33.5").await?;
    let [outcome, message, hint] = asked.finding("machine-kubelet-differs").await?;
    ensure!(
        outcome == "warn"
            && message == format!("requires {VERSION}, but its kubelet is v1.33.5")
            && hint == "use an infrastructure template whose image has the Kubernetes version of the Machine",
        "{outcome} {message} {hint}"
    );
    runs(VERSION).await?;
    asked.passes("machine-kubelet-differs").await
}

/// The annotation has the date that the controller reads from the certificate of an API server. A rollout issues new certificates.
async fn certificates_that_expired(asked: &Asked<'_>, cluster: &Cluster) -> Result<()> {
    let expired = json!({"metadata": {"annotations": {"machine.cluster.x-k8s.io/certificates-expiry": "2026-01-01T00:00:00Z"}}});
    let machines = resources::machines(asked.management.client(), NAMESPACE);
    let old = cluster.machines().await?;
    let first = old.first().context("there is no Machine")?;
    machines
        .patch(first, &PatchParams::default(), &Patch::Merge(&expired))
        .await?;
    let [outcome, message, hint] = asked.finding("machine-certificates-expiring").await?;
    ensure!(
        outcome == "fail"
            && message.starts_with("certificate expired ")
            && hint.contains("rollout start edge"),
        "{outcome} {message} {hint}"
    );
    let started = asked.kcp(&["rollout", "start", NAME, "--yes"]).await?;
    ensure!(started.code == 0, "{started}");
    asked.passes("machine-certificates-expiring").await?;
    cluster.settled(3).await?;
    let new = cluster.machines().await?;
    ensure!(
        new.iter().all(|machine| !old.contains(machine)),
        "{old:?} {new:?}"
    );
    Ok(())
}

/// Cluster API's own controller rounds 33 % of three down to none, and leaves an unhealthy Machine alone. With 34 %, it is
/// replaced.
async fn a_health_check_that_never_acts(asked: &Asked<'_>, cluster: &Cluster) -> Result<()> {
    let client = asked.management.client();
    cluster.check_health().await?;
    let checks = resources::machine_health_checks(client, NAMESPACE);
    let limit = async |most: &str| {
        let patch = json!({"spec": {"remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": most}}}});
        checks
            .patch(NAME, &PatchParams::default(), &Patch::Merge(&patch))
            .await
    };
    limit("33%").await?;
    let rounded = "never remediates: its limit of unhealthy Machines is 33% of 3 Machines, which Cluster API rounds down to 0";
    let [outcome, message, hint] = asked.finding("machines-without-health-check").await?;
    ensure!(
        outcome == "warn"
            && message == rounded
            && hint.contains("to 34% or more, or to 1: kubectl edit machinehealthcheck"),
        "{outcome} {message} {hint}"
    );
    let audit = asked.document(&["audit", NAME]).await?;
    ensure!(
        audit
            .to_string()
            .contains(&format!("MachineHealthCheck edge {rounded}")),
        "{audit:#}"
    );

    let before = cluster.machines().await?;
    let victim = before.get(1).context("there is no second Machine")?;
    let machines = resources::machines(client, NAMESPACE);
    let unhealthy = json!({"metadata": {"annotations": {"cluster.x-k8s.io/remediate-machine": ""}}});
    machines
        .patch(victim, &PatchParams::default(), &Patch::Merge(&unhealthy))
        .await?;
    wait::until("the controller refuses to remediate", || async {
        let check = serde_json::to_value(checks.get(NAME).await?)?;
        let conditions = check.pointer("/status/conditions").and_then(Value::as_array);
        let mut conditions = conditions.into_iter().flatten();
        let allowed = conditions.find(|item| item.get("type") == Some(&json!("RemediationAllowed")));
        let allowed = allowed.context("no condition RemediationAllowed")?;
        ensure!(
            text(allowed, "status") == "False"
                && text(allowed, "message").contains("(total: 3, unhealthy: 1, maxUnhealthy: 33%)"),
            "{allowed}"
        );
        Ok(())
    })
    .await?;
    ensure!(cluster.machines().await? == before, "a Machine was replaced");

    limit("34%").await?;
    wait::until(&format!("{victim} is replaced"), || async {
        let now = cluster.machines().await?;
        ensure!(
            !now.contains(victim) && now.len() == 3,
            "the machines are {now:?}"
        );
        Ok(())
    })
    .await?;
    cluster.settled(3).await?;
    asked.passes("machines-without-health-check").await
}
