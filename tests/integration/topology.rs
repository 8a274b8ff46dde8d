//! What a user writes into the topology of a Cluster is denied there, before the topology controller writes it to the control plane.

#![expect(
    clippy::indexing_slicing,
    reason = "what is not in a JSON object is null, and all of these are our own"
)]

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::SignedDuration;
use jiff::civil::Time;
use kcp_tests::cluster::{ClassSettings, Cluster};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{resources, wait};
use serde_json::{Value, json};

use crate::shared::{with_controllers, with_controllers_refused};

const VERSION: &str = "v1.34.2";
const CLUSTERS: &str = "clusters.v1beta2.cluster.x-k8s.io";

#[test]
#[ignore = "takes minutes: make test-long"]
fn mistakes_in_a_topology_are_denied_at_the_cluster() {
    with_controllers("topology-mistakes", mistakes);
}

/// The patch of the topology, and the field and the rule of the denial.
fn denied() -> Vec<(Value, &'static str, &'static str)> {
    const REPLICAS: &str = "spec.topology.controlPlane.replicas";
    const VERSION: &str = "spec.topology.version";
    const ANNOTATIONS: &str = "spec.topology.controlPlane.metadata.annotations";
    let replicas = |replicas: Value| json!({"controlPlane": {"replicas": replicas}});
    let annotation = |key: &str| json!({"controlPlane": {"metadata": {"annotations": {key: ""}}}});
    vec![
        (replicas(json!(0)), REPLICAS, "replicas-not-positive"),
        (replicas(json!(-1)), REPLICAS, "replicas-not-positive"),
        (replicas(json!(2)), REPLICAS, "replicas-even"),
        (
            json!({"version": "v1.34.2-rc.1"}),
            VERSION,
            "topology-version-lowered",
        ),
        (
            json!({"version": "v1.35.0", "controlPlane": {"replicas": 3}}),
            REPLICAS,
            "replicas-with-upgrade",
        ),
        (
            annotation("cluster.x-k8s.io/paused"),
            ANNOTATIONS,
            "machine-annotation-misplaced",
        ),
        (
            annotation("cluster.x-k8s.io/remediate-machine"),
            ANNOTATIONS,
            "machine-annotation-misplaced",
        ),
    ]
}

async fn mistakes(management: &ManagementCluster) -> Result<()> {
    let (client, namespace) = (management.client(), "topology-mistakes");
    let cluster = Cluster::create_of_class(client, namespace, "edge", 1, VERSION).await?;
    cluster.settled(1).await?;
    let before = generation(&cluster).await?;
    for (patch, field, rule) in denied() {
        let error = refusal(cluster.patch_topology(&patch).await, &patch)?;
        ensure!(error.contains(field) && error.contains(rule), "{patch}: {error}");
    }
    // The API server converts the request for the webhook.
    let kubectl = management.kubectl();
    let two = json!({"spec": {"topology": {"controlPlane": {"replicas": 2}}}}).to_string();
    let old_version = "clusters.v1beta1.cluster.x-k8s.io";
    let patched = [
        "patch",
        old_version,
        "edge",
        "-n",
        namespace,
        "--type=merge",
        "-p",
        &two,
    ];
    let converted = kubectl.run(patched).await?;
    ensure!(converted.stderr.contains("(replicas-even)"), "{converted}");
    ensure!(
        generation(&cluster).await? == before,
        "a denied topology has changed the control plane"
    );

    // What no rule concerns passes: the webhook does not keep users from their workers, pauses and labels.
    cluster
        .patch_topology(&json!({"controlPlane": {"metadata": {"labels": {"example.com/a": "b"}}}}))
        .await?;

    // The denial of a version that is raised on the control plane names the field of the Cluster.
    let raised = json!({"spec": {"version": "v1.34.3"}});
    let error = refusal(cluster.patch(&raised).await, &raised)?;
    let place = "set spec.topology.version of Cluster edge";
    ensure!(
        error.contains(place) && error.contains("(version-owned-by-topology)"),
        "{error}"
    );

    // A new Cluster is judged with the template of its class.
    let new = Cluster::create_of_class(client, namespace, "even", 2, VERSION).await;
    let error = refusal(new.map(drop), &json!("a new Cluster"))?;
    ensure!(error.contains("(replicas-even)"), "{error}");

    // Until the controller has seen the labels, a rule denies the change of the number.
    wait::until("the control plane may be scaled", || async {
        cluster
            .patch_topology(&json!({"controlPlane": {"replicas": 3}}))
            .await
    })
    .await?;
    cluster.settled(3).await?;
    let dropped = json!({"controlPlane": {"replicas": null}});
    let error = refusal(cluster.patch_topology(&dropped).await, &dropped)?;
    ensure!(error.contains("(replicas-dropped)"), "{error}");
    cluster.delete().await
}

