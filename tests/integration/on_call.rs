//! Faults whose cause a person on call must read at once, and whose printed remedy leads to health. Each fault has its own
//! cluster under the real controllers.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use kcp_tests::workload_access::{AccessFault, WorkloadAccess};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::remedies;
use crate::shared::with_controllers;

const NAME: &str = "edge";
const OLD: &str = "v1.33.6";
const NEW: &str = "v1.34.2";

async fn kcp(management: &ManagementCluster, namespace: &str, words: &str) -> Result<CommandOutput> {
    let words = std::iter::once("kcp").chain(words.split_whitespace());
    management.kubectl().run(words.chain(["-n", namespace])).await
}

/// Waits until the command exits with this code and prints each text, and returns the seconds that this took.
async fn says(
    management: &ManagementCluster,
    namespace: &str,
    words: &str,
    code: i32,
    texts: &[&str],
) -> Result<f64> {
    let began = Instant::now();
    wait::until(&format!("kcp {words} says {texts:?}"), || async {
        let answer = kcp(management, namespace, &format!("{words} -o wide")).await?;
        let has_all = texts.iter().all(|text| answer.stdout.contains(text));
        ensure!(
            answer.code == code && has_all,
            "{code} and {texts:?} expected: {answer}"
        );
        Ok(())
    })
    .await?;
    let seconds = began.elapsed().as_secs_f64();
    if let (1, Some(object)) = (code, words.split_whitespace().nth(1)) {
        remedies::are_accepted(management, namespace, object).await?;
    }
    Ok(seconds)
}

#[expect(clippy::print_stderr, reason = "how long it takes is for people")]
fn took(what: &str, seconds: f64) {
    eprintln!("{what}: {seconds:.1} s");
}

#[test]
fn an_expired_kubeconfig_is_stated_and_its_remedy_heals() {
    with_controllers("expired-kubeconfig", expired_kubeconfig);
}

async fn expired_kubeconfig(management: &ManagementCluster) -> Result<()> {
    let namespace = "expired-kubeconfig";
    let cluster = Cluster::create(management.client(), namespace, NAME, 1, NEW).await?;
    cluster.settled(1).await?;
    let access = WorkloadAccess::read(management.run(), management.client(), namespace, NAME).await?;
    access.inflict(AccessFault::ClientExpired).await?;
    let stated = [
        "rejected the credentials: the client certificate in the kubeconfig expired ",
        "kubectl kcp reconcile edge -n expired-kubeconfig",
    ];
    took(
        "expired kubeconfig",
        says(management, namespace, "why edge", 1, &stated).await?,
    );
    for change in [
        "scale edge --replicas 3",
        "rollout start edge --yes",
        "upgrade edge --to v1.35.0 --yes",
    ] {
        let refused = kcp(management, namespace, change).await?;
        ensure!(
            refused.code == 1 && refused.stdout.contains(stated[0]) && refused.stderr.contains("--force"),
            "{refused}"
        );
    }
    let reconcile = ["kcp", "reconcile", NAME, "-n", namespace];
    management.kubectl().succeed(reconcile).await?;
    let healthy = ["Nothing is wrong and nothing is planned: 1 of 1"];
    took(
        "health after the remedy",
        says(management, namespace, "why edge", 0, &healthy).await?,
    );
    cluster.delete().await
}

#[test]
fn a_component_that_crashes_after_a_change_is_a_failure_of_the_change() {
    with_controllers("crashing-component", crashing_component);
}

async fn crashing_component(management: &ManagementCluster) -> Result<()> {
    let namespace = "crashing-component";
    let cluster = Cluster::create(management.client(), namespace, NAME, 1, NEW).await?;
    cluster.settled(1).await?;
    let earlier = cluster.machines().await?;
    let earlier = earlier.first().context("no Machine")?;
    let flags = json!({"extraArgs": [{"name": "audit-log-format", "value": "soon"}]});
    let change = json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"apiServer": flags}}}});
    cluster.patch(&change).await?;
    let new = wait::until("the controller creates a Machine", || async {
        let machines = cluster.machines().await?;
        machines
            .into_iter()
            .find(|name| name != earlier)
            .context("no new Machine")
    })
    .await?;
    let crash = async || crash_api_server(management, namespace, &new).await;
    // Otherwise the controller could delete the earlier Machine before the component crashes.
    management
        .without_control_plane_controller(namespace, crash)
        .await?;
    let message = format!(
        "CrashLoopBackOff: back-off 40s; restarted 3 times, last exit code 1: invalid audit log format soon, allowed formats are \"legacy,json\"; Machine {earlier} does \
         not have this change of the spec yet: clusterConfiguration.apiServer.extraArgs"
    );
    let remedy = "write the earlier spec back: kubectl kcp rollout undo edge -n crashing-component";
    took(
        "crashing API server",
        says(management, namespace, "why edge", 1, &[&message, remedy]).await?,
    );
    let began = Instant::now();
    let undo = ["kcp", "rollout", "undo", NAME, "-n", namespace, "--yes"];
    management.kubectl().succeed(undo).await?;
    cluster.settled(1).await?;
    took("health after the remedy", began.elapsed().as_secs_f64());
    ensure!(
        cluster.machines().await? == [earlier.clone()],
        "the earlier Machine does not stay: {:?}",
        cluster.machines().await?
    );
    cluster.delete().await
}

