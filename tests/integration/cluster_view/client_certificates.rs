//! With `--client-ca-file`, the server reads other objects only for the API server, which proves itself with a client
//! certificate. The API server gets the certificate from an `AdmissionConfiguration`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Result, ensure};
use http::Request;
use kcp_tests::api_server::ApiServer;
use kcp_tests::assets::Assets;
use kcp_tests::hive;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::managed::Managed;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::pki::{Authority, KeyPairFiles, Subject};
use kcp_tests::{manifests, products, wait};
use serde_json::{Value, json};

use super::create;
use super::reviews::{customization, of_other_objects, pool};
use super::server::{Server, bind_shipped_role};
use crate::objects::written;
use crate::shared::with_management_cluster;

const NAME: &str = "client-certificates";

#[test]
fn only_the_api_server_gets_reads_of_other_objects() {
    with_management_cluster(async |management| {
        only_the_api_server(management).await.unwrap();
    });
}

async fn only_the_api_server(management: &ManagementCluster) -> Result<()> {
    let folder = management.run().subfolder(&format!("{NAME}-files"))?;
    let authority = Authority::new("webhook-clients")?;
    let client_ca = authority.write(&folder, "client-ca")?;
    let subject = Subject {
        common_name: "kube-apiserver",
        ..Subject::default()
    };
    let identity = authority.issue(&folder, "kube-apiserver-client", &subject)?;
    let configuration = write_admission_configuration(&folder, &identity)?;
    let flag = format!("--admission-control-config-file={configuration}");
    let api = management.another_with_flags(NAME, &[&flag]).await?;
    hive::install_definitions(api.client()).await?;
    manifests::definitions_served(api.client()).await?;
    create(api.client(), &customization("foo")).await?;
    create(api.client(), &pool("first", "foo")).await?;
    bind_shipped_role(&api).await?;
    let server = Server::start_for_clients_of(management, &api, Some(&client_ca.certificate)).await?;
    server
        .metric_reaches("kcp_webhook_cache_objects{kind=\"clusterpools\"}", 1)
        .await?;

    server.register_shipped(&api, |_| {}).await?;
    let read = "kcp_webhook_live_reads_total{result=\"ok\"}";
    wait::until("the API server's review is based on reads", || async {
        let denial = create_second_pool(&api).await?;
        ensure!(denial.contains("(inventory-shared)"), "{denial}");
        Ok(())
    })
    .await?;
    let before = server.metric(read).await?;
    ensure!(before.is_some_and(|count| count > 0), "{before:?}");

    // The same review from a client without a certificate, as `curl -k` sends it.
    let answer = server.says(&of_other_objects()).await?;
    let unread = "denied by inventory-shared; kcp-webhook read no other objects for this review, because the API server sent no \
                  client certificate; could not read other objects: unverified; skipped the rules that need this information";
    ensure!(answer == unread, "{answer}");
    let after = server.metric(read).await?;
    ensure!(before == after, "{before:?}, then {after:?}");
    Ok(())
}

/// The shipped component on the shipped Deployment, with the names of the guide.
#[test]
fn the_component_mounts_the_ca_and_allows_the_api_servers_name() {
    with_management_cluster(async |management| {
        component(management).await.unwrap();
    });
}

async fn component(management: &ManagementCluster) -> Result<()> {
    const NAME: &str = "client-certificates-component";
    let folder = management.run().subfolder(&format!("{NAME}-files"))?;
    let authority = Authority::new("kcp-webhook-client-ca")?;
    let subject = Subject {
        common_name: "kube-apiserver-kcp-webhook-client",
        ..Subject::default()
    };
    let identity = authority.issue(&folder, "client", &subject)?;
    let configuration = write_admission_configuration(&folder, &identity)?;
    let flag = format!("--admission-control-config-file={configuration}");
    let api = management.another_with_flags(NAME, &[&flag]).await?;
    hive::install_definitions(api.client()).await?;
    manifests::definitions_served(api.client()).await?;
    create(api.client(), &customization("foo")).await?;
    create(api.client(), &pool("first", "foo")).await?;

    let kubectl = Kubectl::new(management.run(), &Assets::locate()?, api.kubeconfig())?;
    let mut managed = Managed::install_with(management.run(), &api, 1, async |service| {
        let mut objects = with_component(&kubectl, &folder).await?;
        for object in objects.iter_mut().filter(|object| object["kind"] == "Service") {
            object["spec"] = service.clone();
        }
        written(&kubectl, "apply", &objects, &[]).await?;
        Ok(objects)
    })
    .await?;
    managed.start_manager()?;
    managed
        .volume(1, "client-ca")?
        .replace(&[("ca.crt", authority.certificate())])?;
    managed.start_server(1).await?;
    managed.registered().await?;
    wait::until("the API server's review is based on reads", || async {
        let denial = create_second_pool(&api).await?;
        ensure!(denial.contains("(inventory-shared)"), "{denial}");
        Ok(())
    })
    .await
}

/// The objects of `manifests/managed` with the component. Kustomize reads relative paths only.
async fn with_component(kubectl: &Kubectl, folder: &Path) -> Result<Vec<Value>> {
    symlink(products::workspace().join("manifests"), folder.join("manifests"))?;
    let kustomization =
        "resources: [manifests/managed]\ncomponents: [manifests/components/client-certificates]\n";
    fs::write(folder.join("kustomization.yaml"), kustomization)?;
    let built = kubectl
        .succeed(["kustomize", &folder.display().to_string()])
        .await?;
    manifests::parse(&built.stdout)
}

/// The denial of a second pool with the same inventory.
async fn create_second_pool(api: &ApiServer) -> Result<String> {
    let request = Request::post("/apis/hive.openshift.io/v1/namespaces/default/clusterpools?dryRun=All")
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&pool("second", "foo"))?)?;
    match api.client().request::<Value>(request).await {
        Ok(created) => Ok(created.to_string()),
        Err(error) => Ok(error.to_string()),
    }
}

/// Makes an API server present a certificate to every webhook. Returns the path of the file.
fn write_admission_configuration(folder: &Path, identity: &KeyPairFiles) -> Result<String> {
    let kubeconfig = folder.join("webhook-kubeconfig.yaml");
    let users = json!([{"name": "*", "user": {
        "client-certificate": identity.certificate, "client-key": identity.key
    }}]);
    // JSON is YAML.
    let text = json!({"apiVersion": "v1", "kind": "Config", "users": users}).to_string();
    fs::write(&kubeconfig, text)?;
    let plugins = ["ValidatingAdmissionWebhook", "MutatingAdmissionWebhook"].map(|name| {
        json!({"name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": kubeconfig
        }})
    });
    let file = folder.join("admission-configuration.yaml");
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins
    });
    fs::write(&file, configuration.to_string())?;
    Ok(file.display().to_string())
}
