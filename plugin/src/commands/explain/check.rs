//! Explains checks of `status`, `audit` and `lint`.

use kcp_control_plane::{
    audit::AuditCheck,
    checks::{
        Check,
        actor::Actor,
        example::{CheckExample, example, facts},
        finding::Finding,
    },
};
use kcp_rules::Action;
use serde::Serialize;

use crate::{
    commands::lint::finding::{LintRule, PAGE as LINT_PAGE},
    document::{Document, book_page},
};

/// The explanation of a check of `status` and `why`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckExplanation {
    id: &'static str,
    /// What a finding of the check means.
    meaning: &'static str,
    /// Who can act next because of a finding.
    actors: &'static [Actor],
    /// Whether `status` allows neither scaling nor rollouts while the check fails.
    preflight: bool,
    /// Whether the verdict is Blocked if the check fails.
    blocking: bool,
    /// Whether other checks may report the same problem in detail.
    summary: bool,
    /// The ids of the checks that may have found the cause of a finding.
    possible_causes: Vec<&'static str>,
    /// A finding about an example control plane `c1-cp` with Machines `m1`, `m2` and `m3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    example: Option<&'static Finding>,
    /// The address of the page that describes the check.
    page: String,
}

impl Document for CheckExplanation {
    const KIND: &'static str = "CheckExplanation";
}

/// The explanation of a check of `audit`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct AuditCheckExplanation {
    id: &'static str,
    /// What must be true.
    requirement: &'static str,
    /// What to do if it is not true.
    remedy: &'static str,
    /// The address of the page that describes the audit.
    page: String,
}

impl Document for AuditCheckExplanation {
    const KIND: &'static str = "AuditCheckExplanation";
}

/// The explanation of a problem that `lint` itself finds, and not an admission rule.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LintCheckExplanation {
    id: &'static str,
    action: Action,
    summary: &'static str,
    /// What happens because of the problem.
    why: &'static str,
    /// The address of the page that lists these problems.
    page: String,
}

impl Document for LintCheckExplanation {
    const KIND: &'static str = "LintCheckExplanation";
}

fn page(check: &Check) -> String {
    book_page(&format!("reference/checks.html#{}", check.id))
}

fn audit_page() -> String {
    book_page("commands/audit.html#checks")
}

pub(super) fn check_document(check: &'static Check) -> CheckExplanation {
    let example = example(check.id);
    CheckExplanation {
        id: check.id,
        meaning: check.meaning,
        actors: example.map_or(&[], |example| &example.actors),
        preflight: check.is_preflight,
        blocking: check.is_blocking,
        summary: check.is_summary,
        possible_causes: check.causes().collect(),
        example: example.map(|example| &example.finding),
        page: page(check),
    }
}

pub(super) fn check_facts(check: &Check) -> Vec<(&'static str, String)> {
    let example = example(check.id);
    let mut all = facts(check, example.map_or(&[], |example| &example.actors));
    let causes: Vec<&str> = check.causes().collect();
    if !causes.is_empty() {
        all.push(("possible causes", causes.join(", ")));
    }
    if let Some(CheckExample { finding, .. }) = example {
        all.push(("example", finding.line()));
        all.extend(finding.hint.iter().map(|hint| ("what to do", hint.clone())));
    }
    all.push(("page", page(check)));
    all
}

pub(super) fn audit_document(check: &AuditCheck) -> AuditCheckExplanation {
    AuditCheckExplanation {
        id: check.id,
        requirement: check.requirement,
        remedy: check.remedy,
        page: audit_page(),
    }
}

pub(super) fn audit_facts(check: &AuditCheck) -> Vec<(&'static str, String)> {
    vec![("what to do", check.remedy.to_owned()), ("page", audit_page())]
}

pub(super) fn lint_document(check: LintRule) -> LintCheckExplanation {
    LintCheckExplanation {
        id: check.id(),
        action: check.action(),
        summary: check.summary(),
        why: check.why(),
        page: book_page(LINT_PAGE),
    }
}

pub(super) fn lint_facts(check: LintRule) -> Vec<(&'static str, String)> {
    vec![("why", check.why().to_owned()), ("page", book_page(LINT_PAGE))]
}
