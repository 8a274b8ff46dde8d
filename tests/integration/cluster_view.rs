//! The server's caches: while they fill, without permission, and without an API server. The tests also check the
//! server's answers in each state.

#![expect(
    clippy::indexing_slicing,
    reason = "what is not in a JSON object is null, and all of these are our own"
)]

mod client_certificates;
mod memory;
mod reviews;
mod server;
mod unlisted_version;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use kcp_tests::api_server::ApiServer;
use kcp_tests::hive;
use kcp_tests::management_cluster::ManagementCluster;
use kube::Client;
use serde_json::{Value, json};

use self::reviews::{
    control_plane, customization, of_object, of_other_objects, of_scale, of_transition, pool,
};
use self::server::{Server, bind_shipped_role};
use crate::shared::with_management_cluster;

/// The answers that do not depend on the caches.
const OBJECT: &str = "denied by replicas-even";
const TRANSITION: &str = "denied by replicas-dropped";

/// The answers with all caches filled.
const OTHER_OBJECTS: &str = "denied by inventory-shared";
const SCALE: &str = "denied by replicas-even";

/// Creates an object and returns its resourceVersion.
async fn create(client: &Client, object: &Value) -> Result<String> {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let path = format!(
        "/apis/{}/namespaces/{}/{}s",
        text("/apiVersion"),
        text("/metadata/namespace"),
        text("/kind").to_lowercase()
    );
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(object)?)?;
    let created: Value = client
        .request(request)
        .await
        .with_context(|| format!("creating {object}"))?;
    let version = created["metadata"]["resourceVersion"].as_str();
    Ok(version.context("no resourceVersion")?.to_owned())
}

/// Compares the answers to one review of each class.
async fn expect(server: &Server, scale: &Value, expected: [&str; 4]) -> Result<()> {
    let reviews = [of_object(), of_transition(), of_other_objects(), scale.clone()];
    for (review, expected) in reviews.iter().zip(expected) {
        let answer = server.says(review).await?;
        let is_it = match expected.split_once("...") {
            Some((begin, end)) => answer.starts_with(begin) && answer.ends_with(end),
            None => answer == expected,
        };
        ensure!(is_it, "expected {expected:?}, got {answer:?} for {review}");
    }
    Ok(())
}

/// An API server with the kinds that the server watches and one object of each except for Clusters. Returns the control
/// plane's resourceVersion.
async fn furnished(management: &ManagementCluster, name: &str) -> Result<(ApiServer, String)> {
    let definitions = ["kubeadmcontrolplanes", "clusters"];
    let api = management.another_with_definitions(name, &definitions).await?;
    hive::install_definitions(api.client()).await?;
    kcp_tests::manifests::definitions_served(api.client()).await?;
    create(api.client(), &customization("foo")).await?;
    create(api.client(), &pool("first", "foo")).await?;
    let version = create(api.client(), &control_plane("edge")).await?;
    Ok((api, version))
}

const SYNCED: [&str; 5] = [
    "kubeadmcontrolplanes synced, 1 objects",
    "clusters synced, 0 objects",
    "clusterpools synced, 1 objects",
    "clusterdeploymentcustomizations synced, 1 objects",
    "clusterdeployments synced, 0 objects",
];

const FORBIDDEN: [&str; 5] = [
    "kubeadmcontrolplanes not synced: forbidden",
    "clusters not synced: forbidden",
    "clusterpools not synced: forbidden",
    "clusterdeploymentcustomizations not synced: forbidden",
    "clusterdeployments not synced: forbidden",
];

#[test]
fn without_api_access_applies_rules_that_need_none() {
    with_management_cluster(async |management| {
        let server = Server::start_blind(management, management.api()).await.unwrap();
        assert_eq!(server.caches().await.unwrap(), Vec::<String>::new());
        let refused = "503: cannot check the scale of KubeadmControlPlane \"edge\": kcp-webhook has no \
                       API access; give it a service account or --kubeconfig, or set spec.replicas on the object itself";
        let expected = [OBJECT, TRANSITION, "allowed", refused];
        expect(&server, &of_scale("edge", "1"), expected).await.unwrap();
    });
}

#[test]
fn without_its_role_applies_rules_that_need_none_and_reports_it() {
    with_management_cluster(async |management| {
        without_its_role(management).await.unwrap();
    });
}

async fn without_its_role(management: &ManagementCluster) -> Result<()> {
    let (api, version) = furnished(management, "without-role").await?;
    let server = Server::start(management, &api).await?;
    server.has_caches(&FORBIDDEN).await?;
    let scale = of_scale("edge", &version);
    let unread = "allowed; could not read the customizations in the namespace: forbidden; skipped the rules \
                  that need this information; could not read the other ClusterPools: forbidden; skipped the rules that need this information";
    let refused = "503: cannot check the scale of KubeadmControlPlane \"edge\": ...; bind kcp-webhook's \
                   ClusterRole to its service account, or set spec.replicas on the object itself";
    expect(&server, &scale, [OBJECT, TRANSITION, unread, refused]).await?;

    // After one, two and four seconds.
    let restarts = "kcp_webhook_cache_watch_restarts_total{kind=\"clusters\"}";
    server.metric_reaches(restarts, 3).await?;
    ensure!(server.logged(&["WARN", "cannot watch this kind", "\"clusters\"", "forbidden"])? == 1);
    let synced = "kcp_webhook_cache_synced{kind=\"clusters\"}";
    ensure!(server.metric(synced).await? == Some(0));

    bind_shipped_role(&api).await?;
    server.has_caches(&SYNCED).await?;
    ensure!(server.metric(synced).await? == Some(1));
    expect(&server, &scale, [OBJECT, TRANSITION, OTHER_OBJECTS, SCALE]).await
}

