//! Cluster API's webhook configurations.

use anyhow::{Context as _, Result};
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::{Managers, PROVIDERS};
use crate::assets::Assets;
use crate::manifests;

pub(super) async fn install(client: &Client, assets: &Assets, managers: &Managers) -> Result<()> {
    for provider in &PROVIDERS {
        let file = assets
            .cluster_api(provider.folder, "webhook")
            .join("manifests.yaml");
        for mut configuration in manifests::read(&file)? {
            let name = configuration
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .unwrap_or_default();
            configuration["metadata"]["name"] = json!(format!("{}{name}", provider.name_prefix));
            let webhooks = configuration.get_mut("webhooks").and_then(Value::as_array_mut);
            for webhook in webhooks.into_iter().flatten() {
                let path = webhook
                    .pointer("/clientConfig/service/path")
                    .and_then(Value::as_str);
                let path = path.with_context(|| format!("a webhook of {} has no path", file.display()))?;
                webhook["clientConfig"] = managers.client_config(provider, path)?;
            }
            create(client, &configuration).await?;
        }
    }
    Ok(())
}

async fn create(client: &Client, configuration: &Value) -> Result<()> {
    let kind = configuration
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let path = format!("/apis/admissionregistration.k8s.io/v1/{}s", kind.to_lowercase());
    let request = Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(configuration)?)?;
    client
        .request::<Value>(request)
        .await
        .with_context(|| format!("creating a {kind}"))?;
    Ok(())
}
