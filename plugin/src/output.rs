//! Prints the result of a command to stdout, in the format that the user has chosen with `-o`.
//!
//! - [`format`]: parses the name of a format

pub mod format;

use std::borrow::Cow;

use anyhow::{Context as _, anyhow};
use clap::Args;
pub use format::{CommandFormat, OutputFormat, OutputFormats};
use serde::Serialize;
use serde_json::Value;

use crate::{
    printer::{json, yaml},
    terminal::{Terminal, escape, escape_json, escape_text, table::Layout},
};

/// The flags that choose the output format.
#[derive(Clone, Debug, Default, Args)]
pub struct OutputArguments {
    /// Output format, such as json, name or wide: the command options lists all [default: text]
    #[arg(short, long, value_name = "FORMAT", value_parser = OutputFormats::COMMON, hide_possible_values = true)]
    pub output: Option<OutputFormat>,

    /// Print tables without their header lines
    #[arg(long)]
    pub no_headers: bool,
}

impl OutputArguments {
    /// The chosen output format; text if the user chose none.
    pub fn format(&self) -> OutputFormat {
        self.output.clone().unwrap_or_default()
    }

    /// Whether stdout gets text for people. Otherwise remarks go to stderr, so that stdout gets only the document.
    pub fn is_text(&self) -> bool {
        matches!(self.output, None | Some(OutputFormat::Table | OutputFormat::Wide))
    }

    /// How to lay out text on a terminal of this width; `None` means that stdout is not a terminal.
    pub fn layout(&self, width: Option<usize>) -> Layout {
        Layout {
            width,
            is_wide: self.output == Some(OutputFormat::Wide),
            no_headers: self.no_headers,
        }
    }
}

/// The result of a command, which can be printed in each output format.
pub trait Report {
    fn table(&self, layout: Layout) -> String;

    /// The JSON document for `-o json`, with `apiVersion` and `kind`.
    fn document(&self) -> impl Serialize;

    /// The objects as `RESOURCE.GROUP/NAME`, as `kubectl get -o name` prints them.
    fn names(&self) -> Vec<String>;

    /// The output in a format that only this command has; `None` for the other formats.
    fn special(&self, _format: CommandFormat) -> Option<anyhow::Result<String>> {
        None
    }
}

/// Prints the result of a command to stdout.
pub fn print(report: &impl Report, arguments: &OutputArguments, terminal: &Terminal) -> anyhow::Result<()> {
    let width = Terminal::size().map(|size| size.width);
    let format = arguments.format();
    let text = text(report, &format, arguments.layout(width))?;
    let text = if width.is_some() {
        for_terminal(&format, &text)
    } else {
        text.into()
    };
    terminal.print(&text).context("cannot write to stdout")
}

/// The text for a terminal. jsonpath and YAML contain the raw strings, as in kubectl, so that scripts get the values.
fn for_terminal<'t>(format: &OutputFormat, text: &'t str) -> Cow<'t, str> {
    match format {
        OutputFormat::JsonPath(_) | OutputFormat::Yaml => escape_text(text),
        _ => text.into(),
    }
}

/// The text of a report in this format. Fails if a template does not match the document.
pub fn text(report: &impl Report, format: &OutputFormat, layout: Layout) -> anyhow::Result<String> {
    Ok(match format {
        OutputFormat::Table | OutputFormat::Wide => report.table(layout),
        OutputFormat::Name => lines(&report.names()),
        OutputFormat::Json => json(&report.document())?,
        OutputFormat::Yaml => yaml(&report.document())?,
        OutputFormat::JsonPath(template) => template.text(&value(report)?)?,
        OutputFormat::JsonPathAsJson(template) => escape_json(&template.json(&value(report)?)?).into_owned(),
        OutputFormat::Special(format) => report
            .special(*format)
            .ok_or_else(|| anyhow!("the output format is not supported for this result"))??,
    })
}

fn value(report: &impl Report) -> anyhow::Result<Value> {
    serde_json::to_value(report.document()).context("cannot write JSON")
}

