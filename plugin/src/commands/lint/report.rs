//! The findings of `lint`, as text, JSON and GitHub annotations.

use std::{collections::BTreeMap, fmt::Write as _};

use kcp_rules::Action;
use owo_colors::OwoColorize as _;
use serde::Serialize;

use crate::commands::lint::{finding::Finding, subject::Subject};
use crate::{
    document::API_VERSION,
    output::{Report, Special},
    terminal::{escape, style, table::Layout},
    verdict::Verdict,
};

/// The result for one object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ObjectResult {
    /// Its kind has rules, and these are their findings.
    Judged(Vec<Finding>),
    /// Without `kind`: it could not be judged.
    Unknown(Vec<Finding>),
    /// Its kind, which has no rules.
    Skipped(String),
}

/// The result of one run. `-o json` serializes this.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct LintReport {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "LintReport")))]
    kind: &'static str,
    /// In the order of the files.
    findings: Vec<Finding>,
    /// What could not be read.
    errors: Vec<Unread>,
    #[serde(skip)]
    place: Place,
    files: usize,
    objects: usize,
    judged: usize,
    /// How many objects of each kind have no rules.
    skipped: BTreeMap<String, usize>,
    /// Kinds, as `plural.group`, that the cluster does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_served: Vec<String>,
}

/// Where objects were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In files.
    Files,
    /// In a cluster.
    Cluster,
}

/// A file, or the rest of one, that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Unread {
    pub(super) file: String,
    /// Counted from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<u64>,
    pub(super) message: String,
}

impl Unread {
    pub(super) fn sentence(&self) -> String {
        match self.line {
            Some(line) => format!("{}:{line}: {}", self.file, self.message),
            None => self.message.clone(),
        }
    }
}

impl LintReport {
    pub(super) fn new(place: Place) -> Self {
        Self {
            api_version: API_VERSION,
            kind: "LintReport",
            findings: Vec::new(),
            errors: Vec::new(),
            place,
            files: 0,
            objects: 0,
            judged: 0,
            skipped: BTreeMap::new(),
            not_served: Vec::new(),
        }
    }

    pub(super) fn file(&mut self) {
        self.files += 1;
    }

    pub(super) fn object(&mut self, outcome: ObjectResult) {
        self.objects += 1;
        match outcome {
            ObjectResult::Judged(findings) => {
                self.judged += 1;
                self.findings.extend(findings);
            }
            ObjectResult::Unknown(findings) => self.findings.extend(findings),
            ObjectResult::Skipped(kind) => *self.skipped.entry(kind).or_default() += 1,
        }
    }

    /// Notes a kind that the cluster does not have.
    pub(super) fn not_served(&mut self, resource: String) {
        self.not_served.push(resource);
    }

    /// Adds something that could not be read.
    pub(super) fn unread(&mut self, unread: Unread) {
        self.errors.push(unread);
    }

    /// What could not be read.
    pub(super) fn errors(&self) -> &[Unread] {
        &self.errors
    }

    /// Whether the files have no object at all: the command that feeds stdin may have failed. An empty cluster is no error.
    pub(super) fn is_empty(&self) -> bool {
        self.place == Place::Files && self.objects == 0 && self.errors.is_empty()
    }

    /// How many files were read.
    pub(super) fn files(&self) -> String {
        count(self.files, "file")
    }

    /// Warnings do not count. A file that was not read may contain a denial, so the verdict is then open.
    pub(super) fn verdict(&self) -> Verdict {
        let left_open = self.findings.iter().any(|finding| finding.leaves_open);
        if !self.errors.is_empty() || left_open || self.is_empty() {
            Verdict::Undecided
        } else if self.count(Action::Deny) > 0 {
            Verdict::Negative
        } else {
            Verdict::Met
        }
    }

