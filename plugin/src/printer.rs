//! Prints documents as JSON, YAML, or with kubectl's jsonpath.
//!
//! - [`jsonpath`]: kubectl's templates
//! - [`value`]: prints values like kubectl

pub mod jsonpath;
mod value;

use anyhow::Context as _;
use serde::Serialize;

use crate::terminal::escape_json;

/// The output of `-o json`. Characters that could control the terminal, and invisible characters, are `\u` escapes.
pub fn json(document: &impl Serialize) -> anyhow::Result<String> {
    let mut text =
        escape_json(&serde_json::to_string_pretty(document).context("cannot write JSON")?).into_owned();
    text.push('\n');
    Ok(text)
}

/// The output of `-o yaml`.
pub fn yaml(document: &impl Serialize) -> anyhow::Result<String> {
    let mut text = serde_saphyr::to_string(document).context("cannot write YAML")?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}
