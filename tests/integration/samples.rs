//! The shipped samples, applied with kubectl.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{manifests, products};
use serde_json::{Value, json};

use crate::shared::with_management_cluster;

#[test]
fn rejects_each_bad_sample_with_its_rule() {
    with_management_cluster(async |management| {
        management.create_namespace("samples-bad").await.unwrap();
        let files = manifests::files(&products::workspace().join("manifests/samples/bad")).unwrap();
        assert!(!files.is_empty());
        let mut wrong = Vec::new();
        for file in files {
            let file = file.display().to_string();
            if let Err(error) = rejected(management, &file).await {
                wrong.push(format!("{file}: {error:#}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    });
}

/// `kubectl kcp lint` finds in a file exactly what `kubectl apply` reports: field, value, remedy and rule. Only `lint` shows strings
/// that may be secret.
async fn rejected(management: &ManagementCluster, file: &str) -> Result<()> {
    let kubectl = management.kubectl();
    let configuration = kubectl.scratch_file("admission-configuration.yaml");
    let default = "apiVersion: kubectl-kcp.dev/v1alpha1\nkind: AdmissionConfiguration\n";
    fs::write(&configuration, default).context("writing the configuration")?;
    let configuration = configuration.display().to_string();
    let lint = [
        "kcp",
        "lint",
        "-o",
        "json",
        "-f",
        file,
        "--configuration",
        &configuration,
    ];
    let lint = kubectl.run(lint).await?;
    ensure!(lint.code == 1, "{lint}");
    let report: Value = serde_json::from_str(&lint.stdout).context("parsing lint's report")?;
    let findings = report
        .get("findings")
        .and_then(Value::as_array)
        .context("no findings")?;
    ensure!(!findings.is_empty(), "{lint}");

    let applied = kubectl.run(["apply", "-n", "samples-bad", "-f", file]).await?;
    ensure!(applied.code == 1, "{applied}");
    for finding in findings {
        let text = |name: &str| finding.get(name).and_then(Value::as_str).unwrap_or_default();
        ensure!(text("field").starts_with("spec."), "no field path in {finding}");
        ensure!(
            text("message").ends_with(&format!("({})", text("rule"))),
            "no rule in {finding}"
        );
        let told = format!("{}: {}", text("field"), text("message"));
        let is_told = applied.stderr.contains(&told) || applied.stderr.contains(&without_string(&told));
        ensure!(is_told, "expected: {told}\n{applied}");
    }
    Ok(())
}

/// The message as the webhook writes it, without the string that it found.
fn without_string(message: &str) -> String {
    let parts = message.split_once(": \"");
    let parts = parts.and_then(|(before, string)| Some((before, string.split_once("\": ")?.1)));
    parts.map_or_else(
        || message.to_owned(),
        |(before, after)| format!("{before}: a string: {after}"),
    )
}

/// Of `certs`, only the patches are left out: cert-manager's kinds are not served.
#[test]
fn accepts_the_installation_for_several_nodes_and_for_one() {
    with_management_cluster(async |management| {
        const NAMESPACE: &str = "kcp-webhook-system";
        management.create_namespace(NAMESPACE).await.unwrap();
        let kubectl = management.kubectl();
        let base = products::workspace().join("manifests/base");
        let deployment = async |folder: &Path| {
            let folder = folder.display().to_string();
            let apply = ["apply", "-k", &folder, "--dry-run=server", "-o", "json"];
            let applied = kubectl.succeed(apply).await.unwrap();
            let list: Value = serde_json::from_str(&applied.stdout).unwrap();
            let items = list["items"].as_array().unwrap();
            let item = items.iter().find(|item| item["kind"] == "Deployment");
            item.unwrap()
                .pointer("/spec/template/spec/affinity/podAntiAffinity")
                .cloned()
                .unwrap()
        };
        let term = json!({
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "kcp-webhook"}},
            "matchLabelKeys": ["pod-template-hash"],
        });
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        assert_eq!(deployment(&base).await, required);

        // Kustomize accepts relative paths only.
        let manifests = products::workspace().join("manifests");
        let folder = kubectl.scratch_file("single-node");
        fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(&manifests, folder.join("manifests")).unwrap();
        let kustomization = "resources: [manifests/base]\ncomponents: [manifests/single-node]\n";
        fs::write(folder.join("kustomization.yaml"), kustomization).unwrap();
        let preferred = json!([{"weight": 100, "podAffinityTerm": term}]);
        let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred});
        assert_eq!(deployment(&folder).await, preferred);
    });
}

#[test]
fn accepts_good_samples_and_changes_nothing_the_second_time() {
    with_management_cluster(async |management| {
        management.create_namespace("samples-good").await.unwrap();
        let folder = products::workspace()
            .join("manifests/samples/good")
            .display()
            .to_string();
        let apply = ["apply", "-n", "samples-good", "-f", &folder];
        let first = management.kubectl().succeed(apply).await.unwrap();
        assert!(
            first.stdout.lines().all(|line| line.ends_with(" created")),
            "{first}"
        );
        let second = management.kubectl().succeed(apply).await.unwrap();
        assert_eq!(first.stdout.lines().count(), second.stdout.lines().count());
        assert!(
            second.stdout.lines().all(|line| line.ends_with(" unchanged")),
            "{second}"
        );
    });
}

#[test]
fn sets_the_defaults_of_a_manifest() {
    with_management_cluster(async |management| {
        management.create_namespace("defaults").await.unwrap();
        let sample = products::workspace().join("manifests/samples/good/kubeadmcontrolplane-defaults.yaml");
        let sample = sample.display().to_string();
        let apply = ["apply", "-n", "defaults", "-f", &sample, "-o", "json"];
        let applied = management.kubectl().succeed(apply).await.unwrap();
        let object: Value = serde_json::from_str(&applied.stdout).unwrap();
        assert_eq!(object["spec"]["replicas"], 1);
        assert_eq!(object["spec"]["rollout"]["strategy"]["type"], "RollingUpdate");
        assert_eq!(
            object["spec"]["rollout"]["strategy"]["rollingUpdate"]["maxSurge"],
            1
        );
    });
}

#[test]
fn rejects_scaling_to_an_even_number() {
    with_management_cluster(async |management| {
        management.create_namespace("scale").await.unwrap();
        let kubectl = management.kubectl();
        let sample =
            products::workspace().join("manifests/samples/good/kubeadmcontrolplane-three-replicas.yaml");
        kubectl
            .succeed(["apply", "-n", "scale", "-f", &sample.display().to_string()])
            .await
            .unwrap();
        let scale = async |number: &str| {
            let target = "kubeadmcontrolplane/sample-three-replicas";
            kubectl
                .run(["scale", "-n", "scale", target, &format!("--replicas={number}")])
                .await
                .unwrap()
        };
        for even in ["2", "4"] {
            let denied = scale(even).await;
            assert_eq!(denied.code, 1, "{denied}");
            assert!(denied.stderr.contains("(replicas-even)"), "{denied}");
        }
        let allowed = scale("5").await;
        assert_eq!(allowed.code, 0, "{allowed}");
    });
}