    fn count(&self, action: Action) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.action == action)
            .count()
    }

    /// One line for each finding, and the summary.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for Finding {
            file,
            line,
            object,
            field,
            action,
            message,
            ..
        } in &self.findings
        {
            let action = match action {
                Action::Deny => "denied".style(style::BAD),
                Action::Warn => "warning".style(style::WARN),
                Action::Audit | Action::Off => "note".style(style::FAINT),
            };
            let place = match (file, line) {
                (Some(file), Some(line)) => format!("{file}:{line}: "),
                _ => String::new(),
            };
            let object = match &object.namespace {
                // Ready to paste into kubectl. In a file, the namespace is visible.
                Some(namespace) if file.is_none() => format!("{object} -n {namespace}"),
                _ => object.to_string(),
            };
            let (place, object) = (escape(&place), escape(&object));
            let (field, message) = (escape(field), escape(message));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{place}{action}: {object}: {field}: {message}");
        }
        text.push_str(&escape(&self.summary()));
        text.push('\n');
        text
    }

    /// Workflow commands: GitHub shows them beside the lines of a change.
    pub(super) fn github(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let command = match finding.action {
                Action::Deny => "error",
                Action::Warn => "warning",
                Action::Audit | Action::Off => "notice",
            };
            let message = format!("{}: {}: {}", finding.object, finding.field, finding.message);
            let place = match (&finding.file, finding.line) {
                (Some(file), Some(line)) => format!("file={},line={line},", github_property(file)),
                _ => String::new(),
            };
            let (title, message) = (github_property(finding.rule), github_data(&message));
            let _ = writeln!(text, "::{command} {place}title={title}::{message}");
        }
        for unread in &self.errors {
            let line = unread.line.map_or(String::new(), |line| format!(",line={line}"));
            let (file, message) = (github_property(&unread.file), github_data(&unread.message));
            let _ = writeln!(text, "::error file={file}{line}::{message}");
        }
        text.push_str(&escape(&self.summary()));
        text.push('\n');
        text
    }

    fn summary(&self) -> String {
        let place = match self.place {
            Place::Cluster => "the cluster".to_owned(),
            Place::Files => self.files(),
        };
        let read = format!("{} in {place}", count(self.objects, "object"));
        let skipped: usize = self.skipped.values().sum();
        let mut text = if self.objects == 0 {
            format!("nothing judged: no object in {place}")
        } else if self.judged == 0 {
            format!(
                "nothing judged: {read}, but no KubeadmControlPlane, ClusterPool or \
                 ClusterDeploymentCustomization"
            )
        } else {
            format!("{read}: {} judged, {skipped} skipped", self.judged)
        };
        if skipped > 0 {
            let kinds: Vec<_> = self.skipped.keys().map(String::as_str).collect();
            let _ = write!(text, " ({})", kinds.join(", "));
        }
        if self.judged > 0 || !self.findings.is_empty() {
            let denials = count(self.count(Action::Deny), "denial");
            let _ = write!(
                text,
                "; {denials}, {}",
                count(self.count(Action::Warn), "warning")
            );
        }
        let left_open = self.findings.iter().filter(|finding| finding.leaves_open).count();
        if left_open > 0 {
            let _ = write!(text, "; {} not judged", count(left_open, "change"));
        }
        if !self.not_served.is_empty() {
            let _ = write!(text, "; not served: {}", self.not_served.join(", "));
        }
        if !self.errors.is_empty() {
            let _ = write!(text, "; {} only partly read", count(self.errors.len(), "file"));
        }
        text
    }
}

impl Report for LintReport {
    fn table(&self, _: Layout) -> String {
        self.text()
    }

    fn document(&self) -> impl Serialize {
        self
    }

    /// The objects with findings.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for Finding { object, .. } in &self.findings {
            let name = Subject::resource_name(object);
            names.extend(name.filter(|name| !names.contains(name)));
        }
        names
    }

    fn special(&self, format: Special) -> Option<anyhow::Result<String>> {
        (format == Special::Github).then(|| Ok(self.github()))
    }
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn github_data(text: &str) -> String {
    escape(text).replace('%', "%25")
}

fn github_property(text: &str) -> String {
    github_data(text).replace(':', "%3A").replace(',', "%2C")
}
