//! Installs, upgrades, breaks and uninstalls kcp-webhook with its manager, while a client changes a control plane every 100
//! ms. No write is refused, except while no server runs. A review on its way to a server that crashes would be lost, so no write is in
//! progress then.

#![expect(
    clippy::indexing_slicing,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::io::{Write as _, stderr};

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster_api_alone::ClusterApiAlone;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::managed::tunnel::Tunnel;
use kcp_tests::managed::writer::{Counts, Writer, control_planes};
use kcp_tests::managed::{KINDS, Managed};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::objects::{control_plane, write, written};
use crate::shared::with_management_cluster;

const OBJECT: &str = "written";

/// The writes of a step in which nothing changes.
pub(crate) const STEADY: usize = 10;

async fn cluster(management: &ManagementCluster, name: &str) -> Result<(ClusterApiAlone, Managed, Writer)> {
    cluster_with_flags(management, name, &[]).await
}

async fn cluster_with_flags(
    management: &ManagementCluster,
    name: &str,
    flags: &[&str],
) -> Result<(ClusterApiAlone, Managed, Writer)> {
    let cluster = management.another_without_ours_with_flags(name, flags).await?;
    cluster.create_namespace(name).await?;
    let object = control_plane(OBJECT, 3, "v1.34.2");
    written(cluster.kubectl(), "create", &[object], &["-n", name]).await?;
    let managed = Managed::install(management.run(), cluster.api(), cluster.kubectl(), 3).await?;
    let writer = Writer::begin(control_planes(cluster.client(), name), OBJECT);
    Ok((cluster, managed, writer))
}

/// Prints the counts of a step, which libtest would capture.
fn show(step: &str, counts: &Counts) {
    let refused = counts.refused.len();
    let outage = if refused > 0 {
        format!(" for {:.1} s", counts.outage.as_secs_f64())
    } else {
        String::new()
    };
    _ = writeln!(
        stderr(),
        "{step}: {} writes admitted, {refused} refused{outage}",
        counts.admitted
    );
}

pub(crate) async fn steady(writer: &Writer, step: &str) -> Result<()> {
    let counts = writer.step().await;
    show(step, &counts);
    counts.none_refused(step)
}

#[test]
fn an_installation_blocks_no_write_from_the_first_manifest_to_the_last() {
    with_management_cluster(async |management| {
        let lived = life(management).await;
        lived.unwrap();
    });
}

#[expect(clippy::too_many_lines, reason = "each step begins where the last one ended")]
async fn life(management: &ManagementCluster) -> Result<()> {
    const NAME: &str = "installation";
    let (cluster, mut managed, writer) = cluster(management, NAME).await?;
    let kubectl = cluster.kubectl();

    // The cluster cannot pull the image, so nothing of the installation runs.
    writer.admitted(STEADY).await?;
    ensure!(
        managed.configurations().await?.iter().all(Option::is_none),
        "a configuration exists"
    );
    // The manager runs, and no server does.
    managed.start_manager()?;
    wait::until("the manager has tested the webhook", || async {
        let log = managed.manager_log()?;
        ensure!(log.contains("the webhook did not pass its self-test"), "{log}");
        Ok(())
    })
    .await?;
    writer.admitted(STEADY).await?;
    ensure!(
        managed.configurations().await?.iter().all(Option::is_none),
        "a configuration exists"
    );
    steady(&writer, "manifests without an image").await?;

    managed.start_server(1).await?;
    managed.start_server(2).await?;
    let registered = managed.registered().await?;
    let log = managed.manager_log()?;
    ensure!(
        log.contains("the manager registers it when every self-test during the delay has passed"),
        "{log}"
    );
    owned(&managed, &registered).await?;
    wait::until("the API server calls the webhook", || async {
        denies(kubectl, NAME).await
    })
    .await?;
    writer.admitted(STEADY).await?;
    steady(&writer, "installation").await?;

    // As a rolling update with maxUnavailable 0 does it.
    for (new, old) in [(3, 1), (1, 2), (2, 3)] {
        managed.start_server(new).await?;
        managed.stop_server(old).await?;
    }
    managed.stop_manager().await?;
    managed.start_manager()?;
    writer.admitted(STEADY).await?;
    steady(&writer, "upgrade").await?;

    let crash = async {
        managed.kill_server(1).await?;
        // A review that the API server sends before it notices the closed connection is lost, too.
        wait::until("the API server calls the other server", || async {
            denies(kubectl, NAME).await
        })
        .await
    };
    writer.between_writes(crash).await?;
    writer.admitted(STEADY).await?;
    managed.start_server(1).await?;
    writer.admitted(STEADY).await?;
    steady(&writer, "crash of one Pod").await?;

    for number in [1, 2] {
        managed
            .configuration(number)?
            .replace(&[("configuration.yaml", "rules: {no-such: loud")])?;
    }
    wait::until("both servers have read it", || async {
        for number in [1, 2] {
            let log = managed.server_log(number)?;
            ensure!(log.contains("cannot use the configuration"), "{log}");
        }
        Ok(())
    })
    .await?;
    writer.admitted(STEADY).await?;
    denies(kubectl, NAME).await?;
    steady(&writer, "bad configuration").await?;

    rotation(&managed, &writer).await?;
    denies(kubectl, NAME).await?;
    steady(&writer, "new CA").await?;

    for number in [1, 2] {
        managed.kill_server(number).await?;
    }
    writer.refused(STEADY).await?;
    managed.start_server(1).await?;
    writer.admitted(STEADY).await?;
    managed.start_server(2).await?;
    let down = writer.step().await;
    show("both Pods down", &down);
    ensure!(down.refused.len() >= STEADY, "{down:?}");
    ensure!(
        down.refused
            .iter()
            .all(|why| why.contains("failed calling webhook")),
        "{:?}",
        down.refused
    );

    ensure!(managed.delete_owner_and_what_it_owns().await? == KINDS.len());
    writer.admitted(STEADY).await?;
    for number in [1, 2] {
        managed.stop_server(number).await?;
    }
    wait::until("the manager knows that it is being uninstalled", || async {
        let log = managed.manager_log()?;
        ensure!(
            log.contains("the ClusterRole that owns the webhook configurations does not exist"),
            "{log}"
        );
        Ok(())
    })
    .await?;
    writer.admitted(STEADY).await?;
    ensure!(
        managed.configurations().await?.iter().all(Option::is_none),
        "registered again"
    );
    managed.stop_manager().await?;
    steady(&writer, "uninstallation").await
}

