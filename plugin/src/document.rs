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
