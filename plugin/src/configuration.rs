//! Reads the webhook's `AdmissionConfiguration`, so that commands apply the same actions as the webhook.

use std::path::Path;

use kcp_rules::{Configuration, configuration::ConfigurationMap, topics};
use serde_saphyr::UserMessageFormatter;

use crate::file;

/// Reads an `AdmissionConfiguration` from a file, or from a manifest of the ConfigMap with that file.
pub fn read(file: &Path) -> Result<Configuration, ConfigurationFileError> {
    let fault = |message: String| ConfigurationFileError {
        path: file.display().to_string(),
        message,
    };
    let mut content = file::read(file).map_err(|error| fault(error.to_string()))?;
    if let Ok(manifest) = serde_saphyr::from_slice::<ConfigurationMap>(&content)
        && let Some(file) = manifest.into_file()
    {
        content = file.into();
    }
    let configuration: Configuration = serde_saphyr::from_slice(&content).map_err(|error| {
        fault(
            error
                .without_snippet()
                .render_with_formatter(&UserMessageFormatter),
        )
    })?;
    configuration
        .validate(topics::is_rule)
        .map_err(|error| fault(error.to_string()))
}

/// The file of an `AdmissionConfiguration` cannot be read or is invalid.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the configuration {path}: {message}")]
pub struct ConfigurationFileError {
    path: String,
    message: String,
}