#[test]
fn without_its_api_server_applies_rules_that_need_none() {
    with_management_cluster(async |management| {
        without_its_api_server(management).await.unwrap();
    });
}

async fn without_its_api_server(management: &ManagementCluster) -> Result<()> {
    let (mut api, version) = furnished(management, "gone-and-back").await?;
    bind_shipped_role(&api).await?;
    let server = Server::start(management, &api).await?;
    server.has_caches(&SYNCED).await?;
    let known = of_scale("edge", &version);
    expect(&server, &known, [OBJECT, TRANSITION, OTHER_OBJECTS, SCALE]).await?;

    api.kill().await?;
    let down = SYNCED.map(|synced| {
        let kind = synced.split(' ').next().unwrap_or_default();
        format!("{kind} not synced: error")
    });
    server.has_caches(&down.each_ref().map(String::as_str)).await?;
    let unread = "denied by inventory-shared; could not read the customizations in the namespace: error; skipped the rules \
                  that need this information; could not read the other ClusterPools: error; skipped the rules that need this information";
    // The review has the resourceVersion of the cached control plane, so no read is needed.
    expect(&server, &known, [OBJECT, TRANSITION, unread, SCALE]).await?;
    let refused = "503: cannot check the scale of KubeadmControlPlane \"edge\": cannot reach the API server: ...; try again";
    expect(
        &server,
        &of_scale("edge", "1"),
        [OBJECT, TRANSITION, unread, refused],
    )
    .await?;

    api.start_again().await?;
    server.has_caches(&SYNCED).await?;
    expect(&server, &known, [OBJECT, TRANSITION, OTHER_OBJECTS, SCALE]).await
}

#[test]
fn with_control_planes_alone_is_ready_and_denies() {
    with_management_cluster(async |management| {
        with_control_planes_alone(management).await.unwrap();
    });
}

async fn with_control_planes_alone(management: &ManagementCluster) -> Result<()> {
    let api = management
        .another_with_definitions("control-planes-alone", &["kubeadmcontrolplanes"])
        .await?;
    bind_shipped_role(&api).await?;
    let server = Server::start(management, &api).await?;
    server
        .has_caches(&[
            "kubeadmcontrolplanes synced, 0 objects",
            "clusters absent: the API server does not serve this kind",
            "clusterpools absent: the API server does not serve this kind",
            "clusterdeploymentcustomizations absent: the API server does not serve this kind",
            "clusterdeployments absent: the API server does not serve this kind",
        ])
        .await?;
    ensure!(
        server
            .metric("kcp_webhook_cache_synced{kind=\"clusters\"}")
            .await?
            == Some(1)
    );
    let version = create(api.client(), &control_plane("edge")).await?;
    server
        .metric_reaches("kcp_webhook_cache_objects{kind=\"kubeadmcontrolplanes\"}", 1)
        .await?;
    // A kind that is not served has no objects.
    let unknown = "allowed; spec.inventory[0].name: Not found: \"foo\": no customization has this name, so no \
                   cluster can use this entry; create the customization, or correct the name (inventory-name-unknown)";
    let scale = of_scale("edge", &version);
    expect(&server, &scale, [OBJECT, TRANSITION, unknown, SCALE]).await?;
    let absent = "404: cannot check the scale of KubeadmControlPlane \"absent\": not found in the API server that \
                  kcp-webhook reads from; check the object with kubectl get";
    let scale_of_absent = of_scale("absent", &version);
    expect(&server, &scale_of_absent, [OBJECT, TRANSITION, unknown, absent]).await?;

    scale_through_the_api_server(&api, &server).await?;

    // The server checks every thirty seconds whether the kind is served.
    hive::install_definitions(api.client()).await?;
    kcp_tests::manifests::definitions_served(api.client()).await?;
    create(api.client(), &customization("foo")).await?;
    create(api.client(), &pool("first", "foo")).await?;
    let pools = "kcp_webhook_cache_objects{kind=\"clusterpools\"}";
    server.metric_reaches(pools, 1).await?;
    expect(&server, &scale, [OBJECT, TRANSITION, OTHER_OBJECTS, SCALE]).await
}

/// An API server sends the control plane's resourceVersion with a Scale, so that no read is needed.
async fn scale_through_the_api_server(api: &ApiServer, server: &Server) -> Result<()> {
    server.register(api, "kubeadmcontrolplanes/scale").await?;
    let path = format!(
        "/apis/controlplane.cluster.x-k8s.io/v1beta2/namespaces/{}/kubeadmcontrolplanes/edge/scale?dryRun=All",
        reviews::NAMESPACE
    );
    let reads = "kcp_webhook_live_reads_total{result=\"ok\"}";
    kcp_tests::wait::until("the API server asks", || async {
        let before = server.metric(reads).await?;
        let request = Request::patch(&path)
            .header("content-type", "application/merge-patch+json")
            .body(serde_json::to_vec(&json!({"spec": {"replicas": 4}}))?)?;
        let denied = api
            .client()
            .request::<Value>(request)
            .await
            .err()
            .context("it was let through")?;
        ensure!(denied.to_string().contains("(replicas-even)"), "{denied}");
        let after = server.metric(reads).await?;
        ensure!(before == after, "read live: {before:?}, then {after:?}");
        Ok(())
    })
    .await
}
