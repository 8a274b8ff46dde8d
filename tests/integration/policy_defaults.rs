//! With the exported defaults and without our webhook, no write that omits `replicas` scales a control plane.

#![expect(
    clippy::indexing_slicing,
    reason = "what is not in a JSON object is null, and all of these are our own"
)]

use std::fs;

use anyhow::{Context as _, Result, ensure};
use kcp_rules::api::{KubeadmControlPlane, decode};
use kcp_rules::defaulting::SetDefaults as _;
use kcp_rules::testing::case::{Base, V1BETA1, V1BETA2};
use kcp_rules::testing::row::merge;
use kcp_tests::cluster_api_alone::ClusterApiAlone;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::objects::written;
use crate::shared::with_management_cluster;

const KIND: &str = "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io";

#[test]
fn exported_policies_keep_omitted_replicas() {
    with_management_cluster(async |management| {
        let cluster = management.another_without_ours("policy-defaults").await.unwrap();
        all_become(&cluster, "scaled", "1").await.unwrap();
        install(&cluster).await.unwrap();
        all_become(&cluster, "kept", "3").await.unwrap();

        remove_webhooks(cluster.kubectl()).await.unwrap();
        for version in [V1BETA2, V1BETA1] {
            sets_what_the_webhook_sets(&cluster, version).await.unwrap();
        }
    });
}

/// How to write control planes with a number of replicas, and how to omit it in a second write: arguments of kubectl.
struct Way {
    name: &'static str,
    with: &'static [&'static str],
    without: &'static [&'static str],
}

