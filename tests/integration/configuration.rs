//! Changes of the rules while the server runs: by its configuration file, and by an override in an emergency.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kcp_tests::admission::Admission;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::objects::{control_plane, write, written};
use crate::shared::with_management_cluster;

const KEY: &str = "configuration.yaml";

fn configuration(rules: &str) -> String {
    format!("apiVersion: kubectl-kcp.dev/v1alpha1\nkind: AdmissionConfiguration\nrules: {rules}\n")
}

#[test]
fn a_changed_configuration_takes_effect_unless_it_is_broken() {
    with_management_cluster(async |management| {
        let cluster = management.another_without_ours("configuration").await.unwrap();
        let admission = cluster.install_ours().await.unwrap();
        followed(cluster.kubectl(), &admission).await.unwrap();
    });
}

async fn followed(kubectl: &Kubectl, admission: &Admission) -> Result<()> {
    let mounted = admission.configuration();
    denies(kubectl).await?;
    for _ in 0..2 {
        mounted.replace(&[(KEY, &configuration("{max-surge-unsupported: deny}"))])?;
        wait::until("the rule denies", async || denies(kubectl).await).await?;
        mounted.replace(&[(KEY, &configuration("{max-surge-unsupported: warn}"))])?;
        wait::until("the rule warns", async || warns(kubectl).await).await?;
    }
    ensure!(in_force(admission).await? == "1");

    mounted.replace(&[(KEY, &configuration("{max-surge-unsupported: loud}"))])?;
    wait::until("the broken file is reported", async || {
        ensure!(in_force(admission).await? == "0");
        Ok(())
    })
    .await?;
    warns(kubectl).await?;

    let rules = "{max-surge-unsupported: warn, max-surge-unsuported: deny}";
    mounted.replace(&[(KEY, &configuration(rules))])?;
    wait::until("the unknown rule is reported", async || {
        ensure!(metric(admission, "kcp_webhook_configuration_unknown_rules").await? == "1");
        Ok(())
    })
    .await?;
    ensure!(in_force(admission).await? == "1");
    warns(kubectl).await?;
    let log = fs::read_to_string(admission.log()).context("reading the server's log")?;
    let told = r#"unknown_rules={"max-surge-unsuported"}"#;
    ensure!(log.contains(told), "{told} is not in\n{log}");

    mounted.replace(&[(KEY, &configuration("{max-surge-unsupported: deny}"))])?;
    wait::until("the rule denies", async || denies(kubectl).await).await?;
    ensure!(in_force(admission).await? == "1");
    Ok(())
}

/// Whether the last configuration that the server read is in effect: 1 or 0.
async fn in_force(admission: &Admission) -> Result<String> {
    metric(admission, "kcp_webhook_configuration_last_reload_success").await
}

async fn metric(admission: &Admission, name: &str) -> Result<String> {
    let metrics = admission.metrics().await?;
    let value = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.with_context(|| format!("not in\n{metrics}"))?.to_owned())
}

async fn warns(kubectl: &Kubectl) -> Result<()> {
    let created = write(kubectl, "create", &[surging()], &["--dry-run=server"]).await?;
    let warnings: Vec<_> = created.stderr.lines().collect();
    let warned = matches!(warnings.as_slice(), [warning] if warning.starts_with("Warning: ")
        && warning.ends_with("(max-surge-unsupported)"));
    ensure!(created.code == 0 && warned, "{created}");
    Ok(())
}

async fn denies(kubectl: &Kubectl) -> Result<()> {
    let created = write(kubectl, "create", &[surging()], &["--dry-run=server"]).await?;
    ensure!(
        created.code == 1 && created.stderr.ends_with("(max-surge-unsupported)\n"),
        "{created}"
    );
    Ok(())
}

fn surging() -> Value {
    let mut object = control_plane("surging", 3, "v1.34.2");
    if let Some(spec) = object.pointer_mut("/spec").and_then(Value::as_object_mut) {
        let strategy = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%"}}});
        spec.insert("rollout".to_owned(), strategy);
    }
    object
}

#[test]
fn an_override_allows_a_denied_write_for_a_time() {
    with_management_cluster(async |management| {
        overridden(management).await.unwrap();
    });
}

async fn overridden(management: &ManagementCluster) -> Result<()> {
    let namespace = "override";
    management.create_namespace(namespace).await?;
    let kubectl = management.kubectl();
    let objects = [control_plane("urgent", 3, "v1.34.2")];
    written(kubectl, "create", &objects, &["-n", namespace]).await?;
    // Before the first Machine, every change is accepted.
    let status =
        json!({"status": {"observedGeneration": 1, "replicas": 3, "upToDateReplicas": 3}}).to_string();
    let object = ["patch", "kubeadmcontrolplane", "urgent", "-n", namespace];
    let patched = ["--subresource=status", "--type=merge", "-p", &status];
    let patched = kubectl.run(object.iter().chain(&patched)).await?;
    ensure!(patched.code == 0, "{patched}");
    let patch = async |patch: Value| {
        let patch = patch.to_string();
        let command = [
            "patch",
            "kubeadmcontrolplane",
            "urgent",
            "-n",
            namespace,
            "--type=merge",
            "-p",
            &patch,
        ];
        kubectl.run(command).await
    };
    let both = json!({"replicas": 5, "version": "v1.35.0"});
    let denied = patch(json!({"spec": both})).await?;
    ensure!(
        denied.code == 1 && denied.stderr.ends_with("(replicas-with-upgrade)\n"),
        "{denied}"
    );

    let until = Timestamp::now() + SignedDuration::from_hours(1);
    let until = until.strftime("%Y-%m-%dT%H:%M:%SZ");
    let annotations = json!({"kubectl-kcp.dev/override-rules": format!("replicas-with-upgrade={until}")});
    let passed = patch(json!({"metadata": {"annotations": annotations}, "spec": both})).await?;
    let warning = format!(
        "Warning: spec.replicas: overridden until {until}: Forbidden: 5: this write scales from 3 and \
         changes version, which starts a rollout; both operations change etcd members; change version first, \
         wait for the rollout, then scale (replicas-with-upgrade)\n"
    );
    ensure!(
        passed.code == 0 && passed.stderr == warning,
        "{passed}\nexpected:\n{warning}"
    );

    let annotations = management.api().audit_annotations("patch", namespace, "urgent")?;
    for annotation in ["warned-by", "overridden-by"] {
        let key = format!("kubeadmcontrolplanes.validate.kubectl-kcp.dev/{annotation}");
        let values: Vec<_> = annotations
            .iter()
            .filter_map(|of_event| of_event.get(&key))
            .collect();
        ensure!(values == [&json!("replicas-with-upgrade")], "{annotations:?}");
    }
    Ok(())
}
