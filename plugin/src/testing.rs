//! The parts that the tests of several commands share.
//!
//! - [`every_command`]: the output formats of each command
//! - [`schema`]: documents and the JSON schemas in `plugin/schema`

mod every_command;
pub(crate) mod schema;

use serde_json::Value;

use crate::{
    output::{OutputFormats, Report, text},
    terminal::table::Layout,
};

/// Prints a report in each format that all commands have.
pub(crate) fn assert_every_format(report: &impl Report) {
    let printed = |format: &str| {
        let format = OutputFormats::COMMON.parse(format).unwrap();
        text(report, &format, Layout::default()).unwrap()
    };
    let document: Value = serde_json::from_str(&printed("json")).unwrap();
    let yaml: Value = serde_saphyr::from_str(&printed("yaml")).unwrap();
    assert_eq!(document, yaml);
    let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
    assert_eq!(printed("jsonpath={.kind}"), kind);
    assert_eq!(
        printed("jsonpath-as-json={.kind}").contains(&format!("{kind:?}")),
        !kind.is_empty()
    );
    assert!(printed("name").lines().all(|name| !name.is_empty()));
    let (plain, wide) = (report.table(Layout::default()), printed("wide"));
    assert_eq!(plain.is_empty(), wide.is_empty());
}
