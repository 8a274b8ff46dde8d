//! Parses the value of `-o`, with kubectl's format names and error messages.

use std::ffi::OsStr;

use clap::{
    Arg, Command,
    builder::{PossibleValue, TypedValueParser},
};

use crate::printer::jsonpath::Template;

#[derive(Clone, Debug, Default, PartialEq)]
pub enum OutputFormat {
    /// Text with tables, the default.
    #[default]
    Table,
    /// Text with more columns, and with lines that are not cut to the terminal's width.
    Wide,
    /// The document as JSON.
    Json,
    Yaml,
    /// `RESOURCE.GROUP/NAME` of each object, one line each.
    Name,
    /// The parts of the document that a template selects.
    JsonPath(Template),
    /// Like [`JsonPath`](Self::JsonPath), as JSON arrays.
    JsonPathAsJson(Template),
    Special(CommandFormat),
}

/// An output format that only one command has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandFormat {
    /// The format `github` of `lint`: annotations for GitHub Actions.
    Github,
    /// The format `sarif` of `lint`: a log for code scanners and editors.
    Sarif,
    /// The format `env` of `pool lease`: shell variables.
    Env,
    /// The format `install-config` of `pool lease`: the patched install-config.
    InstallConfig,
    /// The format `kubeconfig` of `pool lease --claim`: the kubeconfig of the claim's cluster.
    Kubeconfig,
    /// The format `script` of `node join-script`.
    Script,
    /// The format `cloud-init` of `node join-script`: user data that runs the script.
    CloudInit,
    /// The format `ignition` of `node join-script`: a configuration that runs the script.
    Ignition,
}

/// A value of `-o` with its help: the name of a format, or `jsonpath=TEMPLATE` if the format takes a template.
#[derive(Clone, Copy, Debug)]
struct FormatWord {
    text: &'static str,
    help: &'static str,
}

impl FormatWord {
    const fn new(text: &'static str, help: &'static str) -> Self {
        Self { text, help }
    }

    fn takes_value(self) -> bool {
        self.text.contains('=')
    }

    fn name(self) -> &'static str {
        self.text.split_once('=').map_or(self.text, |(name, _)| name)
    }
}

const COMMON: [FormatWord; 6] = [
    FormatWord::new("json", "The document as JSON"),
    FormatWord::new("yaml", "The document as YAML"),
    FormatWord::new(
        "name",
        "The name of each object as RESOURCE.GROUP/NAME, one line each",
    ),
    FormatWord::new("wide", "Text with all columns, not cut to the terminal's width"),
    FormatWord::new(
        "jsonpath=TEMPLATE",
        "Fields of the document, such as '{.metadata.name}'",
    ),
    FormatWord::new(
        "jsonpath-as-json=TEMPLATE",
        "The fields that the template selects, as JSON arrays",
    ),
];

const TEXT: FormatWord = FormatWord::new("text", "Human-readable text (default)");
const GITHUB: FormatWord = FormatWord::new(
    "github",
    "Annotations for GitHub Actions, shown on the lines of a pull request",
);
const SARIF: FormatWord = FormatWord::new("sarif", "A SARIF 2.1.0 log, for code scanners and editors");
const ENV: FormatWord = FormatWord::new(
    "env",
    "Shell variables, one line each: KCP_NAMESPACE, KCP_POOL, KCP_CUSTOMIZATION, KCP_CLUSTER_DEPLOYMENT, KCP_LEASE_ID",
);
const INSTALL_CONFIG: FormatWord = FormatWord::new(
    "install-config",
    "The patched install-config, which may contain secrets",
);

const KUBECONFIG: FormatWord = FormatWord::new(
    "kubeconfig",
    "With --claim: the cluster's kubeconfig, which contains credentials",
);

const JOIN_SCRIPT: [FormatWord; 3] = [
    FormatWord::new("script", "The script (default), which contains a token"),
    FormatWord::new("cloud-init", "User data for cloud-init that runs the script"),
    FormatWord::new("ignition", "An Ignition configuration that runs the script"),
];

/// The output formats that a command accepts: those of all commands, and its own.
#[derive(Clone, Copy, Debug)]
pub struct OutputFormats {
    own: &'static [FormatWord],
}

impl OutputFormats {
    pub const COMMON: Self = Self { own: &[] };
    /// The output formats that `rules` accepts.
    pub const RULES: Self = Self { own: &[TEXT] };
    /// The output formats that `lint` accepts.
    pub const LINT: Self = Self {
        own: &[TEXT, GITHUB, SARIF],
    };
    /// The output formats that `pool lease` accepts.
    pub const LEASE: Self = Self {
        own: &[ENV, INSTALL_CONFIG, KUBECONFIG],
    };
    /// The output formats that `node join-script` accepts.
    pub const JOIN_SCRIPT: Self = Self { own: &JOIN_SCRIPT };

    fn words(self) -> impl Iterator<Item = FormatWord> {
        COMMON.iter().chain(self.own).copied()
    }