pub(crate) fn refusal(written: Result<()>, what: &Value) -> Result<String> {
    let error = written.err();
    let error = error.with_context(|| format!("{what} was admitted"))?;
    Ok(format!("{error:#}"))
}

async fn generation(cluster: &Cluster) -> Result<Value> {
    let control_plane = cluster.get().await?;
    let generation = control_plane.pointer("/metadata/generation").cloned();
    generation.context("the control plane has no generation")
}

/// Without the review of the Cluster, the rules of the control plane deny. The Cluster says so, and the user can take it back.
#[test]
#[ignore = "takes minutes: make test-long"]
fn a_topology_that_the_control_plane_refuses_can_be_taken_back() {
    with_controllers_refused("topology-refused", "(replicas-even)", taken_back);
}

async fn taken_back(management: &ManagementCluster) -> Result<()> {
    let (client, namespace) = (management.client(), "topology-refused");
    let cluster = Cluster::create_of_class(client, namespace, "edge", 1, VERSION).await?;
    cluster.settled(1).await?;
    leave_out(management, namespace).await?;
    wait::until("the API server no longer asks about the topology", || async {
        cluster
            .patch_topology(&json!({"controlPlane": {"replicas": 2}}))
            .await
    })
    .await?;
    let refused = wait::until("the Cluster says what is refused", || async {
        let condition = topology_reconciled(&cluster, management).await?;
        ensure!(condition["status"] == json!("False"), "{condition}");
        let message = condition["message"].as_str().unwrap_or_default().to_owned();
        ensure!(message.contains("(replicas-even)"), "{condition}");
        Ok(message)
    })
    .await?;
    tries_seldom(management, namespace).await?;
    // The way out.
    ensure!(refused.contains("set 1 or 3"), "{refused}");
    cluster
        .patch_topology(&json!({"controlPlane": {"replicas": 1}}))
        .await?;
    wait::until("the topology is reconciled again", || async {
        let condition = topology_reconciled(&cluster, management).await?;
        ensure!(condition["status"] == json!("True"), "{condition}");
        Ok(())
    })
    .await?;
    cluster.delete().await
}

/// Waits until the topology controller tries at most five times a minute. Without a limit of Cluster API, each try would follow the one
/// before at once if a message of ours differed each time, because it would change the Cluster.
async fn tries_seldom(management: &ManagementCluster, namespace: &str) -> Result<()> {
    const PAUSE: SignedDuration = SignedDuration::from_secs(12);
    let log = management
        .run()
        .logs()
        .join(format!("cluster-api-{namespace}-core.log"));
    wait::until("the topology controller tries seldom", || async {
        let text = fs::read_to_string(&log).with_context(|| format!("reading {}", log.display()))?;
        let denied = text.lines().filter(|line| line.contains("(replicas-even)"));
        let times: Vec<Time> = denied.filter_map(time).collect();
        let [.., before, last] = times.as_slice() else {
            bail!("fewer than two tries: {times:?}");
        };
        let pause = last.duration_since(*before);
        ensure!(
            pause >= PAUSE,
            "{pause} between the last of {} tries",
            times.len()
        );
        Ok(())
    })
    .await
}

