//! The management cluster has the documented versions and webhooks.

use std::{env, fs};

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use kcp_tests::products;
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;

use crate::shared::with_management_cluster;

#[test]
fn reports_the_versions_in_go_mod() {
    with_management_cluster(async |management| {
        // Programs that others built have other versions.
        let others = ["KUBEBUILDER_ASSETS", "KCP_ASSETS"];
        if others.into_iter().any(|name| env::var_os(name).is_some()) {
            return;
        }
        let version = management
            .kubectl()
            .succeed(["version", "-o", "json"])
            .await
            .unwrap();
        let version: Value = serde_json::from_str(&version.stdout).unwrap();
        let kubernetes = required("k8s.io/kubernetes").unwrap();
        for side in ["clientVersion", "serverVersion"] {
            assert_eq!(version[side]["gitVersion"], kubernetes, "{side}");
        }
    });
}

/// The version of a module in the go.mod of the programs.
fn required(module: &str) -> Option<String> {
    let file = products::workspace().join("tests/envtest/go.mod");
    let text = fs::read_to_string(file).ok()?;
    let version = |line: &str| {
        line.trim()
            .strip_prefix(module)?
            .split_whitespace()
            .next()
            .map(str::to_owned)
    };
    text.lines().find_map(version)
}

/// The API server calls mutating webhooks in the order of their configurations' names, and Cluster API's webhook sets
/// missing replicas.
#[test]
fn calls_our_mutating_webhook_before_cluster_apis() {
    with_management_cluster(async |management| {
        let api: Api<MutatingWebhookConfiguration> = Api::all(management.client().clone());
        let configurations = api.list(&ListParams::default()).await.unwrap().items;
        let asked_by = |webhook: &str| {
            let asked = configurations.iter().find(|configuration| {
                let webhooks = configuration.webhooks.iter().flatten();
                webhooks.map(|webhook| &webhook.name).any(|name| name == webhook)
            });
            asked.unwrap().metadata.name.as_deref().unwrap()
        };
        let ours = asked_by("kubeadmcontrolplanes.mutate.kubectl-kcp.dev");
        let theirs = asked_by("default.kubeadmcontrolplane.controlplane.cluster.x-k8s.io");
        assert!(ours < theirs, "{ours} comes after {theirs}");
    });
}

#[test]
fn another_api_server_on_the_same_etcd_has_its_own_objects() {
    with_management_cluster(async |management| {
        management.create_namespace("only-here").await.unwrap();
        let another = management.another_api_server("another").await.unwrap();
        for (client, here) in [(management.client(), true), (another.client(), false)] {
            let namespaces: Api<Namespace> = Api::all(client.clone());
            assert_eq!(namespaces.get_opt("only-here").await.unwrap().is_some(), here);
        }
    });
}
