//! The management cluster is what it claims to be.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;

use crate::shared::with_management_cluster;

#[test]
fn reports_the_versions_that_it_was_built_from() {
    with_management_cluster(async |management| {
        let version = management
            .kubectl()
            .succeed(["version", "-o", "json"])
            .await
            .unwrap();
        let version: Value = serde_json::from_str(&version.stdout).unwrap();
        for side in ["clientVersion", "serverVersion"] {
            let git = version[side]["gitVersion"].as_str().unwrap();
            assert!(git.starts_with("v1.") && git != "v1.0.0", "{side}: {git}");
        }
    });
}

/// The API server calls mutating webhooks in order of these names, and Cluster API's fills in replicas.
#[test]
fn asks_our_mutating_webhook_before_cluster_apis() {
    with_management_cluster(async |management| {
        let api: Api<MutatingWebhookConfiguration> = Api::all(management.client().clone());
        let configurations = api.list(&ListParams::default()).await.unwrap();
        let names: Vec<_> = configurations
            .into_iter()
            .filter_map(|configuration| configuration.metadata.name)
            .collect();
        let ours = names.iter().position(|name| name == "admission.kubectl-kcp.dev");
        let theirs = "capi-kubeadm-control-plane-mutating-webhook-configuration";
        let theirs = names.iter().position(|name| name == theirs);
        assert!(ours.unwrap() < theirs.unwrap(), "{names:?}");
    });
}

#[test]
fn another_api_server_on_the_same_etcd_has_its_own_objects() {
    with_management_cluster(async |management| {
        management.create_namespace("only-here").await.unwrap();
        let another = management.another_api_server("another").await.unwrap();
        let namespaces: Api<Namespace> = Api::all(another.client().clone());
        assert!(namespaces.get_opt("default").await.is_ok());
        assert!(namespaces.get_opt("only-here").await.unwrap().is_none());
    });
}
