//! Cluster API's webhook configurations.

use anyhow::{Context as _, Result};
use kube::{Client, ResourceExt as _};

use super::{Managers, PROVIDERS};
use crate::assets::Assets;
use crate::manifests;

pub(super) async fn install(client: &Client, assets: &Assets, managers: &Managers) -> Result<()> {
    for provider in &PROVIDERS {
        let file = assets
            .cluster_api(provider.folder, "webhook")
            .join("manifests.yaml");
        for mut configuration in manifests::objects(&file)? {
            let name = format!("{}{}", provider.name_prefix, configuration.name_any());
            configuration.metadata.name = Some(name);
            manifests::redirect_webhooks(&mut configuration, |path| managers.client_config(provider, path))
                .with_context(|| format!("in {}", file.display()))?;
            manifests::create_webhooks(client, &configuration).await?;
        }
    }
    Ok(())
}
