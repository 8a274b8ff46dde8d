//! `bench.json` in the target folder: the results of each benchmark, by name.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::products;

/// A figure, rounded to three places.
pub fn rounded(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

/// Writes an entry to the workspace's report. It replaces an earlier entry of the same name.
pub fn add(entry: Value) -> Result<()> {
    add_to(&products::target()?.join("bench.json"), entry)
}

fn add_to(file: &Path, entry: Value) -> Result<()> {
    let mut report: Value = match fs::read(file) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("reading {}", file.display()))?,
        Err(error) if error.kind() == ErrorKind::NotFound => json!({}),
        Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
    };
    let report_object = report.as_object_mut().context("the report is not an object")?;
    let results = report_object.entry("results").or_insert_with(|| json!([]));
    let results = results
        .as_array_mut()
        .context("the report's results are no list")?;
    results.retain(|other| other.get("name") != entry.get("name"));
    results.push(entry);
    let text = serde_json::to_string_pretty(&report)?;
    fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};

    use super::add_to;

    #[test]
    fn an_entry_replaces_the_one_of_its_name_alone() {
        let file = std::env::temp_dir().join(format!("kcp-bench-report-{}.json", std::process::id()));
        let _ = fs::remove_file(&file);
        let read = || -> Value { serde_json::from_slice(&fs::read(&file).unwrap()).unwrap() };
        add_to(&file, json!({"name": "a", "is": 1})).unwrap();
        assert_eq!(read(), json!({"results": [{"name": "a", "is": 1}]}));
        fs::write(
            &file,
            r#"{"machine": "m", "results": [{"name": "a"}, {"name": "b"}]}"#,
        )
        .unwrap();
        add_to(&file, json!({"name": "a", "is": 2})).unwrap();
        let results = json!([{"name": "b"}, {"name": "a", "is": 2}]);
        assert_eq!(read(), json!({"machine": "m", "results": results}));
        fs::remove_file(&file).unwrap();
    }
}
