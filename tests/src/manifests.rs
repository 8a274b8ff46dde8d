//! YAML manifests, read without losing a field.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionCondition,
};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::wait;

pub fn parse(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

pub fn read(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    parse(&text).with_context(|| format!("parsing {}", path.display()))
}

/// The YAML files of a folder, sorted by name.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

pub fn objects(path: &Path) -> Result<Vec<DynamicObject>> {
    let read = read(path)?
        .into_iter()
        .map(serde_json::from_value)
        .collect::<Result<_, _>>();
    read.with_context(|| format!("{} has something else than objects", path.display()))
}

pub async fn create_definition(client: &Client, definition: &DynamicObject) -> Result<()> {
    create(
        client,
        &ApiResource::erase::<CustomResourceDefinition>(&()),
        definition,
    )
    .await
}

/// Creates a mutating or a validating webhook configuration.
pub async fn create_webhooks(client: &Client, configuration: &DynamicObject) -> Result<()> {
    let mutating = ApiResource::erase::<MutatingWebhookConfiguration>(&());
    let validating = ApiResource::erase::<ValidatingWebhookConfiguration>(&());
    let kind = configuration.types.as_ref().map(|types| types.kind.as_str());
    let resource = if kind == Some(mutating.kind.as_str()) {
        mutating
    } else {
        validating
    };
    create(client, &resource, configuration).await
}

async fn create(client: &Client, resource: &ApiResource, object: &DynamicObject) -> Result<()> {
    let api = Api::<DynamicObject>::all_with(client.clone(), resource);
    let created = api.create(&PostParams::default(), object).await;
    created.with_context(|| format!("creating the {} {}", resource.kind, object.name_any()))?;
    Ok(())
}

/// Replaces the Service of each webhook by what `client_config` returns for its path, and nothing else.
pub fn redirect_webhooks(
    configuration: &mut DynamicObject,
    client_config: impl Fn(&str) -> Result<Value>,
) -> Result<()> {
    let webhooks = configuration
        .data
        .get_mut("webhooks")
        .and_then(Value::as_array_mut);
    for webhook in webhooks.context("a webhook configuration has no webhooks")? {
        let path = webhook
            .pointer("/clientConfig/service/path")
            .and_then(Value::as_str);
        let config = client_config(path.context("a webhook has no service path")?)?;
        let webhook = webhook.as_object_mut().context("a webhook is not an object")?;
        webhook.insert("clientConfig".to_owned(), config);
    }
    Ok(())
}

/// The configuration with which an API server calls a webhook on a local port. `authority` is PEM.
pub fn local_client_config(port: u16, path: &str, authority: &str) -> Result<Value> {
    let authority = ByteString(authority.as_bytes().to_vec());
    Ok(
        json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": serde_json::to_value(authority)?}),
    )
}

/// Waits until all definitions are established.
pub async fn definitions_served(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    wait::until("all CRDs are established", || async {
        for definition in api.list(&ListParams::default()).await.context("listing CRDs")? {
            let conditions = definition
                .status
                .and_then(|status| status.conditions)
                .unwrap_or_default();
            let established = |condition: &CustomResourceDefinitionCondition| {
                condition.type_ == "Established" && condition.status == "True"
            };
            let name = definition.metadata.name.unwrap_or_default();
            ensure!(conditions.iter().any(established), "{name} is not");
        }
        Ok(())
    })
    .await
}
