//! Compares documents with the shipped JSON schemas.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::products;
use serde_json::Value;

// The module of the documents' own tests, which is compiled for tests only.
#[expect(
    clippy::expect_used,
    clippy::panic,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]
#[path = "../../plugin/src/testing/schema/validator.rs"]
mod validator;

/// Fails with each violation of the schema in this file of `plugin/schema`.
pub(crate) fn holds(file: &str, document: &Value) -> Result<()> {
    let path = products::workspace().join("plugin/schema").join(file);
    let schema = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let schema = serde_json::from_slice(&schema).with_context(|| format!("parsing {}", path.display()))?;
    let faults = validator::faults(&schema, document);
    ensure!(faults.is_empty(), "violations of {file}: {faults:#?}");
    Ok(())
}
