//! `kubectl kcp version`, and the global flags of the real kubectl.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::objects::written;
use crate::roles;
use crate::shared::with_management_cluster;

/// A Deployment of this test, without a controller that would run it: namespace, name and image. Deployment kcp-webhook is that of
/// the shipped manifests.
const DEPLOYMENT: [&str; 3] = [
    "capi-kubeadm-control-plane-system",
    "capi-kubeadm-control-plane-controller-manager",
    "registry.k8s.io/cluster-api/kubeadm-control-plane-controller:v1.10.4",
];

#[test]
fn versions_are_read_as_far_as_permitted() {
    with_management_cluster(async |management| {
        if let Err(error) = test(management).await {
            panic!("{error:#}");
        }
    });
}

async fn test(management: &ManagementCluster) -> Result<()> {
    let kubectl = management.kubectl();
    let server = kubectl.server_version().await?;

    let bare = version(kubectl, &[], 0).await?;
    ensure!(field(&bare, "plugin", "version")? == json!("0.1.0"), "{bare:#}");
    ensure!(
        field(&bare, "api-server", "version")? == json!(server),
        "{bare:#}"
    );
    ensure!(
        field(&bare, "cluster-api", "apiVersions")? == json!(["v1beta2", "v1beta1"]),
        "{bare:#}"
    );
    ensure!(field(&bare, "hive", "apiVersions")? == json!(["v1"]), "{bare:#}");
    ensure!(field(&bare, "webhook", "version")? == json!("0.1.0"), "{bare:#}");
    ensure!(bare.get("warnings") == Some(&json!([])), "{bare:#}");

    another_version_is_found(management).await?;
    permissions_are_named(management).await?;
    a_dead_server_leaves_the_plugin(management).await
}

/// On an API server of its own: other tests read the version of the managers that run.
async fn another_version_is_found(management: &ManagementCluster) -> Result<()> {
    let other = management.another_without_ours("version").await?;
    let absent = version(other.kubectl(), &[], 0).await?;
    ensure!(
        field(&absent, "kubeadm-control-plane", "version")?.is_null(),
        "{absent:#}"
    );
    // Only the label of clusterctl tells which Deployment it is.
    for deployment in [["elsewhere", "capi-kcp", DEPLOYMENT[2]], DEPLOYMENT] {
        deploy(other.kubectl(), deployment).await?;
        let skewed = version(other.kubectl(), &[], 0).await?;
        let [namespace, name, _] = deployment;
        ensure!(
            field(&skewed, "kubeadm-control-plane", "version")? == json!("v1.10.4")
                && field(&skewed, "kubeadm-control-plane", "detail")?
                    == json!(format!("image of Deployment {namespace}/{name}")),
            "{skewed:#}"
        );
        let warnings = json!([
            "the kubeadm control plane provider has version v1.10.4, but the plugin predicts only what the releases from v1.11.0 to v1.14.2 do"
        ]);
        ensure!(skewed.get("warnings") == Some(&warnings), "{skewed:#}");
    }
    Ok(())
}

async fn run(kubectl: &Kubectl, flags: &[&str], code: i32) -> Result<CommandOutput> {
    let words = ["kcp", "version"].into_iter().chain(flags.iter().copied());
    let ended = kubectl.run(words).await?;
    ensure!(ended.code == code, "exit code {code} expected: {ended}");
    Ok(ended)
}

async fn version(kubectl: &Kubectl, flags: &[&str], code: i32) -> Result<Value> {
    let flags: Vec<&str> = flags.iter().copied().chain(["-o", "json"]).collect();
    let ended = run(kubectl, &flags, code).await?;
    serde_json::from_str(&ended.stdout).with_context(|| format!("{ended}"))
}

fn field(report: &Value, component: &str, field: &str) -> Result<Value> {
    let components = report.pointer("/components").and_then(Value::as_array);
    let found = components
        .into_iter()
        .flatten()
        .find(|found| found["name"] == component);
    let found = found.with_context(|| format!("no {component} in {report:#}"))?;
    Ok(found[field].clone())
}

async fn deploy(kubectl: &Kubectl, [namespace, name, image]: [&str; 3]) -> Result<()> {
    let labels = json!({"cluster.x-k8s.io/provider": "control-plane-kubeadm"});
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": image}]}},
            },
        }),
    ];
    written(kubectl, "apply", &objects, &[]).await?;
    Ok(())
}

/// Without permissions, the rest is read. The shipped role allows everything.
async fn permissions_are_named(management: &ManagementCluster) -> Result<()> {
    let user = "--as=version-reader";
    let refused = run(management.kubectl(), &[user], 2).await?;
    ensure!(refused.stdout.contains("API server"), "{refused}");
    let expected = "error: kcp-webhook: could not read the version: cannot get deployments \"kcp-webhook\" in \
                    namespace \"kcp-webhook-system\": forbidden for user \"version-reader\"";
    ensure!(refused.stderr.contains(expected), "{refused}");

    let mut objects = roles::shipped("versions.yaml")?;
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "version-reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kcp-version-reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "version-reader"}],
    }));
    written(management.kubectl(), "apply", &objects, &[]).await?;
    wait::until("the role allows all reads", || async {
        let allowed = version(management.kubectl(), &[user], 0).await?;
        ensure!(
            field(&allowed, "webhook", "version")? == json!("0.1.0"),
            "{allowed:#}"
        );
        Ok(())
    })
    .await
}

/// Nothing listens on port 1.
async fn a_dead_server_leaves_the_plugin(management: &ManagementCluster) -> Result<()> {
    let dead = "--server=https://127.0.0.1:1";
    let unread = run(management.kubectl(), &[dead], 2).await?;
    ensure!(
        unread.stdout.contains("kubectl-kcp") && unread.stdout.contains("0.1.0"),
        "{unread}"
    );
    ensure!(
        unread
            .stderr
            .starts_with("error: API server: could not read the version: "),
        "{unread}"
    );
    let client = version(management.kubectl(), &[dead, "--client"], 0).await?;
    ensure!(
        field(&client, "plugin", "version")? == json!("0.1.0"),
        "{client:#}"
    );
    Ok(())
}

/// The flags in the output of `options`, by their long names, each with the short one.
fn flags(options: &str) -> BTreeMap<String, Option<String>> {
    let lines = options.lines().map(str::trim);
    let flag = |line: &str| {
        let (short, long) = if let Some(long) = line.strip_prefix("--") {
            (None, long)
        } else {
            let (short, long) = line.split_once(", --")?;
            (Some(short.to_owned()), long)
        };
        let is_of_name = |letter: &char| letter.is_alphanumeric() || *letter == '-';
        Some((long.chars().take_while(is_of_name).collect(), short))
    };
    lines
        .filter(|line| line.starts_with('-'))
        .filter_map(flag)
        .collect()
}

#[test]
fn every_global_flag_of_kubectl_is_a_flag_of_the_plugin() {
    with_management_cluster(async |management| {
        let kubectl = management.kubectl();
        let theirs = flags(&kubectl.succeed(["options"]).await.unwrap().stdout);
        let ours = flags(&kubectl.succeed(["kcp", "options"]).await.unwrap().stdout);
        assert!(theirs.len() > 20, "{theirs:?}");
        for (long, short) in &theirs {
            assert_eq!(ours.get(long), Some(short), "--{long}");
        }
    });
}
