//! Changes by `kubectl kcp`, and their refusal, under real controllers with real etcd members.

use anyhow::{Context as _, Result, bail, ensure};
use kcp_rules::testing::row::merge;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::roles;
use crate::shared::with_controllers;

const NAMESPACE: &str = "changes";
const NAME: &str = "edge";

/// The user who makes the changes.
const OPERATOR: &str = "alice";

#[test]
fn changes_are_guarded_and_recorded_as_events() {
    with_controllers(NAMESPACE, guarded);
}

async fn guarded(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    roles::bind_operator(management.kubectl(), OPERATOR, NAMESPACE).await?;
    a_manifest_is_planned(management, &cluster).await?;
    // The Cluster is paused, because this test checks only what is written.
    cluster.pause(true).await?;
    one_of_two_operators_wins(management, &cluster).await?;
    cluster.patch(&json!({"spec": {"replicas": 3}})).await?;

    let machines = cluster.machines().await?;
    let [_, second, third] = machines.as_slice() else {
        bail!("the Machines are {machines:?}");
    };
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    a_dead_member_blocks_by_its_name(management, &workload, second).await?;
    without_quorum_nothing_is_forced(management, &workload, [second, third]).await?;
    cluster.pause(false).await?;
    cluster.settled(3).await?;
    cluster.delete().await
}

/// Runs the plugin as the operator.
async fn kcp(management: &ManagementCluster, arguments: &[&str]) -> Result<CommandOutput> {
    let whereabouts = ["-n", NAMESPACE, "--as", OPERATOR];
    let kcp = ["kcp"].iter().chain(arguments).chain(&whereabouts);
    management.kubectl().run(kcp).await
}

async fn one_of_two_operators_wins(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let refused = kcp(management, &["scale", NAME, "--replicas", "5"]).await?;
    ensure!(
        refused.code == 1 && refused.stdout.contains("the Cluster is paused"),
        "{refused}"
    );
    let number = wait::until("two operators scale at the same time", || async {
        cluster.patch(&json!({"spec": {"replicas": 3}})).await?;
        two_operators(management).await
    })
    .await?;
    let unexpected = kcp(
        management,
        &["scale", NAME, "--replicas", "9", "--current-replicas", "3"],
    );
    let unexpected = unexpected.await?;
    ensure!(
        unexpected.code == 1
            && unexpected
                .stdout
                .contains(&format!("replicas is {number}, but --current-replicas is 3")),
        "{unexpected}"
    );
    an_event_records_it(management, number).await
}

/// Two operators scale a control plane of three to different numbers. Returns the number that was written.
async fn two_operators(management: &ManagementCluster) -> Result<u32> {
    // Without --force, a paused Cluster is not scaled.
    let scale =
        async |replicas: &str| kcp(management, &["scale", NAME, "--replicas", replicas, "--force"]).await;
    let (five, seven) = tokio::join!(scale("5"), scale("7"));
    let (five, seven) = (five?, seven?);
    let (winner, loser, number) = if five.code == 0 {
        (&five, &seven, 5)
    } else {
        (&seven, &five, 7)
    };
    let scaled = format!("kubeadmcontrolplane/{NAME} scaled from 3 to {number}\n");
    ensure!(winner.code == 0 && winner.stdout.starts_with(&scaled), "{winner}");
    let told = format!(
        "spec.replicas was 3 when this command checked the change, and is now {number}, set by \
            kubectl-kcp"
    );
    ensure!(loser.code == 1 && loser.stdout.contains(&told), "{loser}");
    Ok(number)
}

async fn an_event_records_it(management: &ManagementCluster, replicas: u32) -> Result<()> {
    let events = ["get", "events.events.k8s.io", "-n", NAMESPACE, "-o", "json"];
    let events: Value = serde_json::from_str(&management.kubectl().succeed(events).await?.stdout)?;
    let items = events
        .get("items")
        .and_then(Value::as_array)
        .context("no items")?;
    let note = json!(format!("scaled by {OPERATOR} from 3 to {replicas}"));
    let event = items.iter().find(|event| event.get("note") == Some(&note));
    let event = event.with_context(|| format!("no Event has the note {note}: {items:#?}"))?;
    for (pointer, expected) in [
        ("/reportingController", "kubectl-kcp.dev/kubectl-kcp"),
        ("/reason", "Scaled"),
        ("/regarding/kind", "KubeadmControlPlane"),
        ("/regarding/name", NAME),
    ] {
        ensure!(
            event.pointer(pointer) == Some(&json!(expected)),
            "{pointer}: {event:#}"
        );
    }
    Ok(())
}

