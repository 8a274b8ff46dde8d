//! Documents as text: JSON, YAML, and kubectl's templates.
//!
//! - [`jsonpath`], [`custom_columns`]: kubectl's templates
//! - [`value`]: values as text, as kubectl writes them

pub mod custom_columns;
pub mod jsonpath;
mod value;

use anyhow::Context as _;
use serde::Serialize;

/// A document as `-o json` prints it.
///
/// # Errors
/// When the document cannot be written as JSON.
pub fn json(document: &impl Serialize) -> anyhow::Result<String> {
    let mut text = serde_json::to_string_pretty(document).context("cannot write JSON")?;
    text.push('\n');
    Ok(text)
}

/// A document as `-o yaml` prints it.
///
/// # Errors
/// When the document cannot be written as YAML.
pub fn yaml(document: &impl Serialize) -> anyhow::Result<String> {
    let mut text = serde_saphyr::to_string(document).context("cannot write YAML")?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}
