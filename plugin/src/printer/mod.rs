//! The one way from a result to stdout: a report, printed in the format that the user has chosen.
//!
//! - [`jsonpath`], [`custom_columns`]: kubectl's templates, applied to the document of a report
//! - [`value`]: values as text, as kubectl writes them

pub mod custom_columns;
pub mod jsonpath;
mod value;

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use serde_json::Value;

use crate::{
    output::{OutputArguments, OutputFormat, Special},
    terminal::Terminal,
};

/// Room and detail of text for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Cells in a line; none for no limit.
    pub width: Option<usize>,
    /// Whether tables have all their columns.
    pub is_wide: bool,
    /// Whether tables go without their header lines.
    pub no_headers: bool,
}

impl Layout {
    /// The layout for a terminal of this width.
    pub fn new(arguments: &OutputArguments, width: Option<usize>) -> Self {
        Self {
            width,
            is_wide: arguments.is_wide(),
            no_headers: arguments.no_headers,
        }
    }
}

/// The result of a command.
pub trait Report {
    /// Text for people.
    fn table(&self, layout: Layout) -> String;

    /// What `-o json` prints, with `apiVersion` and `kind`.
    fn document(&self) -> impl Serialize;

    /// `RESOURCE.GROUP/NAME` of each object, as `kubectl get -o name` has it.
    fn names(&self) -> Vec<String>;

    /// The text of a format that a single command has; none for any other.
    ///
    /// # Errors
    /// When the text cannot be written.
    fn special(&self, _format: Special) -> Option<anyhow::Result<String>> {
        None
    }
}

/// Prints a report to stdout.
///
/// # Errors
/// When a template does not fit the document, or stdout cannot be written to.
pub fn print(report: &impl Report, arguments: &OutputArguments, terminal: &Terminal) -> anyhow::Result<()> {
    let width = Terminal::size().map(|size| size.width);
    let text = text(report, &arguments.format(), Layout::new(arguments, width))?;
    terminal.print(&text).context("cannot write to stdout")
}

/// A report as it is printed.
///
/// # Errors
/// When a template does not fit the document.
pub fn text(report: &impl Report, format: &OutputFormat, layout: Layout) -> anyhow::Result<String> {
    Ok(match format {
        OutputFormat::Table | OutputFormat::Wide => report.table(layout),
        OutputFormat::Name => lines(&report.names()),
        OutputFormat::Json => json(&report.document())?,
        OutputFormat::Yaml => yaml(&report.document())?,
        OutputFormat::JsonPath(template) => template.text(&value(report)?)?,
        OutputFormat::JsonPathAsJson(template) => template.json(&value(report)?)?,
        OutputFormat::CustomColumns(columns) => columns.text(&value(report)?, !layout.no_headers)?,
        OutputFormat::Special(format) => report
            .special(*format)
            .ok_or_else(|| anyhow!("this result has no such output format"))??,
    })
}

fn value(report: &impl Report) -> anyhow::Result<Value> {
    serde_json::to_value(report.document()).context("cannot write JSON")
}

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

fn lines(names: &[String]) -> String {
    names.iter().fold(String::new(), |text, name| text + name + "\n")
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::json;

    use super::{Layout, Report, text};
    use crate::output::{Formats, OutputFormat, Special};

    struct Pools;

    impl Report for Pools {
        fn table(&self, layout: Layout) -> String {
            format!("{layout:?}\n")
        }

        fn document(&self) -> impl Serialize {
            json!({
                "apiVersion": "kubectl-kcp.dev/v1alpha1",
                "kind": "PoolStatusList",
                "items": [{"metadata": {"name": "a"}, "free": 2}, {"metadata": {"name": "bee"}}],
            })
        }

        fn names(&self) -> Vec<String> {
            vec!["pool/a".to_owned(), "pool/bee".to_owned()]
        }

        fn special(&self, format: Special) -> Option<anyhow::Result<String>> {
            (format == Special::Env).then(|| Ok("A=1\n".to_owned()))
        }
    }

    fn printed(format: &str) -> String {
        let format = Formats::LEASE.parse(format).unwrap();
        text(&Pools, &format, Layout::default()).unwrap()
    }

    #[test]
    fn each_format_is_its_own() {
        for (format, expected) in [
            ("name", "pool/a\npool/bee\n"),
            ("jsonpath={.items[*].metadata.name}", "a bee"),
            ("jsonpath-as-json={.items[0].free}", "[\n    2\n]\n"),
            (
                "custom-columns=NAME:.metadata.name,FREE:.free",
                "NAME   FREE\na      2\nbee    <none>\n",
            ),
            ("env", "A=1\n"),
        ] {
            assert_eq!(printed(format), expected, "{format}");
        }
        let of_yaml: serde_json::Value = serde_saphyr::from_str(&printed("yaml")).unwrap();
        let of_json: serde_json::Value = serde_json::from_str(&printed("json")).unwrap();
        assert_eq!(of_json, of_yaml);
        assert!(printed("json").ends_with("}\n"));
    }

    #[test]
    fn text_for_people_is_laid_out() {
        let layout = Layout {
            width: Some(80),
            is_wide: true,
            no_headers: true,
        };
        let shown = text(&Pools, &OutputFormat::Wide, layout).unwrap();
        assert_eq!(shown, format!("{layout:?}\n"));
    }

    #[test]
    fn a_format_that_a_report_has_not_is_an_error() {
        let format = OutputFormat::Special(Special::Github);
        assert!(text(&Pools, &format, Layout::default()).is_err());
    }
}
