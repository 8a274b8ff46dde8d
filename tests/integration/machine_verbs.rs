//! `kubectl kcp machine` under real controllers with real etcd members: what it refuses, and what the controllers do
//! otherwise.

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{resources, wait};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::shared::with_controllers;

const NAMESPACE: &str = "machine-verbs";
const NAME: &str = "edge";

/// A Machine with this annotation is not drained until the annotation is removed.
const HOLD: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io/test";

#[test]
fn machine_verbs_respect_quorum_and_pauses() {
    with_controllers(NAMESPACE, changed);
}

async fn changed(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    let machines = cluster.machines().await?;
    let [first, second, _] = machines.as_slice() else {
        bail!("the Machines are {machines:?}");
    };
    unknown_machine_is_an_error(management, first).await?;
    remediate_needs_a_health_check(management, first).await?;
    dead_machine_is_replaced(management, &cluster, [first, second]).await?;
    paused_cluster_is_refused(management, &cluster, first).await?;

    cluster.check_health().await?;
    is_remediated(management, &cluster).await?;
    preferred_machine_is_deleted_first(management, &cluster).await?;
    cluster.delete().await
}

async fn machine(management: &ManagementCluster, arguments: &[&str]) -> Result<CommandOutput> {
    let place = ["-n", NAMESPACE];
    let kcp = ["kcp", "machine"].iter().chain(arguments).chain(&place);
    management.kubectl().run(kcp).await
}

/// Sets or removes an annotation of a Machine.
async fn annotate(
    management: &ManagementCluster,
    machine: &str,
    annotation: &str,
    value: Option<&str>,
) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {annotation: value}}});
    let machines = resources::machines(management.client(), NAMESPACE);
    let patched = machines
        .patch(machine, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    patched.map(drop).context("annotating the Machine")
}

async fn unknown_machine_is_an_error(management: &ManagementCluster, known: &str) -> Result<()> {
    let unknown = machine(management, &["replace", "edge-nobody"]).await?;
    ensure!(
        unknown.code == 2
            && unknown.stderr.contains("machines \"edge-nobody\"")
            && unknown.stderr.contains(&format!(
                "hint: Machines of control planes in namespace {NAMESPACE}: "
            ))
            && unknown.stderr.contains(known),
        "{unknown}"
    );
    Ok(())
}

async fn remediate_needs_a_health_check(management: &ManagementCluster, name: &str) -> Result<()> {
    let refused = machine(management, &["remediate", name]).await?;
    let expected = format!(
        "machine/{name} not marked for remediation: refused by kubectl kcp\n  no MachineHealthCheck selects the Machine: the \
         annotation would have no effect\n"
    );
    ensure!(
        refused.code == 1
            && refused.stdout == expected
            && refused
                .stderr
                .contains(&format!("kubectl kcp machine replace {name} -n {NAMESPACE}")),
        "{refused}"
    );
    let scripted = machine(management, &["remediate", name, "-o", "json"]).await?;
    let document: Value = serde_json::from_str(&scripted.stdout).with_context(|| format!("{scripted}"))?;
    let hint = format!(
        "replace the Machine without a MachineHealthCheck: kubectl kcp machine replace {name} -n {NAMESPACE}"
    );
    let refused = json!({
        "apiVersion": "kubectl-kcp.dev/v1alpha1",
        "kind": "ChangeRefused",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "refusedBy": "kubectl kcp",
        "reasons": ["no MachineHealthCheck selects the Machine: the annotation would have no effect"],
        "hint": hint,
    });
    ensure!(
        scripted.code == 1 && document == refused && scripted.stderr.starts_with(&expected),
        "{scripted}"
    );
    Ok(())
}

