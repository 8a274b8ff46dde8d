//! Cluster API's custom resource definitions.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use kube::api::DynamicObject;
use kube::{Client, ResourceExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{CLUSTERCTL_LABEL, PROVIDERS, Provider};
use crate::assets::Assets;
use crate::manifests;

/// The fields of `crd/kustomization.yaml` that we read.
#[derive(Deserialize)]
struct Kustomization {
    #[serde(default)]
    labels: Vec<Labels>,
}

#[derive(Deserialize)]
struct Labels {
    pairs: BTreeMap<String, String>,
}

/// Installs the definitions. `client_config` is the configuration with which an API server calls a provider's webhook at a path.
pub(super) async fn install(
    client: &Client,
    assets: &Assets,
    client_config: impl Fn(&Provider, &str) -> Result<Value>,
) -> Result<()> {
    let mut creating = JoinSet::new();
    for provider in &PROVIDERS {
        let webhook = client_config(provider, "/convert")?;
        for definition in complete(assets, provider, &webhook)? {
            let client = client.clone();
            creating.spawn(async move { manifests::create_definition(&client, &definition).await });
        }
    }
    while let Some(created) = creating.join_next().await {
        created.context("creating a definition")??;
    }
    Ok(())
}

/// See [`super::install_unconverted`].
pub(super) async fn install_unconverted(client: &Client, assets: &Assets, plurals: &[&str]) -> Result<()> {
    for provider in &PROVIDERS {
        for file in manifests::files(&assets.cluster_api(provider.folder, "crd").join("bases"))? {
            for definition in manifests::objects(&file)? {
                let plural = definition
                    .data
                    .pointer("/spec/names/plural")
                    .and_then(Value::as_str);
                if plural.is_some_and(|plural| plurals.contains(&plural)) {
                    manifests::create_definition(client, &definition).await?;
                }
            }
        }
    }
    manifests::definitions_served(client).await
}

/// The provider's definitions as `kustomize build` would print them. The generated files lack the labels that identify
/// the contract's versions, and the conversion webhook.
fn complete(assets: &Assets, provider: &Provider, webhook: &Value) -> Result<Vec<DynamicObject>> {
    let folder = assets.cluster_api(provider.folder, "crd");
    let mut labels = labels(&folder.join("kustomization.yaml"))?;
    labels.insert("cluster.x-k8s.io/provider".to_owned(), provider.label.to_owned());
    labels.insert(CLUSTERCTL_LABEL.to_owned(), String::new());
    let mut converted = HashSet::new();
    for patch in manifests::files(&folder.join("patches"))? {
        converted.extend(
            manifests::objects(&patch)?
                .into_iter()
                .map(|patch| patch.name_any()),
        );
    }
    let conversion = json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": webhook},
    });

    let mut definitions = Vec::new();
    for file in manifests::files(&folder.join("bases"))? {
        for mut definition in manifests::objects(&file)? {
            definition.labels_mut().extend(labels.clone());
            if converted.contains(&definition.name_any()) {
                let spec = definition.data.get_mut("spec").and_then(Value::as_object_mut);
                let spec = spec.with_context(|| format!("a definition in {} has no spec", file.display()))?;
                spec.insert("conversion".to_owned(), conversion.clone());
            }
            definitions.push(definition);
        }
    }
    Ok(definitions)
}

fn labels(kustomization: &Path) -> Result<BTreeMap<String, String>> {
    let value = manifests::read(kustomization)?.pop().unwrap_or_default();
    let kustomization: Kustomization =
        serde_json::from_value(value).with_context(|| format!("reading {}", kustomization.display()))?;
    Ok(kustomization
        .labels
        .into_iter()
        .flat_map(|labels| labels.pairs)
        .collect())
}