/// Reports the API server of a machine as kubelet does if its process ends again and again. kwok does not change a pod that it
/// once made ready.
pub(crate) async fn crash_api_server(
    management: &ManagementCluster,
    namespace: &str,
    machine: &str,
) -> Result<()> {
    let workload = management.machines().cluster(namespace, NAME).await?;
    let pods: Api<Pod> = Api::namespaced(workload.client()?.clone(), "kube-system");
    let name = format!("kube-apiserver-{machine}");
    let pod = wait::until("the API server's pod is ready", || async {
        let pod = pods.get(&name).await?;
        let conditions = pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions
            .into_iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        ensure!(is_ready, "it is not ready: {pod:?}");
        Ok(pod)
    })
    .await?;
    let container = pod
        .spec
        .and_then(|spec| Some(spec.containers.first()?.name.clone()));
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let status = json!({"status": {
        "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "lastTransitionTime": now}],
        "containerStatuses": [{
            "name": container, "ready": false, "restartCount": 3, "image": "kube-apiserver", "imageID": "",
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": now, "finishedAt": now,
                "message": "invalid audit log format soon, allowed formats are \"legacy,json\"\n"}},
        }],
    }});
    let patched = pods
        .patch_status(&name, &PatchParams::default(), &Patch::Strategic(&status))
        .await;
    patched.context("patching the pod's status").map(drop)
}

#[test]
fn a_topology_that_cannot_be_applied_is_reported_and_never_complete() {
    with_controllers("failing-topology", failing_topology);
}

async fn failing_topology(management: &ManagementCluster) -> Result<()> {
    let namespace = "failing-topology";
    let cluster = Cluster::create_of_class(management.client(), namespace, NAME, 1, OLD).await?;
    cluster.settled(1).await?;
    let object = cluster.get().await?;
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    let name = name.context("no name")?;
    let kubectl = management.kubectl();
    let templates = "standinmachinetemplates.infrastructure.cluster.x-k8s.io";
    let read = ["get", templates, NAME, "-n", namespace, "-o", "json"];
    let mut template: Value = serde_json::from_str(&kubectl.succeed(read).await?.stdout)?;
    *template.get_mut("metadata").context("no metadata")? = json!({"name": NAME, "namespace": namespace});
    kubectl
        .succeed(["delete", templates, NAME, "-n", namespace])
        .await?;
    cluster.patch_topology(&json!({"version": NEW})).await?;

    let failed = [
        "Cluster API's topology controller cannot apply the ClusterClass to the Cluster: ",
        "not found",
        "since:",
    ];
    took(
        "failing topology",
        says(management, namespace, "why cluster/edge", 1, &failed).await?,
    );
    let rollout = kcp(
        management,
        namespace,
        &format!("rollout status {name} --watch=false"),
    )
    .await?;
    let missing = format!(
        "Cluster API's topology controller has not set the control plane's version to {NEW} yet; the version is still {OLD}"
    );
    ensure!(
        rollout.code == 1 && rollout.stdout.contains(&missing),
        "{rollout}"
    );

    let file = kubectl.scratch_file("on-call-template.json");
    std::fs::write(&file, template.to_string())?;
    kubectl
        .succeed(["apply", "-f", &file.display().to_string()])
        .await?;
    // The topology controller waits longer after each failure, unless the Cluster changes.
    kubectl
        .succeed(["annotate", "cluster", NAME, "reconciled=now", "-n", namespace])
        .await?;
    wait::until("the rollout is complete", || async {
        let rollout = kcp(
            management,
            namespace,
            &format!("rollout status {name} --watch=false"),
        )
        .await?;
        ensure!(
            rollout.code == 0 && rollout.stdout.contains("rollout complete"),
            "{rollout}"
        );
        Ok(())
    })
    .await?;
    let version = cluster.get().await?;
    ensure!(
        version.pointer("/status/version") == Some(&json!(NEW)),
        "{version:#}"
    );
    cluster.delete().await
}
