//! A late step of each reconcile of Cluster API's controller fails, so `status.observedGeneration` stays behind. The control
//! plane can still be scaled, and the plugin names the cause.

#![expect(
    clippy::indexing_slicing,
    reason = "a part that a JSON document lacks is null, and fails the test"
)]

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::ConfigMap;
use kcp_tests::cluster::Cluster;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{resources, wait};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::controller_failures::is_logged;
use crate::remedies;
use crate::shared::with_controllers;

const NAMESPACE: &str = "late-failures";
const NAME: &str = "edge";
const VERSION: &str = "v1.34.2";

/// The version of `CoreDNS` that runs, and the lower one that the spec requires.
const RUNNING: &str = "v1.12.1";
const LOWER: &str = "v1.11.3";

const SKIP: &str = "controlplane.cluster.x-k8s.io/skip-coredns";

/// How long ago the changes were written, as the test makes it look.
const MINUTES: i64 = 10;

/// An update of an add-on.
struct Update {
    /// The images that run.
    core_dns: &'static str,
    kube_proxy: &'static str,
    /// The new `clusterConfiguration.dns`.
    dns: Value,
    /// What the controller logs if it cannot make the update. None if it can.
    error: Option<&'static str>,
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_control_plane_whose_reconciles_fail_late_can_be_scaled() {
    with_controllers(NAMESPACE, can_be_scaled);
}

async fn can_be_scaled(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, VERSION).await?;
    cluster.settled(3).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    run_core_dns(&workload).await?;

    a_downgrade_is_announced(management).await?;
    lower_core_dns(management).await?;
    fails_late(&cluster).await?;
    the_cause_is_named(management).await?;
    scaled_up(management, &cluster).await?;
    // The controller has recorded the scale, and fails again at its next reconcile.
    the_cause_is_named(management).await?;
    new_machines_have_no_expiry(management, &cluster, 2).await?;

    // The lag outlives its cause.
    change_fails_late(&cluster, 600).await?;
    set_core_dns(&workload, &image(LOWER)).await?;
    new_machines_have_no_expiry(management, &cluster, 0).await?;
    scaled_down(management, &cluster).await?;

    // The other way out, after which the lag remains, too.
    set_core_dns(&workload, &image(RUNNING)).await?;
    change_fails_late(&cluster, 620).await?;
    the_hint_ends_the_failure(management).await?;
    the_lag_alone_is_reported(management, &cluster).await?;
    set_drain_timeout(&cluster, 640).await?;
    cluster.settled(3).await?;
    is_over(management).await?;

    a_scale_right_after_an_upgrade_is_denied(management).await?;
    cluster.delete().await
}

/// The controller decides which updates of add-ons are impossible, and `status` says the same.
#[test]
#[ignore = "takes minutes: make test-long"]
fn status_and_the_controller_agree_on_impossible_updates() {
    with_controllers("addon-updates", async |management| {
        let namespace = "addon-updates";
        let cluster = Cluster::create(management.client(), namespace, NAME, 1, VERSION).await?;
        cluster.settled(1).await?;
        let workload = management.machines().cluster(namespace, NAME).await?;
        run_core_dns(&workload).await?;
        run_kube_proxy(&workload).await?;
        for (round, update) in (0..).zip(updates()) {
            is_made_or_fails(management, &cluster, &workload, &update, round).await?;
        }
        // Without its ConfigMap, the controller does not update CoreDNS.
        let configs: Api<ConfigMap> = Api::namespaced(workload.client()?.clone(), "kube-system");
        configs.delete("coredns", &DeleteParams::default()).await?;
        let lowered = json!({"imageTag": LOWER});
        let lowered = Update::of_core_dns("registry.k8s.io/coredns/coredns:v1.12.2", lowered, None);
        is_made_or_fails(management, &cluster, &workload, &lowered, 100).await?;
        cluster.delete().await
    });
}

impl Update {
    fn of_core_dns(core_dns: &'static str, dns: Value, error: Option<&'static str>) -> Self {
        Self {
            core_dns,
            kube_proxy: "registry.k8s.io/kube-proxy:v1.34.2",
            dns,
            error,
        }
    }
}

