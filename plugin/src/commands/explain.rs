//! `kubectl kcp explain`: explains the id at the end of a message: a rule, or a check of `status`, `audit` or `lint`. Needs no
//! cluster.
//!
//! - [`rule`]: admission rules, with examples from their test cases
//! - [`check`]: the checks of other commands

mod check;
#[cfg(test)]
mod page;
mod rule;

use std::{collections::BTreeSet, fmt::Write as _};

use anyhow::bail;
use clap::Args;
use kcp_control_plane::{
    audit::{self, AuditCheck},
    checks::{self, Check},
};
use kcp_rules::{
    Rule,
    topics::{rules, similar},
};
use owo_colors::OwoColorize as _;
use serde::Serialize;

use crate::{
    commands::lint::finding::LintRule,
    document::{Document, Versioned},
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
};
use check::{AuditCheckExplanation, CheckExplanation, LintCheckExplanation};
use rule::{RuleExplanation, rule_document, rule_facts};

/// Explain the id at the end of a message: a rule, or a check of status, audit or lint.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp explain replicas-even
  kubectl kcp explain etcd-no-quorum
  kubectl kcp explain --all -o name
  kubectl kcp explain replicas-even -o jsonpath={.items[0].source}

Needs no cluster. A rule and a check can have the same id; the command then explains both.")]
pub struct ExplainArguments {
    /// The id of a rule or a check, which is at the end of its message
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub explained: Option<String>,

    /// Explain every rule and every check
    #[arg(long, conflicts_with = "explained")]
    pub all: bool,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

pub fn run(arguments: &ExplainArguments, session: &Session) -> anyhow::Result<Verdict> {
    let explanations = Explanations(match &arguments.explained {
        None => Explained::all().collect(),
        Some(id) => named(id)?,
    });
    print(&explanations, &arguments.output, &session.terminal)?;
    Ok(Verdict::Met)
}

/// Accepts an id as it stands in a message, such as `(etcd-no-quorum)`, and the address of its page.
fn named(copied: &str) -> anyhow::Result<Vec<Explained>> {
    let id = copied.rsplit_once('#').map_or(copied, |(_, id)| id);
    let id = id.trim_matches(|char: char| !char.is_ascii_alphanumeric());
    let id = id.to_ascii_lowercase();
    let found: Vec<_> = Explained::all()
        .filter(|explained| explained.id() == id)
        .collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let ids: BTreeSet<&str> = Explained::all().map(Explained::id).collect();
    match similar(&id, ids).as_slice() {
        _ if id.contains('.') => bail!(
            "no rule and no check of status, audit or lint has the id {copied:?}; to explain a field, write: kubectl explain {copied}"
        ),
        [] => bail!(
            "no rule and no check of status, audit or lint has the id {copied:?}; list all ids with: kubectl kcp explain --all -o name"
        ),
        similar => bail!(
            "no rule and no check of status, audit or lint has the id {copied:?}; did you mean {}?",
            similar.join(", ")
        ),
    }
}

/// What an id stands for.
#[derive(Clone, Copy)]
pub(crate) enum Explained {
    Rule(&'static Rule),
    /// A check of `status` and `why`.
    Check(&'static Check),
    AuditCheck(&'static AuditCheck),
    /// A problem that `lint` itself finds, and not a rule.
    Lint(LintRule),
}

impl Explained {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let of_lint = LintRule::ALL.into_iter().map(Self::Lint);
        rules()
            .map(Self::Rule)
            .chain(checks::all().map(Self::Check))
            .chain(audit::all().map(Self::AuditCheck))
            .chain(of_lint)
    }

    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Rule(rule) => rule.id,
            Self::Check(check) => check.id,
            Self::AuditCheck(check) => check.id,
            Self::Lint(check) => check.id(),
        }
    }

    pub(crate) const fn summary(self) -> &'static str {
        match self {
            Self::Rule(rule) => rule.summary,
            Self::Check(check) => check.meaning,
            Self::AuditCheck(check) => check.requirement,
            Self::Lint(check) => check.summary(),
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Rule(_) => "rule",
            Self::Check(_) => "check of status and why",
            Self::AuditCheck(_) => "check of audit",
            Self::Lint(_) => "check of lint",
        }
    }

    fn facts(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Rule(rule) => rule_facts(rule),
            Self::Check(check) => check::check_facts(check),
            Self::AuditCheck(check) => check::audit_facts(check),
            Self::Lint(check) => check::lint_facts(check),
        }
    }

    fn document(self) -> ExplanationItem {
        match self {
            Self::Rule(rule) => ExplanationItem::Rule(Box::new(Versioned(rule_document(rule)))),
            Self::Check(check) => ExplanationItem::Check(Box::new(Versioned(check::check_document(check)))),
            Self::AuditCheck(check) => ExplanationItem::AuditCheck(Versioned(check::audit_document(check))),
            Self::Lint(check) => ExplanationItem::LintCheck(Versioned(check::lint_document(check))),
        }
    }

    fn text(self, layout: Layout) -> String {
        const MIN_NAME_WIDTH: usize = 10;
        /// The spaces before and after the name of a fact.
        const SPACES: usize = 3;
        let facts = self.facts();
        let width = facts.iter().map(|(name, _)| name.len()).max();
        let width = width.unwrap_or_default().max(MIN_NAME_WIDTH);
        let heading = format!("{} ({}): {}", self.id().bold(), self.kind(), self.summary());
        let mut text = heading.trim_end_matches('.').to_owned() + "\n";
        for (name, value) in facts {
            let lines = layout.wrap_lines(&value, width + SPACES);
            let value = lines.join(&format!("\n{}", " ".repeat(width + SPACES)));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {name:<width$} {value}");
        }
        text
    }
}

