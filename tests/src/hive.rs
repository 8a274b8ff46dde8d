//! Hive's definitions. Hive itself does not run: `kubectl kcp pool` works on its objects only.

use std::path::PathBuf;

use anyhow::Result;
use kube::Client;

use crate::{manifests, products};

/// The definitions that this workspace ships for clusters without Hive.
fn definitions() -> PathBuf {
    products::workspace().join("manifests/dev/crds")
}

/// Installs the definitions.
pub async fn install_definitions(client: &Client) -> Result<()> {
    for file in manifests::files(&definitions())? {
        for object in manifests::read(&file)? {
            // The folder also contains the kustomization that lists them.
            if object
                .get("kind")
                .is_some_and(|kind| kind == "CustomResourceDefinition")
            {
                manifests::create_definition(client, &serde_json::from_value(object)?).await?;
            }
        }
    }
    Ok(())
}
