//! Hive's definitions. Hive itself does not run: `kubectl kcp pool` works on its objects alone.

use std::path::PathBuf;

use anyhow::Result;
use kube::Client;

use crate::{manifests, products};

/// Where the workspace keeps the definitions for clusters without Hive.
pub fn definitions() -> PathBuf {
    products::workspace().join("manifests/dev/crds")
}

/// Installs the definitions.
pub async fn install_definitions(client: &Client) -> Result<()> {
    for file in manifests::files(&definitions())? {
        for document in manifests::read(&file)? {
            if document
                .get("kind")
                .is_some_and(|kind| kind == "CustomResourceDefinition")
            {
                manifests::create_definition(client, document).await?;
            }
        }
    }
    Ok(())
}