/// No garbage collector runs here: the owner reference says what it would do.
async fn owned(managed: &Managed, registered: &[kube::api::DynamicObject; 2]) -> Result<()> {
    let owner = managed.owner().await?;
    for configuration in registered {
        let references = configuration
            .metadata
            .owner_references
            .clone()
            .unwrap_or_default();
        let [reference] = references.as_slice() else {
            anyhow::bail!("{references:?}")
        };
        let is_owner = reference.kind == "ClusterRole"
            && reference.name == "kcp-webhook"
            && Some(&reference.uid) == owner.metadata.uid.as_ref();
        ensure!(is_owner, "{reference:?}");
        ensure!(reference.block_owner_deletion.is_none(), "{reference:?}");
    }
    Ok(())
}

/// Asks for a new CA, and waits until the old one is trusted no longer.
async fn rotation(managed: &Managed, writer: &Writer) -> Result<()> {
    rotation_by_any(managed).await?;
    writer.admitted(STEADY).await?;
    // Every step of the rotation is in the log, in its order.
    let log = managed.manager_log()?;
    let steps = [
        "created the next CA",
        "both webhook configurations trust the next CA",
        "the next CA signs now",
        "issued a serving certificate",
        "removed the retired CA",
    ];
    let mut rest = log.as_str();
    for step in steps {
        let (_, after) = rest
            .split_once(step)
            .with_context(|| format!("{step} is not next in\n{log}"))?;
        rest = after;
    }
    Ok(())
}

async fn rotation_by_any(managed: &Managed) -> Result<()> {
    let [old] = <[String; 1]>::try_from(managed.bundle().await?)
        .ok()
        .context("one CA")?;
    managed.request_rotation().await?;
    wait::until("both configurations trust the old CA and a new one", || async {
        let bundle = managed.bundle().await?;
        ensure!(bundle.len() == 2 && bundle.contains(&old), "{} CAs", bundle.len());
        Ok(())
    })
    .await?;
    wait::until("the old CA is no longer trusted", || async {
        let bundle = managed.bundle().await?;
        ensure!(
            bundle.len() == 1 && !bundle.contains(&old),
            "{} CAs",
            bundle.len()
        );
        Ok(())
    })
    .await
    .with_context(|| managed.manager_log().unwrap_or_default())
}

/// A server dry run of an object that a rule denies.
pub(crate) async fn denies(kubectl: &Kubectl, namespace: &str) -> Result<()> {
    let even = control_plane("even", 4, "v1.34.2");
    let answer = write(kubectl, "create", &[even], &["-n", namespace, "--dry-run=server"]).await?;
    ensure!(
        answer.code == 1 && answer.stderr.contains("(replicas-even)"),
        "{answer}"
    );
    Ok(())
}