fn updates() -> Vec<Update> {
    let tag = |tag: &str| json!({"imageTag": tag});
    let repository = |repository: &str| json!({"imageRepository": repository});
    let of_core_dns = Update::of_core_dns;
    vec![
        of_core_dns("registry.k8s.io/coredns/coredns:v1.12.1", tag("v1.12.4"), None),
        of_core_dns(
            "registry.k8s.io/coredns/coredns:v1.12.1",
            tag("v1.11.3"),
            Some("toVersion \\\"v1.11.3\\\" must be greater than or equal to fromVersion \\\"v1.12.1\\\""),
        ),
        of_core_dns("vendor.example/dns/coredns:v1.12.99-vendor", Value::Null, None),
        of_core_dns(
            "vendor.example/dns/coredns:v1.12.99-vendor",
            repository("vendor.example/dns"),
            None,
        ),
        of_core_dns(
            "vendor.example/dns/coredns:v1.12.99-vendor",
            repository("other.example/dns"),
            Some("fromVersion \\\"1.12.99-vendor\\\" is not a compatible coredns version"),
        ),
        of_core_dns(
            "registry.k8s.io/coredns/coredns:v1.12.1",
            tag("v1.99.0"),
            Some("unable to migrate CoreDNS corefile"),
        ),
        of_core_dns(
            "registry.k8s.io/coredns/coredns@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            Value::Null,
            Some("does not have a valid image tag"),
        ),
        of_core_dns(
            "registry.k8s.io/coredns/coredns:latest",
            Value::Null,
            Some("error parsing semver from \\\"latest\\\""),
        ),
        Update {
            kube_proxy: "registry.k8s.io/kube-proxy:v1.34.2@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ..of_core_dns(
                "registry.k8s.io/coredns/coredns:v1.12.1",
                Value::Null,
                Some("image uses digest as version, cannot update tag"),
            )
        },
    ]
}

/// Writes an update, and waits until the controller has made it or logs the error.
async fn is_made_or_fails(
    management: &ManagementCluster,
    cluster: &Cluster,
    workload: &WorkloadCluster,
    update: &Update,
    round: u32,
) -> Result<()> {
    let Update {
        core_dns,
        kube_proxy,
        dns,
        error,
    } = update;
    set_images(workload, core_dns, kube_proxy).await?;
    // kcp-webhook denies a lower tag in the spec, and the controller reconciles only after a change.
    for (dns, seconds) in [(&Value::Null, 2 * round + 1), (dns, 2 * round + 2)] {
        let change = json!({
            "kubeadmConfigSpec": {"clusterConfiguration": {"dns": dns}},
            "machineTemplate": {"spec": {"deletion": {"nodeDrainTimeoutSeconds": seconds}}},
        });
        cluster.patch(&json!({"spec": change})).await?;
    }
    match error {
        Some(error) => {
            is_logged(management, cluster.namespace(), error).await?;
            fails_late(cluster).await?;
        }
        None => cluster.settled(1).await?,
    }
    let status = management
        .kubectl()
        .kcp(cluster.namespace(), &["status", NAME])
        .await?;
    let is_reported = status.stdout.contains("(addon-update-impossible)");
    ensure!(
        is_reported == error.is_some(),
        "{core_dns} {kube_proxy} {dns}: {status}"
    );
    Ok(())
}

/// What kubeadm creates for `CoreDNS`. The stand-in machines run no add-ons, but the controller updates these objects.
async fn run_core_dns(workload: &WorkloadCluster) -> Result<()> {
    let client = workload.client()?;
    let config = serde_json::from_value(json!({
        "metadata": {"name": "coredns"},
        "data": {"Corefile": ".:53 {\n    errors\n    health\n    ready\n}\n"},
    }))?;
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    configs.create(&PostParams::default(), &config).await?;
    let labels = json!({"k8s-app": "kube-dns"});
    let deployment = serde_json::from_value(json!({
        "metadata": {"name": "coredns"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": "coredns", "image": image(RUNNING)}],
                    "volumes": [{"name": "config-volume", "configMap": {
                        "name": "coredns", "items": [{"key": "Corefile", "path": "Corefile"}]}}],
                },
            },
        },
    }))?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
    deployments.create(&PostParams::default(), &deployment).await?;
    Ok(())
}

fn image(tag: &str) -> String {
    format!("registry.k8s.io/coredns/coredns:{tag}")
}

async fn run_kube_proxy(workload: &WorkloadCluster) -> Result<()> {
    let labels = json!({"k8s-app": "kube-proxy"});
    let daemon_set = serde_json::from_value(json!({
        "metadata": {"name": "kube-proxy"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "kube-proxy", "image": "registry.k8s.io/kube-proxy:v1.34.2"}]},
            },
        },
    }))?;
    let daemon_sets: Api<DaemonSet> = Api::namespaced(workload.client()?.clone(), "kube-system");
    daemon_sets.create(&PostParams::default(), &daemon_set).await?;
    Ok(())
}

fn container(name: &str, image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": name, "image": image}]}}}})
}

async fn set_images(workload: &WorkloadCluster, core_dns: &str, kube_proxy: &str) -> Result<()> {
    set_core_dns(workload, core_dns).await?;
    let daemon_sets: Api<DaemonSet> = Api::namespaced(workload.client()?.clone(), "kube-system");
    let patch = Patch::Strategic(container("kube-proxy", kube_proxy));
    daemon_sets
        .patch("kube-proxy", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

async fn set_core_dns(workload: &WorkloadCluster, image: &str) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(workload.client()?.clone(), "kube-system");
    let patch = Patch::Strategic(container("coredns", image));
    deployments
        .patch("coredns", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

fn dns_tag() -> Value {
    json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"dns": {"imageTag": LOWER}}}}})
}