fn lines(names: &[String]) -> String {
    names
        .iter()
        .fold(String::new(), |text, name| text + &escape(name) + "\n")
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches as _, error::ErrorKind};
    use serde::Serialize;
    use serde_json::json;

    use super::{
        CommandFormat, Layout, OutputArguments, OutputFormat, OutputFormats, Report, for_terminal, text,
    };

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

        fn special(&self, format: CommandFormat) -> Option<anyhow::Result<String>> {
            (format == CommandFormat::Env).then(|| Ok("A=1\n".to_owned()))
        }
    }

    fn printed(format: &str) -> String {
        let format = OutputFormats::LEASE.parse(format).unwrap();
        text(&Pools, &format, Layout::default()).unwrap()
    }

    #[test]
    fn the_output_of_each_format() {
        for (format, expected) in [
            ("name", "pool/a\npool/bee\n"),
            ("jsonpath={.items[*].metadata.name}", "a bee"),
            ("jsonpath-as-json={.items[0].free}", "[\n    2\n]\n"),
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
    fn documents_contain_raw_strings_for_scripts_and_escaped_ones_for_a_terminal() {
        struct Name(&'static str);

        impl Report for Name {
            fn table(&self, _: Layout) -> String {
                String::new()
            }

            fn document(&self) -> impl Serialize {
                json!({ "name": self.0 })
            }

            fn names(&self) -> Vec<String> {
                Vec::new()
            }
        }

        let name = "a\u{9b}\u{200b}\u{202e}";
        let shown = |format: &str| {
            let format: OutputFormat = OutputFormats::COMMON.parse(format).unwrap();
            let text = text(&Name(name), &format, Layout::default()).unwrap();
            (text.clone(), for_terminal(&format, &text).into_owned())
        };
        let (raw, escaped) = shown("jsonpath={.name}");
        assert_eq!(
            (raw.as_str(), escaped.as_str()),
            (name, "a\\u{9b}\\u{200b}\\u{202e}")
        );
        let json = "{\n  \"name\": \"a\\u009b\\u200b\\u202e\"\n}\n".to_owned();
        assert_eq!(shown("json"), (json.clone(), json));
        let (raw, escaped) = shown("yaml");
        let read: serde_json::Value = serde_saphyr::from_str(&raw).unwrap();
        assert_eq!(read, json!({ "name": name }));
        assert!(!raw.contains('\u{9b}'), "{raw}: kubectl refuses to print it raw");
        assert!(escaped.is_ascii(), "{escaped}");
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
    fn an_unsupported_format_is_an_error() {
        let format = OutputFormat::Special(CommandFormat::Github);
        assert!(text(&Pools, &format, Layout::default()).is_err());
    }

    fn parse(words: &[&str]) -> Result<OutputArguments, clap::Error> {
        let command = OutputArguments::augment_args(Command::new("status"));
        let words = std::iter::once("status").chain(words.iter().copied());
        OutputArguments::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn the_default_is_text_for_people() {
        let arguments = parse(&[]).unwrap();
        assert_eq!(arguments.format(), OutputFormat::Table);
        assert!(arguments.is_text());
        assert_eq!(arguments.layout(None), Layout::default());
        let arguments = parse(&["-owide", "--no-headers"]).unwrap();
        assert!(arguments.is_text());
        let layout = Layout {
            width: Some(80),
            is_wide: true,
            no_headers: true,
        };
        assert_eq!(arguments.layout(Some(80)), layout);
        assert!(!parse(&["-o", "json"]).unwrap().is_text());
    }

    #[test]
    fn an_unknown_format_is_an_error_of_usage() {
        let error = parse(&["-o", "xml"]).unwrap_err();
        assert_eq!((error.kind(), error.exit_code()), (ErrorKind::ValueValidation, 2));
        let text = error.to_string();
        let expected = "error: invalid value 'xml' for '--output <FORMAT>': unable to match a printer";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn the_help_leaves_the_list_of_formats_to_options() {
        let mut command = OutputArguments::augment_args(Command::new("status"));
        let help = command.render_long_help().to_string();
        for word in ["json", "jsonpath=TEMPLATE"] {
            assert!(!help.contains(&format!("- {word}:")), "{help}");
            assert!(OutputFormats::COMMON.list().contains(&format!("  {word} ")));
        }
    }
}