async fn admits(kubectl: &Kubectl, namespace: &str) -> Result<()> {
    let even = control_plane("even", 4, "v1.34.2");
    let answer = write(kubectl, "create", &[even], &["-n", namespace, "--dry-run=server"]).await?;
    ensure!(!answer.stderr.contains("(replicas-even)"), "{answer}");
    Ok(())
}

#[test]
fn disable_switches_the_webhook_off_and_enable_restores_it() {
    with_management_cluster(async |management| {
        switched(management).await.unwrap();
    });
}

async fn switched(management: &ManagementCluster) -> Result<()> {
    const NAME: &str = "switched";
    let (cluster, mut managed, writer) = cluster(management, NAME).await?;
    let kubectl = cluster.kubectl();
    managed.start_manager()?;
    managed.start_server(1).await?;
    let before = managed.registered().await?;
    wait::until("the API server calls the webhook", || async {
        denies(kubectl, NAME).await
    })
    .await?;
    shows_no_problem(kubectl).await?;

    let disable = ["kcp", "webhook", "disable", "--reason", "upgrade of Cluster API"];
    let off = kubectl.succeed(disable).await?;
    ensure!(
        off.stdout.lines().count() == 2 && off.stdout.lines().all(|line| line.ends_with(" disabled")),
        "{off}"
    );
    wait::until("the API server no longer calls the webhook", || async {
        admits(kubectl, NAME).await
    })
    .await?;
    let shorter = disable.iter().chain(&["--for=1h"]);
    let again = kubectl.succeed(shorter).await?;
    ensure!(
        again.stdout.lines().all(|line| line.ends_with(" unchanged")),
        "{again}"
    );
    let status = kubectl.run(["kcp", "webhook", "status"]).await?;
    ensure!(
        status.code == 1 && status.stdout.contains("upgrade of Cluster API"),
        "{status}"
    );

    let why = kubectl.run(["kcp", "why", OBJECT, "-n", NAME]).await?;
    let text = why.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(
        text.contains(
            "rules: kcp-webhook checks no changes, because the mutating configuration is disabled since"
        ),
        "{why}"
    );

    // The way out: no server runs, and no write is refused. The manager, started again, leaves it so.
    writer.step().await;
    managed.kill_server(1).await?;
    managed.stop_manager().await?;
    managed.start_manager()?;
    wait::until("the manager runs again", || async {
        let log = managed.manager_log()?;
        ensure!(log.matches("managing the certificates").count() == 2, "{log}");
        Ok(())
    })
    .await?;
    writer.admitted(3 * STEADY).await?;
    steady(&writer, "disabled, without a server").await?;

    // A rotation goes on while the webhook is disabled, so that enabling restores a webhook that works.
    managed.start_server(1).await?;
    rotation(&managed, &writer).await?;
    admits(kubectl, NAME).await?;
    let run = kubectl.succeed(["kcp", "webhook", "enable"]).await?;
    ensure!(run.stdout.lines().all(|line| line.ends_with(" enabled")), "{run}");
    wait::until("the API server calls the webhook again", || async {
        denies(kubectl, NAME).await
    })
    .await?;
    writer.admitted(STEADY).await?;
    steady(&writer, "disabled and enabled, with a new CA").await?;
    let briefly = disable.iter().chain(&["--for=1s"]);
    kubectl.succeed(briefly).await?;
    // The API server may call the webhook for a moment after it is disabled, so a denial proves nothing here.
    wait::until("the manager enables the webhook again", || async {
        let after = managed.configurations().await?;
        for (before, after) in before.iter().zip(&after) {
            let after = after.as_ref().context("the configuration is gone")?;
            ensure!(
                without_bundle(before) == without_bundle(after),
                "{before:?}\n{after:?}"
            );
        }
        Ok(())
    })
    .await?;
    wait::until("the API server calls the webhook once more", || async {
        denies(kubectl, NAME).await
    })
    .await
}

/// The status of a webhook with one Pod.
async fn shows_no_problem(kubectl: &Kubectl) -> Result<()> {
    let status = wait::until("the status has the answer to a canary", || async {
        let status = kubectl.run(["kcp", "webhook", "status", "-o", "json"]).await?;
        ensure!(status.code == 0, "{status}");
        Ok(status)
    })
    .await?;
    let document: Value = serde_json::from_str(&status.stdout)?;
    ensure!(document["problems"] == json!([]), "{status}");
    ensure!(document["canary"]["answered"].is_string(), "{status}");
    ensure!(
        document["pods"] == json!({"namespace": "kcp-webhook-system", "ready": 1, "total": 1}),
        "{status}"
    );
    // Cluster API's mutating webhook, which sets absent replicas, comes after this one.
    let others = document["otherWebhooks"].as_array().cloned().unwrap_or_default();
    let turn = |kind: &str| {
        let of_cluster_api =
            |other: &&Value| other["webhook"] == kind && other["resources"][0] == "kubeadmcontrolplanes";
        others
            .iter()
            .find(of_cluster_api)
            .map(|other| other["turn"].clone())
    };
    ensure!(turn("mutating") == Some(json!("after")), "{status}");
    ensure!(turn("validating") == Some(json!("same-time")), "{status}");
    Ok(())
}