struct Explanations(Vec<Explained>);

/// What one or several ids stand for.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ExplanationList {
    items: Vec<ExplanationItem>,
}

impl Document for ExplanationList {
    const KIND: &'static str = "ExplanationList";
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
enum ExplanationItem {
    Rule(Box<Versioned<RuleExplanation>>),
    Check(Box<Versioned<CheckExplanation>>),
    AuditCheck(Versioned<AuditCheckExplanation>),
    LintCheck(Versioned<LintCheckExplanation>),
}

impl Explanations {
    fn list(&self) -> ExplanationList {
        ExplanationList {
            items: self.0.iter().map(|explained| explained.document()).collect(),
        }
    }
}

impl Report for Explanations {
    fn table(&self, layout: Layout) -> String {
        let texts: Vec<_> = self.0.iter().map(|explained| explained.text(layout)).collect();
        texts.join("\n")
    }

    fn document(&self) -> impl Serialize {
        Versioned(self.list())
    }

    /// Returns each id once and without a kind, because a rule or a check is not a Kubernetes resource.
    fn names(&self) -> Vec<String> {
        let mut named = BTreeSet::new();
        let ids = self.0.iter().map(|explained| explained.id());
        ids.filter(|id| named.insert(*id)).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Explained, ExplanationList, Explanations, named};
    use crate::{
        output::Report as _,
        terminal::{plain, table::Layout},
        testing::{assert_every_format, schema},
    };

    #[test]
    fn every_document_matches_its_schema() {
        let all = Explanations(Explained::all().collect());
        schema::conforms(&all.list());
        assert_every_format(&all);
        schema::checked_in::<ExplanationList>("explanationlist.json");
    }

    /// One of each kind, and an id that a rule and a check have.
    #[test]
    fn explanations() {
        let layout = Layout {
            width: Some(100),
            ..Layout::default()
        };
        let texts: Vec<String> = [
            "replicas-with-upgrade",
            "etcd-no-quorum",
            "machines-without-node",
            "etcd-members-even",
            "field-unknown",
            "etcd-upgrade-unsafe",
        ]
        .into_iter()
        .map(|id| plain(&Explanations(named(id).unwrap()).table(layout)))
        .collect();
        insta::assert_snapshot!(texts.join("\n"));
    }

    /// The id of a check of `audit` or `lint` stands for nothing else.
    #[test]
    fn one_id_stands_for_a_rule_and_a_check() {
        let twice: Vec<&str> = Explained::all()
            .map(Explained::id)
            .filter(|id| named(id).unwrap().len() > 1)
            .collect();
        assert_eq!(twice, ["etcd-upgrade-unsafe"; 2]);
        let names = Explanations(Explained::all().collect()).names();
        assert_eq!(names.len() + 1, Explained::all().count());
    }

    #[test]
    fn every_explanation_has_a_reason_or_says_what_to_do_and_names_its_page() {
        for explained in Explained::all() {
            let facts = explained.facts();
            let has = |wanted: &str| {
                facts
                    .iter()
                    .any(|(name, value)| *name == wanted && !value.is_empty())
            };
            let says_why = has("why") || has("what to do") || has("who acts next");
            assert!(says_why && has("page"), "{}: {facts:?}", explained.id());
        }
    }

    #[test]
    fn an_id_is_found_as_a_message_shows_it() {
        for copied in [
            "replicas-even",
            "(replicas-even)",
            "replicas-even),",
            " REPLICAS-EVEN: ",
            "https://kubectl-kcp.dev/reference/rules.html#replicas-even",
        ] {
            let ids: Vec<&str> = named(copied).unwrap().into_iter().map(Explained::id).collect();
            assert_eq!(ids, ["replicas-even"], "{copied}");
        }
    }

    #[test]
    fn an_unknown_id_leads_to_the_nearest_one() {
        for (id, expected) in [
            (
                "replicas-evne",
                "no rule and no check of status, audit or lint has the id \"replicas-evne\"; did you mean replicas-even, replicas-above-seven, replicas-differ?",
            ),
            (
                "etcd-noquorum",
                "no rule and no check of status, audit or lint has the id \"etcd-noquorum\"; did you mean etcd-no-quorum, etcd-no-leader, etcd-alarms?",
            ),
            (
                "kubeadmcontrolplane.spec.replicas",
                "no rule and no check of status, audit or lint has the id \"kubeadmcontrolplane.spec.replicas\"; to explain a field, write: kubectl explain kubeadmcontrolplane.spec.replicas",
            ),
            (
                "0000",
                "no rule and no check of status, audit or lint has the id \"0000\"; list all ids with: kubectl kcp explain --all -o name",
            ),
        ] {
            let error = named(id).err().unwrap().to_string();
            assert_eq!(error, expected);
        }
    }
}