    /// Parses the value of `-o`.
    pub fn parse(self, text: &str) -> Result<OutputFormat, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, value),
            None => (text, ""),
        };
        let word = self.words().find(|word| word.name() == name);
        let is_valid = word.is_some_and(|word| word.takes_value() || !text.contains('='));
        if !is_valid {
            return Err(self.unknown(text));
        }
        let template = || match value {
            "" => Err("template format specified but no template given".to_owned()),
            source => {
                Template::parse(source).map_err(|why| format!("error parsing jsonpath {source}, {why}"))
            }
        };
        Ok(match name {
            "json" => OutputFormat::Json,
            "yaml" => OutputFormat::Yaml,
            "name" => OutputFormat::Name,
            "wide" => OutputFormat::Wide,
            "jsonpath" => OutputFormat::JsonPath(template()?),
            "jsonpath-as-json" => OutputFormat::JsonPathAsJson(template()?),
            "github" => OutputFormat::Special(CommandFormat::Github),
            "sarif" => OutputFormat::Special(CommandFormat::Sarif),
            "env" => OutputFormat::Special(CommandFormat::Env),
            "install-config" => OutputFormat::Special(CommandFormat::InstallConfig),
            "kubeconfig" => OutputFormat::Special(CommandFormat::Kubeconfig),
            "script" => OutputFormat::Special(CommandFormat::Script),
            "cloud-init" => OutputFormat::Special(CommandFormat::CloudInit),
            "ignition" => OutputFormat::Special(CommandFormat::Ignition),
            _ => OutputFormat::Table,
        })
    }

    fn unknown(self, text: &str) -> String {
        let mut allowed: Vec<_> = self.words().map(FormatWord::name).collect();
        allowed.sort_unstable();
        format!(
            "unable to match a printer suitable for the output format \"{text}\", allowed formats are: {}",
            allowed.join(",")
        )
    }

    /// One line for each format.
    pub fn list(self) -> String {
        let lines = self
            .words()
            .map(|word| format!("  {:<28}{}\n", word.text, word.help));
        lines.collect()
    }
}

impl TypedValueParser for OutputFormats {
    type Value = OutputFormat;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OutputFormat, clap::Error> {
        let formats = *self;
        (move |text: &str| formats.parse(text)).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = self
            .words()
            .map(|word| PossibleValue::new(word.text).help(word.help));
        Some(Box::new(values))
    }
}

#[cfg(test)]
mod tests {
    use super::{CommandFormat, OutputFormat, OutputFormats};

    #[test]
    fn accepts_the_words_of_kubectl() {
        for (text, format) in [
            ("json", OutputFormat::Json),
            ("yaml", OutputFormat::Yaml),
            ("name", OutputFormat::Name),
            ("wide", OutputFormat::Wide),
        ] {
            for formats in [
                OutputFormats::COMMON,
                OutputFormats::RULES,
                OutputFormats::LINT,
                OutputFormats::LEASE,
            ] {
                assert_eq!(formats.parse(text), Ok(format.clone()), "{text}");
            }
        }
        for text in [
            "jsonpath={.metadata.name}",
            "jsonpath-as-json={.items[*]}",
            "jsonpath={.a}={.b}",
        ] {
            assert!(OutputFormats::COMMON.parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_special_format_belongs_to_its_command() {
        for (text, format, formats) in [
            (
                "text",
                OutputFormat::Table,
                &[OutputFormats::RULES, OutputFormats::LINT][..],
            ),
            (
                "github",
                OutputFormat::Special(CommandFormat::Github),
                &[OutputFormats::LINT],
            ),
            (
                "sarif",
                OutputFormat::Special(CommandFormat::Sarif),
                &[OutputFormats::LINT],
            ),
            (
                "env",
                OutputFormat::Special(CommandFormat::Env),
                &[OutputFormats::LEASE],
            ),
            (
                "install-config",
                OutputFormat::Special(CommandFormat::InstallConfig),
                &[OutputFormats::LEASE],
            ),
            (
                "kubeconfig",
                OutputFormat::Special(CommandFormat::Kubeconfig),
                &[OutputFormats::LEASE],
            ),
        ] {
            for formats in formats {
                assert_eq!(formats.parse(text), Ok(format.clone()), "{text}");
            }
            assert!(OutputFormats::COMMON.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn errors_match_those_of_kubectl() {
        let unknown = |text: &str, own: &str| {
            format!(
                "unable to match a printer suitable for the output format \"{text}\", allowed formats are: \
                 {own}json,jsonpath,jsonpath-as-json,name,"
            )
        };
        for (formats, text, error) in [
            (OutputFormats::COMMON, "xml", unknown("xml", "") + "wide,yaml"),
            (OutputFormats::COMMON, "", unknown("", "") + "wide,yaml"),
            (
                OutputFormats::COMMON,
                "github",
                unknown("github", "") + "wide,yaml",
            ),
            (
                OutputFormats::COMMON,
                "json=x",
                unknown("json=x", "") + "wide,yaml",
            ),
            (
                OutputFormats::LINT,
                "env",
                unknown("env", "github,") + "sarif,text,wide,yaml",
            ),
            (
                OutputFormats::LEASE,
                "text",
                "unable to match a printer suitable for the output format \"text\", allowed formats are: \
                 env,install-config,json,jsonpath,jsonpath-as-json,kubeconfig,name,wide,yaml"
                    .to_owned(),
            ),
            (
                OutputFormats::COMMON,
                "jsonpath",
                "template format specified but no template given".to_owned(),
            ),
            (
                OutputFormats::COMMON,
                "jsonpath-as-json=",
                "template format specified but no template given".to_owned(),
            ),
            (
                OutputFormats::COMMON,
                "jsonpath={.a",
                "error parsing jsonpath {.a, unclosed action".to_owned(),
            ),
        ] {
            assert_eq!(formats.parse(text), Err(error), "{text}");
        }
    }
}