/// `plan` compares the change with the workload cluster before it is written.
async fn a_downgrade_is_announced(management: &ManagementCluster) -> Result<()> {
    let mut object = management
        .kubectl()
        .succeed(["get", "kcp", NAME, "-n", NAMESPACE, "-o", "json"])
        .await
        .and_then(|output| Ok(serde_json::from_str::<Value>(&output.stdout)?))?;
    object["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["dns"] = json!({"imageTag": LOWER});
    let file = management.kubectl().scratch_file("late-failures.json");
    std::fs::write(&file, object.to_string())?;
    let file = file.display().to_string();
    let planned = management
        .kubectl()
        .kcp(NAMESPACE, &["plan", NAME, "-f", &file])
        .await?;
    let expected = format!(
        "Deployment/coredns: runs {RUNNING}, and Cluster API never lowers CoreDNS, but the spec requires {LOWER}"
    );
    ensure!(planned.words().contains(&expected), "{planned}");
    Ok(())
}

async fn lower_core_dns(management: &ManagementCluster) -> Result<()> {
    let patch = dns_tag().to_string();
    let patch = [
        "patch",
        "kcp",
        NAME,
        "-n",
        NAMESPACE,
        "--type=merge",
        "-p",
        &patch,
    ];
    let patched = management.kubectl().run(patch).await?;
    ensure!(
        patched.code == 0 && patched.stderr.contains("(coredns-version-unknown)"),
        "{patched}"
    );
    Ok(())
}

async fn set_drain_timeout(cluster: &Cluster, seconds: u32) -> Result<()> {
    let deletion = json!({"nodeDrainTimeoutSeconds": seconds});
    let patch = json!({"spec": {"machineTemplate": {"spec": {"deletion": deletion}}}});
    cluster.patch(&patch).await
}

/// Changes the drain timeout until a reconcile of the change fails late. A reconcile that ends before it reaches `CoreDNS`, because
/// a Machine is not ready, records the generation.
async fn change_fails_late(cluster: &Cluster, seconds: u32) -> Result<()> {
    const ATTEMPTS: u32 = 10;
    for attempt in 0..ATTEMPTS {
        set_drain_timeout(cluster, seconds + attempt).await?;
        has_compared_machines(cluster).await?;
        if is_behind(cluster).await.is_ok() {
            return Ok(());
        }
    }
    bail!("the controller has recorded each of {ATTEMPTS} changes")
}

/// Waits until the controller has compared the Machines with the spec, and has failed to process it.
async fn fails_late(cluster: &Cluster) -> Result<()> {
    has_compared_machines(cluster).await?;
    is_behind(cluster).await
}

async fn has_compared_machines(cluster: &Cluster) -> Result<()> {
    wait::until("the controller compares the Machines with the spec", || async {
        let object = cluster.get().await?;
        let generation = object.pointer("/metadata/generation").cloned();
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let mut conditions = conditions.into_iter().flatten();
        let compared = conditions.find(|condition| condition["type"] == "ControlPlaneComponentsHealthy");
        let compared = compared.and_then(|condition| condition.get("observedGeneration"));
        ensure!(compared == generation.as_ref(), "{compared:?} of {generation:?}");
        Ok(())
    })
    .await
}

/// The controller has not recorded the current generation.
async fn is_behind(cluster: &Cluster) -> Result<()> {
    let object = cluster.get().await?;
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64);
    let (generation, observed) = (
        number("/metadata/generation"),
        number("/status/observedGeneration"),
    );
    ensure!(observed < generation, "{observed:?} of {generation:?}");
    Ok(())
}

/// `status` and `why` name `CoreDNS`, and that a person must act.
async fn the_cause_is_named(management: &ManagementCluster) -> Result<()> {
    let cause = format!(
        "runs {RUNNING}, and Cluster API never lowers CoreDNS, but the spec requires {LOWER}; the reconciles of Cluster API's \
         controller fail after the Machines are up to date"
    );
    for command in ["status", "why"] {
        let output = management
            .kubectl()
            .kcp_says(NAMESPACE, &[command, NAME], 1, &[&cause])
            .await?;
        ensure!(
            !output.words().contains("check that the controller is running"),
            "{output}"
        );
    }
    let why = management
        .kubectl()
        .kcp(NAMESPACE, &["why", NAME, "-o", "json"])
        .await?;
    let document: Value = serde_json::from_str(&why.stdout).with_context(|| why.to_string())?;
    ensure!(
        document["state"] == "personNeeded" && document["cause"]["check"] == "addon-update-impossible",
        "{why}"
    );
    remedies::are_accepted(management, NAMESPACE, NAME)
        .await
        .map(drop)
}

