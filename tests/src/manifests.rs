//! YAML manifests, read without losing a field.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionCondition,
};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::Value;

use crate::wait;

/// A definition is served within a second or two of its creation.
const SERVED: Duration = Duration::from_secs(30);

/// All objects of a YAML text.
pub fn parse(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

/// All objects of a YAML file.
pub fn read(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    parse(&text).with_context(|| format!("parsing {}", path.display()))
}

/// The YAML files of a folder, in order of their names.
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

/// Creates a custom resource definition.
pub async fn create_definition(client: &Client, definition: Value) -> Result<()> {
    let kind = ApiResource::erase::<CustomResourceDefinition>(&());
    let object: DynamicObject = serde_json::from_value(definition).context("not a Kubernetes object")?;
    let api = Api::<DynamicObject>::all_with(client.clone(), &kind);
    let name = object.metadata.name.clone().unwrap_or_default();
    api.create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("creating CRD {name}"))?;
    Ok(())
}

/// Waits until the API server serves all definitions that it has.
pub async fn definitions_served(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    wait::until("all CRDs are established", SERVED, || async {
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
