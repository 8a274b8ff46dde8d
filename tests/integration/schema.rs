//! Documents held against the JSON schemas that are shipped.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::products;
use serde_json::Value;

// The one that the documents' own tests use: it is compiled for tests alone.
#[expect(
    clippy::expect_used,
    clippy::panic,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]
#[path = "../../plugin/src/commands/status/schema/validator.rs"]
mod validator;

/// Fails with everything that is not as the schema in this file of `plugin/schema` says.
pub(crate) fn holds(file: &str, document: &Value) -> Result<()> {
    let path = products::workspace().join("plugin/schema").join(file);
    let schema = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let schema = serde_json::from_slice(&schema).with_context(|| format!("parsing {}", path.display()))?;
    let faults = validator::faults(&schema, document);
    ensure!(faults.is_empty(), "not as {file} says: {faults:#?}");
    Ok(())
}