/// `kubectl scale` is admitted with a warning, and two Machines join.
async fn scaled_up(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    is_behind(cluster).await?;
    let scale = ["scale", "kcp", NAME, "-n", NAMESPACE, "--replicas=5"];
    let scaled = management.kubectl().run(scale).await?;
    ensure!(
        scaled.code == 0
            && scaled
                .stderr
                .contains("may be unable to scale now, because a reconcile of the last change failed")
            && scaled.stderr.contains("(replicas-during-rollout)"),
        "{scaled}"
    );
    cluster.settled(5).await
}

/// Waits until this number of Machines have no record of when their certificates expire.
async fn new_machines_have_no_expiry(
    management: &ManagementCluster,
    cluster: &Cluster,
    number: usize,
) -> Result<()> {
    let machines = resources::machines(management.client(), NAMESPACE);
    wait::until(&format!("{number} Machines have no expiry date"), || async {
        let mut missing = 0;
        for name in cluster.machines().await? {
            let machine = machines.get(&name).await?;
            let expiry = machine.data.pointer("/status/certificatesExpiryDate");
            missing += usize::from(expiry.is_none());
        }
        ensure!(missing == number, "{missing} have none");
        Ok(())
    })
    .await
}

/// After the cause is gone, the controller does not record that it succeeds. The plugin says how this state ends, and does
/// not say that the controller has stopped.
async fn the_lag_alone_is_reported(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    cluster.backdate_writes(MINUTES).await?;
    is_behind(cluster).await?;
    let why = management
        .kubectl()
        .kcp(NAMESPACE, &["why", NAME, "-o", "json"])
        .await?;
    let document: Value = serde_json::from_str(&why.stdout).with_context(|| why.to_string())?;
    let hint = document["cause"]["hint"].as_str().unwrap_or_default();
    ensure!(
        why.code == 1
            && document["cause"]["check"] == "change-not-recorded"
            && hint.contains("change any field of the spec"),
        "{why}"
    );
    let rollout = management
        .kubectl()
        .kcp(NAMESPACE, &["rollout", "status", NAME])
        .await?;
    ensure!(rollout.code == 0, "{rollout}");
    Ok(())
}

/// The plugin's own scale is admitted, and its wait ends.
async fn scaled_down(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let scaled = management
        .kubectl()
        .kcp(
            NAMESPACE,
            &["scale", NAME, "--replicas", "3", "--wait=5m", "--yes"],
        )
        .await?;
    ensure!(scaled.code == 0, "{scaled}");
    cluster.settled(3).await
}

/// The hint of `status` has a command that ends the failure.
async fn the_hint_ends_the_failure(management: &ManagementCluster) -> Result<()> {
    let status = management
        .kubectl()
        .kcp(NAMESPACE, &["status", NAME, "-o", "json"])
        .await?;
    let document: Value = serde_json::from_str(&status.stdout).with_context(|| status.to_string())?;
    let command = format!("kubectl annotate kcp {NAME} -n {NAMESPACE} {SKIP}=");
    let findings = document["findings"].as_array().cloned().unwrap_or_default();
    let hinted = |finding: &Value| {
        let hint = finding["hint"].as_str().unwrap_or_default();
        finding["id"] == "addon-update-impossible" && hint.ends_with(&command)
    };
    ensure!(findings.iter().any(hinted), "{status}");
    let arguments = command.split(' ').skip(1);
    management.kubectl().succeed(arguments).await.map(drop)
}

async fn is_over(management: &ManagementCluster) -> Result<()> {
    for command in ["status", "why"] {
        let output = management.kubectl().kcp(NAMESPACE, &[command, NAME]).await?;
        ensure!(output.code == 0, "{output}");
    }
    Ok(())
}

/// The controller is slower than two writes of one client.
async fn a_scale_right_after_an_upgrade_is_denied(management: &ManagementCluster) -> Result<()> {
    let control_planes = resources::control_planes(management.client(), NAMESPACE);
    let parameters = PatchParams::default();
    let commands = json!({"spec": {"kubeadmConfigSpec": {"preKubeadmCommands": ["true"]}}});
    for change in [commands, json!({"spec": {"version": "v1.34.3"}})] {
        control_planes
            .patch(NAME, &parameters, &Patch::Merge(&change))
            .await?;
        let replicas = json!({"spec": {"replicas": 5}});
        let scaled = control_planes
            .patch_scale(NAME, &parameters, &Patch::Merge(&replicas))
            .await;
        let denied = match scaled {
            Err(kube::Error::Api(status)) => status.message,
            other => bail!("{other:?}"),
        };
        ensure!(denied.contains("(replicas-during-rollout)"), "{denied}");
    }
    Ok(())
}