async fn dead_machine_is_replaced(
    management: &ManagementCluster,
    cluster: &Cluster,
    [live, dead]: [&str; 2],
) -> Result<()> {
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    workload.inflict(Fault::Kill, dead).await?;
    for arguments in [
        &["replace", live][..],
        &["replace", live, "--force"],
        &["replace", live, "--dry-run=client"],
    ] {
        let refused = machine(management, arguments).await?;
        let reason = format!(
            "machine/{live} not replaced: refused by kubectl kcp\n  without the Machine, etcd loses quorum: 1 of 2 voting \
             members healthy, 2 needed for quorum\n  etcd member {dead} of Machine {dead} does not respond: "
        );
        ensure!(
            refused.code == 1 && refused.stdout.starts_with(&reason),
            "{refused}"
        );
    }
    ensure!(cluster.machines().await?.len() == 3, "one was deleted");

    // The controller's last report on the others may be from the moment of the loss.
    wait::until("the dead one may be replaced", || async {
        let dry = machine(management, &["replace", dead, "--dry-run=server"]).await?;
        let expected =
            format!("machine/{dead} deleted; the controller creates a replacement (server dry run)\n");
        ensure!(dry.code == 0 && dry.stdout.starts_with(&expected), "{dry}");
        Ok(())
    })
    .await?;
    annotate(management, dead, HOLD, Some("")).await?;
    let replaced = machine(management, &["replace", dead, "-o", "json", "--yes"]).await?;
    let expected = format!(
        "warning: the deletion waits until another program removes its deletion hook, annotation \
         {HOLD}\nmachine/{dead} deleted; the controller creates a replacement\n  etcd tolerates no member \
         failure until the replacement has joined\n"
    );
    let leaving: Value = serde_json::from_str(&replaced.stdout).with_context(|| format!("{replaced}"))?;
    ensure!(
        replaced.code == 0
            && replaced.stderr == expected
            && leaving.get("kind") == Some(&json!("Machine"))
            && leaving.pointer("/metadata/name") == Some(&json!(dead))
            && leaving
                .pointer("/metadata/deletionTimestamp")
                .is_some_and(Value::is_string),
        "{replaced}"
    );
    let again = machine(management, &["replace", dead]).await?;
    let expected = format!("machine/{dead} unchanged: already being deleted\n");
    ensure!(again.code == 0 && again.stdout == expected, "{again}");
    an_event_records_it(management, "MachineReplaced", "replacement requested", dead).await?;

    annotate(management, dead, HOLD, None).await?;
    // The Machine may already be deleted.
    let followed = machine(management, &["replace", dead, "--wait=10m"]).await?;
    ensure!(
        followed.code == 2
            || followed
                .stdout
                .contains(&format!("machine/{dead} has been deleted")),
        "{followed}"
    );
    cluster.settled(3).await?;
    let machines = cluster.machines().await?;
    ensure!(!machines.iter().any(|name| name == dead), "{machines:?}");
    Ok(())
}

async fn an_event_records_it(
    management: &ManagementCluster,
    reason: &str,
    done: &str,
    machine: &str,
) -> Result<()> {
    let user = management
        .kubectl()
        .succeed(["auth", "whoami", "-o", "json"])
        .await?;
    let user: Value = serde_json::from_str(&user.stdout)?;
    let user = user
        .pointer("/status/userInfo/username")
        .and_then(Value::as_str)
        .context("nobody")?;
    let events = ["get", "events.events.k8s.io", "-n", NAMESPACE, "-o", "json"];
    let events: Value = serde_json::from_str(&management.kubectl().succeed(events).await?.stdout)?;
    let items = events
        .get("items")
        .and_then(Value::as_array)
        .context("no items")?;
    let ours = items
        .iter()
        .filter(|event| event.get("reportingController") == Some(&json!("kubectl-kcp.dev/kubectl-kcp")))
        .filter(|event| event.get("reason") == Some(&json!(reason)));
    let told: Vec<Value> = ours
        .map(|event| {
            json!([
                event.get("note"),
                event.pointer("/regarding/kind"),
                event.pointer("/regarding/name"),
                event.pointer("/related/kind"),
                event.pointer("/related/name"),
            ])
        })
        .collect();
    let note = format!("{done} by {user} for Machine {machine}");
    let expected = json!([note, "KubeadmControlPlane", NAME, "Machine", machine]);
    ensure!(told == [expected], "{told:?}");
    Ok(())
}

