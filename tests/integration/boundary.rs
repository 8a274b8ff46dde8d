//! With `authorizeOverrides`, a user without the verb `override` finds no way around a rule.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kcp_tests::admission::Admission;
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::{products, wait};
use serde_json::{Value, json};

use crate::objects::{adopted, control_plane, report, write, written};
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "boundary";
const NAME: &str = "edge";
const KIND: &str = "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io";
const CONFIGURATION: &str =
    "apiVersion: kubectl-kcp.dev/v1alpha1\nkind: AdmissionConfiguration\nauthorizeOverrides: true\n";

/// May write control planes, but not override rules.
const WRITER: &str = "mallory";
/// May do both.
const AUTHORIZED: &str = "jane";

#[test]
fn only_users_with_the_verb_override_can_relax_a_rule() {
    with_management_cluster(async |management| {
        let cluster = management.another_without_ours("boundary").await.unwrap();
        cluster.create_namespace(NAMESPACE).await.unwrap();
        let admission = cluster.install_ours().await.unwrap();
        let kubectl = cluster.kubectl();
        grant(kubectl).await.unwrap();
        let objects = [control_plane(NAME, 3, "v1.34.2")];
        written(kubectl, "create", &objects, &["-n", NAMESPACE])
            .await
            .unwrap();
        let status = json!({"observedGeneration": 1, "replicas": 3, "upToDateReplicas": 3});
        report(kubectl, NAMESPACE, [KIND, NAME], &status).await.unwrap();
        a_forged_owner_is_denied(kubectl).await.unwrap();
        the_writer_is_denied(kubectl, &admission).await.unwrap();
        the_right_of_whoever_set_the_override_counts(kubectl)
            .await
            .unwrap();
    });
}

async fn grant(kubectl: &Kubectl) -> Result<()> {
    let writer = "--verb=get,list,create,update,patch,delete";
    let resources = format!("--resource={KIND}");
    let users = [format!("--user={WRITER}"), format!("--user={AUTHORIZED}")];
    for command in [
        &["clusterrole", "writer", writer, &resources][..],
        &["clusterrole", "override", "--verb=override", &resources],
        &[
            "clusterrolebinding",
            "writer",
            "--clusterrole=writer",
            &users[0],
            &users[1],
        ],
        &[
            "clusterrolebinding",
            "override",
            "--clusterrole=override",
            &users[1],
        ],
    ] {
        kubectl.succeed(["create"].iter().chain(command)).await?;
    }
    let server = products::workspace().join("manifests/components/authorize-overrides/rbac.yaml");
    kubectl
        .succeed(["apply", "-f", &server.display().to_string()])
        .await?;
    Ok(())
}

async fn a_forged_owner_is_denied(kubectl: &Kubectl) -> Result<()> {
    // Cluster API's own webhook does not check this field.
    let mut forged = adopted(control_plane("forged", 3, "v1.34.2"));
    if let Some(spec) = forged.get_mut("spec").and_then(Value::as_object_mut) {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%"}});
        spec.insert("rollout".to_owned(), json!({"strategy": strategy}));
    }
    let denied = write(kubectl, "create", &[forged], &["-n", NAMESPACE, "--as", WRITER]).await?;
    ensure!(
        denied.code == 1 && denied.stderr.ends_with("(max-surge-unsupported)\n"),
        "{denied}"
    );
    Ok(())
}

async fn patch(kubectl: &Kubectl, user: &str, patch: &Value) -> Result<CommandOutput> {
    let patch = patch.to_string();
    let command = [
        "patch",
        KIND,
        NAME,
        "-n",
        NAMESPACE,
        "--as",
        user,
        "--type=merge",
        "-p",
        &patch,
    ];
    kubectl.run(command).await
}

fn override_until(hours: i64) -> Value {
    let until = Timestamp::now() + SignedDuration::from_hours(hours);
    let until = until.strftime("%Y-%m-%dT%H:%M:%SZ");
    json!({"annotations": {"kubectl-kcp.dev/override-rules": format!("replicas-with-upgrade={until}")}})
}

fn scale_and_upgrade() -> Value {
    json!({"replicas": 5, "version": "v1.35.0"})
}

/// Whether the write was denied because of the right alone, together with other rules, or not at all.
fn verdict(output: &CommandOutput) -> &'static str {
    let errors = output
        .stderr
        .lines()
        .filter(|line| !line.starts_with("Warning: "));
    let errors: String = errors.collect();
    match output.code {
        0 => "admitted",
        _ if errors.contains("(replicas-with-upgrade)") => "denied by both",
        _ if errors.contains("(override-not-allowed)") => "denied",
        _ => "failed",
    }
}

async fn the_writer_is_denied(kubectl: &Kubectl, admission: &Admission) -> Result<()> {
    admission
        .configuration()
        .replace(&[("configuration.yaml", CONFIGURATION)])?;
    wait::until("the configuration is in effect", async || {
        let metrics = admission.metrics().await?;
        ensure!(metrics.contains("kcp_webhook_configuration_reloads_total{result=\"success\"} 2\n"));
        Ok(())
    })
    .await?;
    let paused = json!({"annotations": {"cluster.x-k8s.io/paused": ""}});
    let moved = json!({"annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}});
    let orphaned = json!({"labels": {"cluster.x-k8s.io/cluster-name": null}});
    let mut verdicts = Vec::new();
    for (what, change, expected) in [
        (
            "a pause in the same write",
            json!({"metadata": paused, "spec": scale_and_upgrade()}),
            "denied by both",
        ),
        (
            "an override in the same write",
            json!({"metadata": override_until(1), "spec": scale_and_upgrade()}),
            "denied",
        ),
        ("a pause", json!({"metadata": paused}), "denied"),
        ("a move", json!({"metadata": moved}), "denied"),
        ("an override", json!({"metadata": override_until(1)}), "denied"),
        ("no Cluster", json!({"metadata": orphaned}), "denied"),
        (
            "another label",
            json!({"metadata": {"labels": {"team": "edge"}}}),
            "admitted",
        ),
    ] {
        let output = patch(kubectl, WRITER, &change).await?;
        verdicts.push((what, verdict(&output), expected, output.words()));
    }
    ensure!(
        verdicts
            .iter()
            .all(|(_, verdict, expected, _)| verdict == expected),
        "{verdicts:#?}"
    );
    Ok(())
}

async fn the_right_of_whoever_set_the_override_counts(kubectl: &Kubectl) -> Result<()> {
    let set = patch(kubectl, AUTHORIZED, &json!({"metadata": override_until(1)})).await?;
    ensure!(set.code == 0, "{set}");
    let used = patch(kubectl, WRITER, &json!({"spec": scale_and_upgrade()})).await?;
    ensure!(
        used.code == 0
            && used.stderr.contains("overridden until")
            && used.stderr.ends_with("(replicas-with-upgrade)\n"),
        "{used}"
    );
    Ok(())
}