/// The control plane as the server has it, except for one field.
async fn a_manifest_is_planned(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let spec = cluster.get().await?.get("spec").cloned().context("no spec")?;
    let file = management.kubectl().scratch_file("changes-plan.json");
    let path = file.display().to_string();
    let in_place = json!({"machineTemplate": {"metadata": {"labels": {"team": "a"}}}});
    for (change, steps, told) in [
        (json!({}), 0, "nothing to do"),
        (in_place, 0, "this change does not replace any Machines"),
        (
            json!({"version": "v1.35.0"}),
            6,
            "spec.version: replaces all outdated Machines",
        ),
    ] {
        let mut spec = spec.clone();
        merge(&mut spec, &change);
        let manifest = json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
            "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec,
        });
        std::fs::write(&file, serde_json::to_vec(&manifest)?)?;
        let planned = wait::until("the operator may read", || async {
            let planned = kcp(management, &["plan", "-f", &path]).await?;
            // ExtensionConfigs have no namespace, and this user's role is bound in one.
            let unread = "warning: could not list ExtensionConfigs: cannot list extensionconfigs in all namespaces: forbidden for \
                          user \"alice\"; the plan assumes that no extension updates Machines in place\n";
            ensure!(planned.code == 0 && planned.stderr == unread, "{planned}");
            Ok(planned)
        })
        .await?;
        let count =
            planned.stdout.matches("  create  ").count() + planned.stdout.matches("  delete  ").count();
        ensure!(
            count == steps && planned.stdout.contains(told),
            "{change}: {planned}"
        );
    }
    Ok(())
}

/// Only etcd shows that the member is dead, because the Cluster is paused. One Machine more or less could cost etcd its
/// quorum, so not even `--force` allows the change.
async fn a_dead_member_blocks_by_its_name(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    dead: &str,
) -> Result<()> {
    workload.inflict(Fault::Kill, dead).await?;
    let named = format!("etcd member {dead} of Machine {dead} does not respond: ");
    for (replicas, why) in [
        (
            "1",
            "so the controller would begin a deletion that never ends: etcd refuses",
        ),
        (
            "5",
            "so the controller would create a Machine that never joins: etcd admits no new member",
        ),
    ] {
        let scale = ["scale", NAME, "--replicas", replicas];
        for force in [&["--dry-run=server"][..], &["--force", "--dry-run=server"]] {
            let refused = kcp(management, &[&scale[..], force].concat()).await?;
            ensure!(
                refused.code == 1
                    && refused.stdout.contains(": refused by kubectl kcp\n")
                    && refused.stdout.contains(&named)
                    && refused.stdout.contains(why)
                    && !refused.stderr.contains("--force"),
                "{refused}"
            );
        }
    }
    let restart = kcp(management, &["plan", NAME, "--restart"]).await?;
    ensure!(restart.code == 1 && restart.stdout.contains(&named), "{restart}");
    Ok(())
}

async fn without_quorum_nothing_is_forced(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    [dead, next]: [&str; 2],
) -> Result<()> {
    workload.inflict(Fault::Kill, next).await?;
    let scale = ["scale", NAME, "--replicas", "5", "--force", "--dry-run=server"];
    wait::until("the loss of quorum is reported", || async {
        let refused = kcp(management, &scale).await?;
        ensure!(
            refused.code == 1 && refused.stdout.contains("etcd has lost quorum"),
            "{refused}"
        );
        Ok(())
    })
    .await?;
    workload.inflict(Fault::Restart, dead).await?;
    workload.inflict(Fault::Restart, next).await
}
