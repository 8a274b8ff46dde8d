//! Prints the report of `lint` as text, JSON, GitHub annotations or SARIF.

use std::{collections::BTreeMap, fmt::Write as _};

use kcp_rules::Action;
use owo_colors::OwoColorize as _;
use serde::Serialize;

use crate::commands::lint::{
    finding::{LintFinding, UnreadFile},
    sarif::Log,
    schema,
    subject::Subject,
};
use crate::{
    document::{Document, Versioned},
    output::{CommandFormat, Report},
    printer::json,
    terminal::{escape, style, table::Layout, width::width},
    verdict::Verdict,
};

/// What `lint` found out about one object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ObjectResult {
    /// Admission rules apply to the object's kind, and found these problems.
    Judged(Vec<LintFinding>),
    /// The object could not be checked, because its kind is unknown. Contains the problems that say why.
    Unknown(Vec<LintFinding>),
    /// The object is a patch or a template. Contains the problem that says so.
    Unrendered(Vec<LintFinding>),
    /// No admission rules apply to the object's kind. Contains the kind, and problems that any object can have.
    Skipped(String, Vec<LintFinding>),
}

/// Everything that `lint` found, in files or in a cluster.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct LintReport {
    /// The problems, in the order of the files.
    findings: Vec<LintFinding>,
    /// Files that could not be read, or not completely.
    errors: Vec<UnreadFile>,
    #[serde(skip)]
    place: ObjectSource,
    files: usize,
    objects: usize,
    judged: usize,
    /// The number of patches and templates, which were not checked.
    unrendered: usize,
    /// The number of documents that are no objects, such as kustomizations and JSON patches.
    foreign: usize,
    #[serde(skip)]
    deprecated: usize,
    /// The number of objects of each kind to which no admission rules apply.
    skipped: BTreeMap<String, usize>,
    /// The kinds, as `plural.group`, that the cluster does not serve.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_served: Vec<String>,
}

impl Document for LintReport {
    const KIND: &'static str = "LintReport";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectSource {
    Files,
    Cluster,
}

impl LintReport {
    pub(super) fn new(place: ObjectSource) -> Self {
        Self {
            findings: Vec::new(),
            errors: Vec::new(),
            place,
            files: 0,
            objects: 0,
            judged: 0,
            unrendered: 0,
            foreign: 0,
            deprecated: 0,
            skipped: BTreeMap::new(),
            not_served: Vec::new(),
        }
    }

    pub(super) fn count_file(&mut self) {
        self.files += 1;
    }

    pub(super) fn add_object(&mut self, outcome: ObjectResult) {
        self.objects += 1;
        match outcome {
            ObjectResult::Judged(findings) => {
                self.judged += 1;
                self.findings.extend(findings);
            }
            ObjectResult::Unknown(findings) => self.findings.extend(findings),
            ObjectResult::Unrendered(findings) => {
                self.unrendered += 1;
                self.findings.extend(findings);
            }
            ObjectResult::Skipped(kind, findings) => {
                *self.skipped.entry(kind).or_default() += 1;
                self.findings.extend(findings);
            }
        }
    }

    /// Counts a document that is no object.
    pub(super) fn count_foreign(&mut self) {
        self.foreign += 1;
    }

    pub(super) fn count_deprecated_version(&mut self, is_deprecated: bool) {
        self.deprecated += usize::from(is_deprecated);
    }

    /// What to say about the objects whose version Cluster API will no longer serve.
    pub(super) fn deprecation_note(&self) -> Option<String> {
        schema::deprecation_note(self.deprecated)
    }

    /// Records that the cluster does not serve this kind, given as `plural.group`.
    pub(super) fn add_unserved_kind(&mut self, resource: String) {
        self.not_served.push(resource);
    }

    /// Records a file that could not be read.
    pub(super) fn add_unread_file(&mut self, unread: UnreadFile) {
        self.errors.push(unread);
    }

    /// The files that could not be read, or not completely.
    pub(super) fn unread_files(&self) -> &[UnreadFile] {
        &self.errors
    }

    /// Whether the files contain no object that `lint` checks, for example because the command that writes to stdin failed, or
    /// because the path is wrong. An empty cluster does not count, because it is not an error.
    fn is_unchecked(&self) -> bool {
        self.place == ObjectSource::Files
            && self.judged == 0
            && self.errors.is_empty()
            && self.count(Action::Deny) == 0
    }

    /// The error if `lint` checked nothing.
    pub(super) fn unchecked_error(&self) -> Option<String> {
        let what = if self.objects == 0 {
            "no object found in"
        } else {
            "lint checked nothing in"
        };
        self.is_unchecked()
            .then(|| format!("{what} {}", self.file_count_text()))
    }

