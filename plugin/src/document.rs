//! What all JSON documents have in common that commands print.

use serde::Serialize;

/// `apiVersion` of each of them.
pub const API_VERSION: &str = "kubectl-kcp.dev/v1alpha1";

/// A document as it is printed.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn text(document: &impl Serialize) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    Ok(text)
}

/// The same in YAML.
///
/// # Errors
/// When it cannot be written as YAML.
pub fn yaml(document: &impl Serialize) -> Result<String, serde_saphyr::ser::Error> {
    let mut text = serde_saphyr::to_string(document)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}