/// Everything that `disable` may change, except for the caBundle, which a rotation changes.
fn without_bundle(configuration: &kube::api::DynamicObject) -> (Value, Value) {
    let mut entries = configuration.data["webhooks"].clone();
    for entry in entries.as_array_mut().into_iter().flatten() {
        entry["clientConfig"]["caBundle"] = Value::Null;
    }
    let annotations = configuration.metadata.annotations.clone().unwrap_or_default();
    (entries, json!(annotations))
}

/// Two managers that act at the same time reach the same result, and then write no more.
#[test]
fn two_managers_create_one_ca_and_a_stable_registration() {
    with_management_cluster(async |management| {
        two_managers(management).await.unwrap();
    });
}

async fn two_managers(management: &ManagementCluster) -> Result<()> {
    let (_cluster, mut managed, writer) = cluster(management, "two-managers").await?;
    managed.start_manager()?;
    let _second = managed.another_manager()?;
    managed.start_server(1).await?;
    managed.registered().await?;
    ensure!(managed.bundle().await?.len() == 1, "more than one CA");
    // A Pod that is not ready serves nothing, so the rotation does not wait for it.
    managed.write_pod_that_is_not_ready("crashed").await?;
    rotation_by_any(&managed).await?;
    // Both managers have made passes when the writer has made its writes: a pass takes place each half second.
    let before = managed.resource_versions().await?;
    writer.admitted(3 * STEADY).await?;
    let after = managed.resource_versions().await?;
    ensure!(before == after, "{before:?}\n{after:?}");
    let log = managed.manager_log()?;
    for once in [
        "created a CA",
        "created the next CA",
        "the next CA signs now",
        "removed the retired CA",
    ] {
        ensure!(log.matches(once).count() == 1, "{once}\n{log}");
    }
    writer.admitted(STEADY).await?;
    steady(&writer, "two managers").await
}

/// The manager reaches the Pods, and the API server does not, as behind a firewall or with a broken konnectivity.
#[test]
fn nothing_that_fails_closed_is_registered_before_the_api_server_reaches_the_webhook() {
    with_management_cluster(async |management| {
        unreached(management).await.unwrap();
    });
}

async fn unreached(management: &ManagementCluster) -> Result<()> {
    const NAME: &str = "unreached";
    let mut tunnel = Tunnel::closed(management.run(), NAME)?;
    let flag = tunnel.flag();
    let (cluster, mut managed, writer) = cluster_with_flags(management, NAME, &[&flag]).await?;
    let kubectl = cluster.kubectl();
    managed.start_manager()?;
    managed.start_server(1).await?;
    logged(
        &managed,
        "so the webhook is not registered; if the Pods of kcp-webhook are ready",
    )
    .await?;
    let [mutating, validating] = managed.configurations().await?;
    let entries = validating.context("no canary")?.data["webhooks"].clone();
    ensure!(
        mutating.is_none() && entries.as_array().is_some_and(|all| all.len() == 1),
        "{entries}"
    );
    ensure!(entries[0]["failurePolicy"] == "Ignore", "{entries}");
    writer.admitted(STEADY).await?;
    steady(&writer, "the API server does not reach the webhook").await?;
    wait::until("the status has the manager's problem", || async {
        let status = kubectl.run(["kcp", "webhook", "status"]).await?;
        let text = status.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let problem = "kcp-webhook manage reports: the API server gets no answer";
        ensure!(status.code == 1 && text.contains(problem), "{status}");
        Ok(())
    })
    .await?;

    tunnel.open()?;
    managed.registered().await?;
    wait::until("the API server calls the webhook", || async {
        denies(kubectl, NAME).await
    })
    .await?;
    writer.admitted(STEADY).await?;
    steady(&writer, "the API server reaches the webhook").await?;

    // What is registered stays, and a person is told.
    tunnel.close().await?;
    logged(
        &managed,
        "so it refuses writes to control planes; if the Pods of kcp-webhook are ready",
    )
    .await?;
    let registered = managed.configurations().await?;
    ensure!(registered.iter().all(Option::is_some), "{registered:?}");
    tunnel.open()?;
    writer.admitted(STEADY).await
}

async fn logged(managed: &Managed, text: &str) -> Result<()> {
    wait::until(&format!("the manager logs {text:?}"), || async {
        let log = managed.manager_log()?;
        ensure!(log.contains(text), "{log}");
        Ok(())
    })
    .await
}
