//! Cluster API's custom resource definitions.

use std::collections::{BTreeMap, HashSet};

use anyhow::{Context as _, Result};
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Managers, PROVIDERS, Provider};
use crate::assets::Assets;
use crate::manifests;

/// What we need of `crd/kustomization.yaml`.
#[derive(Deserialize)]
struct Kustomization {
    #[serde(default)]
    labels: Vec<Labels>,
}

#[derive(Deserialize)]
struct Labels {
    pairs: BTreeMap<String, String>,
}

pub(super) async fn install(client: &Client, assets: &Assets, managers: &Managers) -> Result<()> {
    let mut creating = JoinSet::new();
    for provider in &PROVIDERS {
        let webhook = managers.client_config(provider, "/convert")?;
        for definition in complete(assets, provider, &webhook)? {
            let client = client.clone();
            creating.spawn(async move { manifests::create_definition(&client, definition).await });
        }
    }
    while let Some(created) = creating.join_next().await {
        created.context("creating a definition")??;
    }
    Ok(())
}

/// The provider's definitions as `kustomize build` would make them: the generated files carry neither the
/// labels by which the contract's versions are found nor the conversion webhook.
fn complete(assets: &Assets, provider: &Provider, webhook: &Value) -> Result<Vec<Value>> {
    let folder = assets.cluster_api(provider.folder, "crd");
    let kustomization: Kustomization = {
        let value = manifests::read(&folder.join("kustomization.yaml"))?
            .pop()
            .unwrap_or_default();
        serde_json::from_value(value).context("reading crd/kustomization.yaml")?
    };
    let mut labels: BTreeMap<String, String> = kustomization
        .labels
        .into_iter()
        .flat_map(|labels| labels.pairs)
        .collect();
    labels.insert("cluster.x-k8s.io/provider".to_owned(), provider.label.to_owned());

    let mut converted = HashSet::new();
    for patch in manifests::files(&folder.join("patches"))? {
        for document in manifests::read(&patch)? {
            converted.insert(name(&document).to_owned());
        }
    }
    let conversion = json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": webhook},
    });

    let mut definitions = Vec::new();
    for file in manifests::files(&folder.join("bases"))? {
        for mut definition in manifests::read(&file)? {
            if converted.contains(name(&definition)) {
                definition["spec"]["conversion"] = conversion.clone();
            }
            for (label, value) in &labels {
                definition["metadata"]["labels"][label.as_str()] = json!(value);
            }
            definitions.push(definition);
        }
    }
    Ok(definitions)
}

fn name(object: &Value) -> &str {
    object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}