/// The time of a line such as `E1129 17:39:51.123456    8123 controller.go:474] "Reconciler error" ...`.
fn time(line: &str) -> Option<Time> {
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The condition with which the topology controller says how far it is.
pub(crate) async fn topology_reconciled(cluster: &Cluster, management: &ManagementCluster) -> Result<Value> {
    let clusters = resources::clusters(management.client(), cluster.namespace());
    let object = clusters
        .get(cluster.name())
        .await
        .context("reading the Cluster")?;
    let conditions = object
        .data
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition.get("type") == Some(&json!("TopologyReconciled")));
    found
        .cloned()
        .context("the Cluster has no condition TopologyReconciled")
}

/// Has the API server send no Cluster of this namespace to the webhook.
pub(crate) async fn leave_out(management: &ManagementCluster, namespace: &str) -> Result<()> {
    const CONFIGURATION: [&str; 2] = ["validatingwebhookconfigurations", "admission.kubectl-kcp.dev"];
    let kubectl = management.kubectl();
    let [kind, name] = CONFIGURATION;
    let shown = kubectl.succeed(["get", kind, name, "-o", "json"]).await?;
    let configuration: Value = serde_json::from_str(&shown.stdout)?;
    let entries = configuration["webhooks"].as_array().context("no webhooks")?;
    let entry = "clusters.validate.kubectl-kcp.dev";
    let index = entries.iter().position(|found| found["name"] == json!(entry));
    let place = format!("/webhooks/{}", index.context("no entry for Clusters")?);
    let condition = json!({"name": format!("left-out-{namespace}"), "expression": format!("object.metadata.namespace != '{namespace}'")});
    let patch = json!([
        {"op": "test", "path": format!("{place}/name"), "value": entry},
        {"op": "add", "path": format!("{place}/matchConditions/-"), "value": condition},
    ]);
    kubectl
        .succeed(["patch", kind, name, "--type=json", "-p", &patch.to_string()])
        .await?;
    Ok(())
}

/// Users cannot lower the version of a topology again, so its controller only gets warnings of what the version alone breaks.
#[test]
#[ignore = "takes minutes: make test-long"]
fn a_version_that_breaks_the_configuration_only_warns() {
    with_controllers("topology-warned", warned);
}

async fn warned(management: &ManagementCluster) -> Result<()> {
    const RULE: &str = "kubeadm-feature-gate-unknown";
    const NEXT: &str = "v1.35.1";
    let (client, namespace) = (management.client(), "topology-warned");
    // kubeadm 1.35 does not know this gate.
    let settings = ClassSettings {
        configuration: json!({"featureGates": {"WaitForAllControlPlaneComponents": true}}),
        ..ClassSettings::default()
    };
    let cluster = Cluster::create_of_class_with(client, namespace, "edge", 1, VERSION, &settings).await?;
    cluster.settled(1).await?;
    let patch = json!({"spec": {"topology": {"version": NEXT}}}).to_string();
    let place = [
        "patch",
        CLUSTERS,
        "edge",
        "-n",
        namespace,
        "--type=merge",
        "-p",
        &patch,
    ];
    let raised = management.kubectl().succeed(place).await?;
    ensure!(
        raised.stderr.contains("Warning: spec.topology.version: ") && raised.stderr.contains(RULE),
        "{raised}"
    );
    wait::until("the topology controller has raised the version", || async {
        let control_plane = cluster.get().await?;
        ensure!(
            control_plane.pointer("/spec/version") == Some(&json!(NEXT)),
            "{control_plane}"
        );
        Ok(())
    })
    .await?;
    cluster.settled(1).await?;
    cluster.delete().await
}