    /// The number of files with its noun, such as `2 files`.
    fn file_count_text(&self) -> String {
        count(self.files, "file")
    }

    /// The command's verdict. Warnings do not count. If a file could not be read, the verdict is undecided, because the
    /// webhook may deny an object in it.
    pub(super) fn verdict(&self) -> Verdict {
        let unchecked_updates = self.findings.iter().any(|finding| finding.blocks_update_check);
        if !self.errors.is_empty() || unchecked_updates || self.is_unchecked() {
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

    /// The report as text: one paragraph for each finding, then a summary.
    pub(super) fn text(&self, layout: Layout) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let LintFinding {
                file,
                line,
                object,
                field,
                action,
                ..
            } = finding;
            let message = finding.text();
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
                // Print the object so that it can be pasted into a kubectl command. For objects in files, the namespace is
                // not needed.
                Some(namespace) if file.is_none() => format!("{object} -n {namespace}"),
                _ => object.to_string(),
            };
            let (place, object, field) = (escape(&place), escape(&object), escape(field));
            let subject = format!("{place}{action}: {object}: {field}:");
            let line = format!("{subject} {}\n", escape(&message));
            let fits = layout.limit().is_none_or(|limit| {
                width(&anstream::adapter::strip_str(line.trim_end()).to_string()) <= limit
            });
            if fits {
                text.push_str(&line);
            } else {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{subject}");
                text.push_str(&layout.wrap_paragraph(&message));
            }
        }
        text.push_str(&escape(&self.summary()));
        text.push('\n');
        text
    }

    /// The report as workflow commands of GitHub Actions, which annotate the lines of a pull request.
    pub(super) fn to_github_annotations(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let command = match finding.action {
                Action::Deny => "error",
                Action::Warn => "warning",
                Action::Audit | Action::Off => "notice",
            };
            let message = format!("{}: {}: {}", finding.object, finding.field, finding.text());
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

    /// The report as a SARIF log, for code scanners and editors.
    pub(super) fn to_sarif(&self) -> anyhow::Result<String> {
        let failure = self.unchecked_error();
        json(&Log::new(
            &self.findings,
            &self.errors,
            failure.as_deref(),
            self.verdict(),
        ))
    }

    fn summary(&self) -> String {
        let place = match self.place {
            ObjectSource::Cluster => "the cluster".to_owned(),
            ObjectSource::Files => self.file_count_text(),
        };
        let read = format!("{} in {place}", count(self.objects, "object"));
        let skipped: usize = self.skipped.values().sum();
        let mut text = if self.objects == 0 {
            format!("nothing checked: no object in {place}")
        } else if self.judged == 0 && self.unrendered == 0 {
            format!("nothing checked: {read}, but none of a kind that lint checks")
        } else {
            format!("{read}: {} checked, {skipped} skipped", self.judged)
        };
        match self.unrendered {
            0 => {}
            1 => text.push_str(", 1 patch or template not checked"),
            number => {
                let _ = write!(text, ", {number} patches or templates not checked");
            }
        }
        match self.foreign {
            0 => {}
            1 => text.push_str(", 1 document is not a Kubernetes object"),
            number => {
                let _ = write!(text, ", {number} documents are not Kubernetes objects");
            }
        }
        if self.judged > 0 || !self.findings.is_empty() {
            let denials = count(self.count(Action::Deny), "denial");
            let _ = write!(
                text,
                "; {denials}, {}",
                count(self.count(Action::Warn), "warning")
            );
        }
        let unchecked_updates = self
            .findings
            .iter()
            .filter(|finding| finding.blocks_update_check)
            .count();
        if unchecked_updates > 0 {
            let _ = write!(text, "; {} not checked", count(unchecked_updates, "change"));
        }
        if !self.not_served.is_empty() {
            let _ = write!(text, "; not served: {}", self.not_served.join(", "));
        }
        if !self.errors.is_empty() {
            let _ = write!(
                text,
                "; {} could not be read completely",
                count(self.errors.len(), "file")
            );
        }
        text
    }
}

impl Report for LintReport {
    fn table(&self, layout: Layout) -> String {
        self.text(layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(self)
    }

    /// The objects that have problems, as `kubectl get -o name` prints them.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for LintFinding { object, .. } in &self.findings {
            let name = Subject::resource_name(object);
            names.extend(name.filter(|name| !names.contains(name)));
        }
        names
    }

    fn special(&self, format: CommandFormat) -> Option<anyhow::Result<String>> {
        match format {
            CommandFormat::Github => Some(Ok(self.to_github_annotations())),
            CommandFormat::Sarif => Some(self.to_sarif()),
            _ => None,
        }
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
