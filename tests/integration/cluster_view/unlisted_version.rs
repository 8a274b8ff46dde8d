//! A version of control planes that the API server serves and that our webhook configurations do not list. With
//! `matchPolicy: Equivalent` the API server converts such a write to a listed version, and our webhook reviews it.

use anyhow::{Context as _, Result, ensure};
use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kcp_tests::api_server::ApiServer;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{manifests, wait};
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use super::create;
use super::reviews::{NAMESPACE, control_plane};
use super::server::{Server, bind_shipped_role};
use crate::shared::with_management_cluster;

const UNLISTED: &str = "v1beta3";
const GROUP: &str = "controlplane.cluster.x-k8s.io";

#[test]
fn writes_in_an_unlisted_version_are_reviewed_after_a_conversion() {
    with_management_cluster(async |management| {
        reviewed(management).await.unwrap();
    });
}

async fn reviewed(management: &ManagementCluster) -> Result<()> {
    let api = management
        .another_with_definitions("unlisted-version", &["kubeadmcontrolplanes"])
        .await?;
    serve_unlisted_version(&api).await?;
    create(api.client(), &control_plane("stored")).await?;
    bind_shipped_role(&api).await?;
    let server = Server::start(management, &api).await?;
    server
        .metric_reaches("kcp_webhook_unregistered_version{version=\"v1beta3\"}", 1)
        .await?;
    let readiness = server.readiness().await?;
    ensure!(
        readiness.contains(&format!("[i]unregistered-version/{UNLISTED} ")),
        "{readiness}"
    );

    // The control: with matchPolicy Exact, the API server calls no webhook for this version.
    server
        .register_shipped(&api, |it| set_match_policy(it, "Exact"))
        .await?;
    wait::until("a listed version is reviewed", || async {
        ensure!(write_even(&api, "v1beta2").await?.contains("(replicas-even)"));
        Ok(())
    })
    .await?;
    ensure!(write_even(&api, UNLISTED).await? == "admitted");
    delete_webhooks(&api).await?;
    wait::until("the webhooks are gone", || async {
        ensure!(write_even(&api, "v1beta2").await? == "admitted");
        Ok(())
    })
    .await?;

    server.register_shipped(&api, |_| {}).await?;
    wait::until("a write in an unlisted version is reviewed", || async {
        let answer = write_even(&api, UNLISTED).await?;
        ensure!(
            answer.contains("spec.replicas: Invalid value: 2") && answer.contains("(replicas-even)"),
            "{answer}"
        );
        Ok(())
    })
    .await?;
    let update = Request::patch(path(UNLISTED, "/stored?dryRun=All"));
    let answer = send(&api, update, &json!({"spec": {"replicas": 4}})).await?;
    ensure!(answer.contains("(replicas-even)"), "{answer}");
    let scale = Request::patch(path(UNLISTED, "/stored/scale?dryRun=All"));
    let answer = send(&api, scale, &json!({"spec": {"replicas": 4}})).await?;
    ensure!(answer.contains("(replicas-even)"), "{answer}");
    let scale = Request::patch(path(UNLISTED, "/stored/scale?dryRun=All"));
    let answer = send(&api, scale, &json!({"spec": {"replicas": 5}})).await?;
    ensure!(answer == "admitted", "{answer}");
    Ok(())
}

/// Serves v1beta2 and a third version with the same schema. v1beta1 would need a conversion webhook.
async fn serve_unlisted_version(api: &ApiServer) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(api.client().clone());
    let name = format!("kubeadmcontrolplanes.{GROUP}");
    let mut definition = definitions.get(&name).await?;
    let mut versions = definition.spec.versions;
    versions.retain(|version| version.name == "v1beta2");
    let listed = versions.first().context("v1beta2 is not served")?;
    let unlisted = CustomResourceDefinitionVersion {
        name: UNLISTED.to_owned(),
        storage: false,
        ..listed.clone()
    };
    versions.push(unlisted);
    definition.spec.versions = versions;
    definitions
        .replace(&name, &PostParams::default(), &definition)
        .await?;
    wait::until("the unlisted version is served", || async {
        let list = Request::get(path(UNLISTED, "")).body(Vec::new())?;
        api.client().request::<Value>(list).await?;
        Ok(())
    })
    .await?;
    manifests::definitions_served(api.client()).await
}

fn set_match_policy(configuration: &mut DynamicObject, policy: &str) {
    let webhooks = configuration.data.get_mut("webhooks");
    for webhook in webhooks.and_then(Value::as_array_mut).into_iter().flatten() {
        webhook["matchPolicy"] = json!(policy);
    }
}

async fn delete_webhooks(api: &ApiServer) -> Result<()> {
    let path =
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/admission.kubectl-kcp.dev";
    let request = Request::delete(path).body(Vec::new())?;
    api.client().request::<Value>(request).await?;
    Ok(())
}

fn path(version: &str, rest: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/{NAMESPACE}/kubeadmcontrolplanes{rest}")
}

/// Creates a control plane with two replicas, as a dry run.
async fn write_even(api: &ApiServer, version: &str) -> Result<String> {
    let mut object = control_plane("even");
    object["apiVersion"] = json!(format!("{GROUP}/{version}"));
    object["spec"]["replicas"] = json!(2);
    send(api, Request::post(path(version, "?dryRun=All")), &object).await
}

/// Returns `admitted`, or the message of the denial.
async fn send(api: &ApiServer, request: http::request::Builder, body: &Value) -> Result<String> {
    let is_patch = request.method_ref() == Some(&http::Method::PATCH);
    let content = if is_patch {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = request
        .header("content-type", content)
        .body(serde_json::to_vec(body)?)?;
    match api.client().request::<Value>(request).await {
        Ok(_) => Ok("admitted".to_owned()),
        Err(kube::Error::Api(status)) => Ok(status.message),
        Err(error) => Err(error.into()),
    }
}