async fn paused_cluster_is_refused(
    management: &ManagementCluster,
    cluster: &Cluster,
    name: &str,
) -> Result<()> {
    cluster.pause(true).await?;
    let refused = machine(management, &["replace", name, "--force"]).await?;
    ensure!(
        refused.code == 1
            && refused
                .stdout
                .contains("the Cluster is paused: no controller reconciles the control plane"),
        "{refused}"
    );
    cluster.pause(false).await?;
    cluster.settled(3).await
}

/// The Machine is remediated by a `MachineHealthCheck` that considers it healthy.
async fn is_remediated(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let machines = cluster.machines().await?;
    let victim = machines.first().context("there is none")?;
    let remediated = machine(management, &["remediate", victim, "--yes"]).await?;
    let expected = format!(
        "machine/{victim} marked for remediation\n  MachineHealthCheck {NAME} reports the Machine as \
         unhealthy, and the control plane controller replaces it\n"
    );
    ensure!(
        remediated.code == 0 && remediated.stdout == expected,
        "{remediated}"
    );
    an_event_records_it(
        management,
        "MachineRemediationRequested",
        "remediation requested",
        victim,
    )
    .await?;
    wait::until(&format!("{victim} is remediated"), || async {
        let now = cluster.machines().await?;
        ensure!(!now.contains(victim) && now.len() == 3, "{now:?}");
        Ok(())
    })
    .await?;
    cluster.settled(3).await
}

/// The preferred Machine is not the oldest, which would be deleted first otherwise.
async fn preferred_machine_is_deleted_first(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let machines = cluster.machines().await?;
    let preferred = machines.last().context("there is none")?;
    for (arguments, told) in [
        (
            &["prefer-delete", preferred][..],
            "is preferred for deletion\n  takes effect at the next scale down or rollout\n  the controller \
             deletes the Machine first\n",
        ),
        (
            &["prefer-delete", preferred],
            "unchanged: already preferred for deletion; takes effect at the next scale down or rollout; the \
             controller deletes the Machine first\n",
        ),
        (
            &["prefer-delete", preferred, "--clear"],
            "is no longer preferred for deletion\n",
        ),
        (
            &["prefer-delete", preferred, "--clear"],
            "unchanged: not preferred for deletion\n",
        ),
        (
            &["prefer-delete", preferred],
            "is preferred for deletion\n  takes effect at the next scale down or rollout\n  the controller \
             deletes the Machine first\n",
        ),
    ] {
        let ended = machine(management, arguments).await?;
        ensure!(
            ended.code == 0 && ended.stdout == format!("machine/{preferred} {told}"),
            "{ended}"
        );
    }
    let named = format!("machine.cluster.x-k8s.io/{preferred}\n");
    let unchanged = machine(management, &["prefer-delete", preferred, "-o", "name"]).await?;
    ensure!(unchanged.code == 0 && unchanged.stdout == named, "{unchanged}");
    // No other Machine is deleted before this one.
    annotate(management, preferred, HOLD, Some("")).await?;
    let scaled = ["kcp", "scale", NAME, "--replicas=1", "--yes", "-n", NAMESPACE];
    management.kubectl().succeed(scaled).await?;
    wait::until("one is being deleted", || async {
        let staying = cluster.machines().await?;
        ensure!(staying.len() < 3, "{staying:?}");
        Ok(())
    })
    .await?;
    let staying = cluster.machines().await?;
    ensure!(
        staying.len() == 2 && !staying.contains(preferred),
        "{staying:?} stay, not {preferred}"
    );
    annotate(management, preferred, HOLD, None).await?;
    cluster.settled(1).await
}
