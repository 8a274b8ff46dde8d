//! Prints the report of `lint` in the Static Analysis Results Interchange Format (SARIF) 2.1.0, which code scanners and editors
//! read. Sections are those of the [standard](https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html).

use std::{fmt::Write as _, path::Path};

use kcp_rules::{Action, topics::rules};
use serde::Serialize;

use crate::{
    commands::lint::finding::{LintFinding, LintRule, PAGE, UnreadFile},
    document::{BOOK, book_page},
    file::STDIN,
    terminal::escape,
    verdict::Verdict,
};

/// The folder in which the command ran, to which paths of files are relative. The name is a convention (section 3.14.14).
const WORKING_FOLDER: &str = "%SRCROOT%";

/// A log file (section 3.13) with one run.
#[derive(Debug, Serialize)]
pub(super) struct Log {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run; 1],
}

#[derive(Debug, Serialize)]
struct Run {
    tool: Tool,
    invocations: [Invocation; 1],
    results: Vec<RuleResult>,
}

#[derive(Debug, Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Driver {
    name: &'static str,
    semantic_version: &'static str,
    information_uri: &'static str,
    /// The rules that found a problem.
    rules: Vec<Descriptor>,
}

/// A rule (section 3.49).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    id: &'static str,
    short_description: Message,
    full_description: Message,
    default_configuration: DefaultConfiguration,
    help: Message,
    help_uri: String,
}

#[derive(Debug, Serialize)]
struct DefaultConfiguration {
    level: Level,
}

/// How the command ended (section 3.20).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Invocation {
    /// Whether `lint` could check everything.
    execution_successful: bool,
    exit_code: u8,
    /// The files that could not be read.
    tool_execution_notifications: Vec<Notification>,
}

#[derive(Debug, Serialize)]
struct Notification {
    level: Level,
    message: Message,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    locations: Vec<Location>,
}

/// A finding (section 3.27).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleResult {
    rule_id: &'static str,
    /// The position of the rule in `rules`.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_index: Option<usize>,
    level: Level,
    message: Message,
    locations: [Location; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    /// The place in a file. Absent for stdin and for an object in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    physical_location: Option<PhysicalLocation>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logical_locations: Vec<LogicalLocation>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    artifact_location: ArtifactLocation,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<Region>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactLocation {
    /// A URI reference.
    uri: String,
    /// The folder to which the URI is relative. Absent if the URI is absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    uri_base_id: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    /// The line number, counted from 1.
    start_line: u64,
}

/// A field of an object (section 3.33).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LogicalLocation {
    name: String,
    fully_qualified_name: String,
    kind: &'static str,
}

#[derive(Debug, Serialize)]
struct Message {
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Error,
    Warning,
    Note,
}

impl Log {
    /// Describes the findings, the files that could not be read, and the verdict. `failure` says what else went wrong.
    pub(super) fn new(
        findings: &[LintFinding],
        unread: &[UnreadFile],
        failure: Option<&str>,
        verdict: Verdict,
    ) -> Self {
        let mut rules: Vec<Descriptor> = Vec::new();
        let mut results = Vec::new();
        for finding in findings {
            let known = rules.iter().position(|rule| rule.id == finding.rule);
            let index = known.or_else(|| {
                rules.push(Descriptor::new(finding.rule)?);
                Some(rules.len() - 1)
            });
            results.push(RuleResult::new(finding, index));
        }
        let failure = failure.map(|message| Notification {
            level: Level::Error,
            message: Message::new(message),
            locations: Vec::new(),
        });
        Self {
            schema: "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
            version: "2.1.0",
            runs: [Run {
                tool: Tool {
                    driver: Driver {
                        name: env!("CARGO_PKG_NAME"),
                        semantic_version: env!("CARGO_PKG_VERSION"),
                        information_uri: BOOK,
                        rules,
                    },
                },
                invocations: [Invocation {
                    execution_successful: verdict != Verdict::Undecided,
                    exit_code: verdict.code(),
                    tool_execution_notifications: unread
                        .iter()
                        .map(Notification::new)
                        .chain(failure)
                        .collect(),
                }],
                results,
            }],
        }
    }
}

impl Descriptor {
    /// Describes an admission rule, or a check that only `lint` has. `None` for an id that neither has.
    fn new(id: &'static str) -> Option<Self> {
        let described = |summary: &str, why: &str, action: Action, help: &str, page: &str| Self {
            id,
            short_description: Message::new(summary),
            full_description: Message::new(why),
            default_configuration: DefaultConfiguration { level: action.into() },
            help: Message::new(help),
            help_uri: book_page(page),
        };
        if let Some(rule) = rules().find(|rule| rule.id == id) {
            let help = format!(
                "An example that passes and one that fails are in the output of: kubectl kcp explain {id}"
            );
            let page = format!("reference/rules.html#{id}");
            return Some(described(rule.summary, rule.why, rule.action, &help, &page));
        }
        let check = LintRule::ALL.into_iter().find(|check| check.id() == id)?;
        let help = "lint itself finds this problem, not an admission rule.";
        Some(described(
            check.summary(),
            check.why(),
            check.action(),
            help,
            PAGE,
        ))
    }
}