const WAYS: &[Way] = &[
    Way {
        name: "client-side-apply",
        with: &["apply"],
        without: &["apply"],
    },
    Way {
        name: "server-side-apply",
        with: &["apply", "--server-side"],
        without: &["apply", "--server-side"],
    },
    Way {
        name: "replace",
        with: &["create"],
        without: &["replace"],
    },
    Way {
        name: "patch-to-null",
        with: &["create"],
        without: &["patch", "--type=merge", r#"--patch={"spec":{"replicas":null}}"#],
    },
];

/// Ten control planes of three for each way and version. Asserts that all of them end with this number of replicas.
async fn all_become(cluster: &ClusterApiAlone, prefix: &str, replicas: &str) -> Result<()> {
    for way in WAYS {
        for version in [V1BETA2, V1BETA1] {
            let namespace = format!("{prefix}-{}-{version}", way.name);
            cluster.create_namespace(&namespace).await?;
            let found = after_omission(cluster.kubectl(), &namespace, way, version).await?;
            ensure!(found == [replicas; 10], "{namespace}: {found:?}");
        }
    }
    Ok(())
}

/// The replicas of ten control planes of three, after their number has been omitted.
async fn after_omission(
    kubectl: &Kubectl,
    namespace: &str,
    way: &Way,
    version: &'static str,
) -> Result<Vec<String>> {
    let mut objects: Vec<_> = (0..10)
        .map(|number| named(version, &format!("three-{number}"), &json!({})))
        .collect();
    for arguments in [way.with, way.without] {
        let (verb, arguments) = arguments.split_first().context("no verb")?;
        let arguments = [arguments, &["-n", namespace]].concat();
        written(kubectl, verb, &objects, &arguments).await?;
        for object in &mut objects {
            merge(object, &json!({"spec": {"replicas": null}}));
        }
    }
    let path = "jsonpath={.items[*].spec.replicas}";
    let read = kubectl
        .succeed(["get", KIND, "-n", namespace, "-o", path])
        .await?;
    Ok(read.stdout.split(' ').map(str::to_owned).collect())
}

/// A control plane of three with this name and a merge patch.
fn named(version: &'static str, name: &str, patch: &Value) -> Value {
    let mut object = Base::ControlPlane(version).object();
    object["metadata"] = json!({"name": name});
    merge(&mut object, patch);
    object
}

/// Applies the output of `rules export`, and waits until the API server follows it in both API versions.
async fn install(cluster: &ClusterApiAlone) -> Result<()> {
    let kubectl = cluster.kubectl();
    let exported = kubectl
        .succeed(["kcp", "rules", "export", "--format", "map"])
        .await?;
    let file = kubectl.scratch_file("default-policies.yaml");
    fs::write(&file, exported.stdout)?;
    kubectl
        .succeed(["apply", "-f", &file.display().to_string()])
        .await?;
    for version in [V1BETA2, V1BETA1] {
        let mut probe = named(version, &format!("probe-{version}"), &json!({}));
        written(
            kubectl,
            "create",
            std::slice::from_ref(&probe),
            &["-n", "default"],
        )
        .await?;
        merge(&mut probe, &json!({"spec": {"replicas": null}}));
        wait::until("the API server keeps replicas", || async {
            let replaced = dry_run(kubectl, "replace", "default", &probe).await?;
            ensure!(replaced["spec"]["replicas"] == 3, "{replaced}");
            Ok(())
        })
        .await?;
        let without_v = named(version, "without-v", &json!({"spec": {"version": "1.34.2"}}));
        wait::until("the API server follows the policies", || async {
            let created = dry_run(kubectl, "create", "default", &without_v).await?;
            ensure!(created["spec"]["version"] == "v1.34.2", "{created}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn dry_run(kubectl: &Kubectl, verb: &str, namespace: &str, object: &Value) -> Result<Value> {
    let arguments = [
        "-n",
        namespace,
        "--dry-run=server",
        "--validate=ignore",
        "-o",
        "json",
    ];
    let written = written(kubectl, verb, std::slice::from_ref(object), &arguments).await?;
    Ok(serde_json::from_str(&written.stdout)?)
}

/// Removes Cluster API's webhooks, which have defaults of their own, but not its conversion.
async fn remove_webhooks(kubectl: &Kubectl) -> Result<()> {
    let configurations = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
    kubectl.succeed(["delete", configurations, "--all"]).await?;
    let undefaulted = named(
        V1BETA2,
        "undefaulted",
        &json!({"spec": {"kubeadmConfigSpec": null}}),
    );
    wait::until("the API server calls no webhook", || async {
        dry_run(kubectl, "create", "default", &undefaulted).await?;
        Ok(())
    })
    .await
}

/// Compares what the policies set with the default values of the webhook.
async fn sets_what_the_webhook_sets(cluster: &ClusterApiAlone, version: &'static str) -> Result<()> {
    let namespace = format!("defaults-{version}");
    cluster.create_namespace(&namespace).await?;
    let old = named(version, "old", &json!({}));
    let kubectl = cluster.kubectl();
    written(kubectl, "create", std::slice::from_ref(&old), &["-n", &namespace]).await?;
    for patch in patches(version) {
        for (verb, name, old) in [("create", "new", None), ("replace", "old", Some(&old))] {
            let new = named(version, name, &patch);
            let expected = defaulted(old, &new)?;
            let found = dry_run(kubectl, verb, &namespace, &new).await?;
            for field in ["replicas", "version", "rollout", "rolloutStrategy"] {
                ensure!(
                    found["spec"][field] == expected["spec"][field],
                    "{verb} {patch}: expected {expected}, found {found}"
                );
            }
        }
    }
    Ok(())
}

/// Merge patches, each of which omits fields with defaults, or gives other values than those.
fn patches(version: &str) -> Vec<Value> {
    let strategies = [
        json!(null),
        json!({"type": null}),
        json!({"rollingUpdate": null}),
        json!({"type": null, "rollingUpdate": null}),
        json!({"rollingUpdate": {"maxSurge": 0}}),
        json!({"rollingUpdate": {"maxSurge": "100%"}}),
    ];
    let strategies = strategies.map(|strategy| match version {
        V1BETA1 => json!({"spec": {"rolloutStrategy": strategy}}),
        _ => json!({"spec": {"rollout": {"strategy": strategy}}}),
    });
    let mut patches = vec![
        json!({"spec": {"replicas": null, "rollout": null, "rolloutStrategy": null}}),
        json!({"spec": {"version": "1.34.2"}}),
        json!({"spec": {"version": "1.35.0-rc.1+build"}}),
        json!({"spec": {"version": "1.35"}}),
        json!({"spec": {"version": "latest"}}),
        json!({"spec": {"replicas": 5}}),
    ];
    patches.extend(strategies);
    patches
}

/// The object with the defaults of the webhook.
fn defaulted(old: Option<&Value>, new: &Value) -> Result<Value> {
    let (text, old) = (new.to_string(), old.map(Value::to_string));
    let mut new: KubeadmControlPlane = decode(&text)?;
    let old = old.as_deref().map(decode::<KubeadmControlPlane>).transpose()?;
    let operations = new.set_defaults(old.as_ref()).operations;
    let patch: json_patch::Patch = serde_json::from_value(serde_json::to_value(operations)?)?;
    let mut defaulted = serde_json::from_str(&text)?;
    json_patch::patch(&mut defaulted, &patch)?;
    Ok(defaulted)
}
