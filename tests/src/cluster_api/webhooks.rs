//! Cluster API's webhook configurations.

use anyhow::{Context as _, Result};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::{PROVIDERS, Provider};
use crate::assets::Assets;
use crate::manifests;

/// Registers the webhooks. `client_config` is the configuration with which an API server calls a provider's webhook at a path.
pub(super) async fn install(
    client: &Client,
    assets: &Assets,
    client_config: impl Fn(&Provider, &str) -> Result<Value>,
) -> Result<()> {
    for provider in &PROVIDERS {
        let file = assets
            .cluster_api(provider.folder, "webhook")
            .join("manifests.yaml");
        for mut configuration in manifests::objects(&file)? {
            let name = format!("{}{}", provider.name_prefix, configuration.name_any());
            configuration.metadata.name = Some(name);
            manifests::redirect_webhooks(&mut configuration, |path| client_config(provider, path))
                .with_context(|| format!("in {}", file.display()))?;
            manifests::create_webhooks(client, &configuration).await?;
        }
    }
    Ok(())
}