impl Notification {
    fn new(unread: &UnreadFile) -> Self {
        Self {
            level: Level::Error,
            message: Message::new(&unread.message),
            locations: vec![Location {
                physical_location: PhysicalLocation::new(&unread.file, unread.line),
                logical_locations: Vec::new(),
            }],
        }
    }
}

impl RuleResult {
    fn new(finding: &LintFinding, rule_index: Option<usize>) -> Self {
        let LintFinding { object, field, .. } = finding;
        let name = match &object.namespace {
            Some(namespace) => format!("{namespace}/{object}/{field}"),
            None => format!("{object}/{field}"),
        };
        let file = finding.file.as_deref();
        Self {
            rule_id: finding.rule,
            rule_index,
            level: finding.action.into(),
            message: Message::new(&format!("{object}: {field}: {}", finding.text())),
            locations: [Location {
                physical_location: file.and_then(|file| PhysicalLocation::new(file, finding.line)),
                logical_locations: vec![LogicalLocation {
                    name: escape(field).into_owned(),
                    fully_qualified_name: escape(&name).into_owned(),
                    kind: "property",
                }],
            }],
        }
    }
}

impl PhysicalLocation {
    /// A place in a file; `None` for stdin, which no viewer can open.
    fn new(file: &str, line: Option<u64>) -> Option<Self> {
        (file != STDIN).then(|| Self {
            artifact_location: ArtifactLocation::new(file),
            region: line.map(|start_line| Region { start_line }),
        })
    }
}

impl ArtifactLocation {
    /// The path of a file as a URI reference (RFC 3986).
    fn new(file: &str) -> Self {
        let is_absolute = Path::new(file).is_absolute();
        let (prefix, path) = if is_absolute {
            ("file://", file)
        } else {
            ("", file.strip_prefix("./").unwrap_or(file))
        };
        let mut uri = prefix.to_owned();
        for byte in path.bytes() {
            match byte {
                b'/' | b'-' | b'.' | b'_' | b'~' => uri.push(char::from(byte)),
                _ if byte.is_ascii_alphanumeric() => uri.push(char::from(byte)),
                _ => {
                    // Writing to a String cannot fail.
                    let _ = write!(uri, "%{byte:02X}");
                }
            }
        }
        Self {
            uri,
            uri_base_id: (!is_absolute).then_some(WORKING_FOLDER),
        }
    }
}

impl Message {
    /// A text without placeholders, in which braces are doubled (section 3.11.5).
    fn new(text: &str) -> Self {
        Self {
            text: escape(text).replace('{', "{{").replace('}', "}}"),
        }
    }
}

impl From<Action> for Level {
    fn from(action: Action) -> Self {
        match action {
            Action::Deny => Self::Error,
            Action::Warn => Self::Warning,
            Action::Audit | Action::Off => Self::Note,
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_rules::topics::rules;

    use super::{ArtifactLocation, Descriptor, LintRule, Message, PhysicalLocation, WORKING_FOLDER};

    #[test]
    fn a_path_is_a_uri_reference() {
        for (file, uri, base) in [
            ("a.yaml", "a.yaml", Some(WORKING_FOLDER)),
            ("./b/a-1_2~3.yaml", "b/a-1_2~3.yaml", Some(WORKING_FOLDER)),
            ("../a.yaml", "../a.yaml", Some(WORKING_FOLDER)),
            // Without the escape, `a` would be the scheme of a URI.
            ("a:b c%.yaml", "a%3Ab%20c%25.yaml", Some(WORKING_FOLDER)),
            ("é#?.yaml", "%C3%A9%23%3F.yaml", Some(WORKING_FOLDER)),
            ("/srv/a b.yaml", "file:///srv/a%20b.yaml", None),
        ] {
            let expected = ArtifactLocation {
                uri: uri.to_owned(),
                uri_base_id: base,
            };
            assert_eq!(ArtifactLocation::new(file), expected, "{file}");
        }
    }

    #[test]
    fn stdin_is_no_file() {
        assert!(PhysicalLocation::new("-", Some(3)).is_none());
        assert!(PhysicalLocation::new("-a", Some(3)).is_some());
    }

    #[test]
    fn a_message_has_no_placeholders_and_no_control_characters() {
        assert_eq!(Message::new("{{ .random }}").text, "{{{{ .random }}}}");
        assert_eq!(Message::new("a\u{1b}").text, "a\\u{{1b}}");
    }

    #[test]
    fn every_rule_and_every_check_is_described() {
        let checks = LintRule::ALL.map(LintRule::id);
        for id in rules().map(|rule| rule.id).chain(checks) {
            let rule = Descriptor::new(id).expect(id);
            let texts = [&rule.short_description, &rule.full_description, &rule.help];
            assert!(texts.iter().all(|text| !text.text.is_empty()), "{id}");
        }
        assert!(Descriptor::new("unknown").is_none());
    }

    /// The link of each problem that only `lint` finds leads to a section of this page.
    #[test]
    fn the_book_lists_the_problems_that_only_lint_finds() {
        let page = include_str!("../../../../docs/src/commands/lint.md");
        let (_, section) = page
            .split_once("\n## Problems that only lint finds\n")
            .expect("the section");
        for check in LintRule::ALL {
            assert!(section.contains(&format!("| `{}` |", check.id())), "{check:?}");
            assert!(check.summary().len() <= 80, "{check:?}");
        }
    }
}
