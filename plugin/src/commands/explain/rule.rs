//! Explains an admission rule with examples from its test cases.

use std::{cmp::Reverse, collections::BTreeSet, mem::discriminant};

use kcp_api::names::annotation;
use kcp_rules::{
    Action, Finding, InTopology, OnUnread, Rule, Scope,
    case::{Base, Case, Write},
    configuration::KIND,
    topics::TOPICS,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    commands::rules::list::{RuleItem, operations},
    document::{Document, book_page},
};

/// The maximum length of an example, in characters. Some test cases are 256 KiB long.
const MAX_EXAMPLE_BYTES: usize = 400;

/// An admission rule with an accepted and a rejected example.
pub(super) struct ExplainedRule {
    rule: &'static Rule,
    /// A test case that the rule accepts, as [`example_text`] describes it.
    accepted: Option<String>,
    rejected: Option<String>,
    /// The rule's findings about the rejected test case.
    findings: Vec<Finding>,
}

/// The explanation of an admission rule, with an accepted and a rejected example.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct RuleExplanation {
    #[serde(flatten)]
    rule: RuleItem,
    /// An example of a write that the rule accepts, as merge patches on a valid object.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<String>,
    /// An example of a similar write that the rule rejects or warns about.
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<String>,
    /// The rule's messages about the rejected write.
    messages: Vec<String>,
    /// What to do about the rejected write, one sentence each.
    remedies: Vec<String>,
    /// The address of the page that describes the rule.
    page: String,
}

impl Document for RuleExplanation {
    const KIND: &'static str = "AdmissionRuleExplanation";
}

impl ExplainedRule {
    pub(super) fn new(rule: &'static Rule) -> Self {
        let rejected = rejected_example(rule);
        let accepted = rejected
            .as_ref()
            .and_then(|rejected| accepted_example(rule, rejected));
        Self {
            rule,
            accepted: accepted.map(|example| example_text(example.case)),
            rejected: rejected.as_ref().map(|example| example_text(example.case)),
            findings: rejected.map_or_else(Vec::new, |example| example.findings),
        }
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = String> {
        let findings = self.findings.iter();
        findings.map(|finding| format!("{}: {}", finding.fault.field, finding.message()))
    }

    /// The remedies in the findings, each once, in the order of the findings.
    fn remedies(&self) -> Vec<String> {
        let mut remedies: Vec<String> = Vec::new();
        for finding in &self.findings {
            let remedy = &finding.fault.remedy;
            if !remedies.iter().any(|other| other == remedy) {
                remedies.push(remedy.to_string());
            }
        }
        remedies
    }

    fn page(&self) -> String {
        book_page(&format!("reference/rules.html#{}", self.rule.id))
    }

    pub(super) fn document(&self) -> RuleExplanation {
        RuleExplanation {
            rule: RuleItem::new(self.rule),
            accepted: self.accepted.clone(),
            rejected: self.rejected.clone(),
            messages: self.messages().collect(),
            remedies: self.remedies(),
            page: self.page(),
        }
    }

    /// What is known about the rule, each fact with its name.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let rule = self.rule;
        let verbs = operations(rule).join(", ").to_lowercase();
        let mut facts = vec![("why", rule.why.to_owned())];
        facts.extend(self.remedies().into_iter().map(|remedy| ("what to do", remedy)));
        facts.extend([
            ("checks", format!("{} on {verbs}", rule.kinds().join(", "))),
            ("considers", scope_text(rule.scope).to_owned()),
            ("effect", effect_of(rule.action).to_owned()),
        ]);
        let unread = rule.on_unread();
        facts.extend(unread.map(|on_unread| ("unreadable", unread_text(on_unread).to_owned())));
        facts.extend([
            ("source", rule.source.to_owned()),
            ("override", override_of(rule)),
            ("policy", policy_of(rule)),
            (
                "configure",
                format!(
                    "set `rules: {{{}: deny|warn|audit|off}}` in the {KIND} that kcp-webhook and lint read",
                    rule.id
                ),
            ),
        ]);
        let accepted = self.accepted.clone();
        facts.extend(accepted.map(|accepted| ("accepted", accepted)));
        let mut actions = self.findings.iter().map(|finding| finding.action);
        let is_denied = actions.any(|action| action == Action::Deny);
        let rejected = self.rejected.clone();
        facts.extend(rejected.map(|rejected| (if is_denied { "rejected" } else { "warned" }, rejected)));
        facts.extend(self.messages().map(|message| ("message", message)));
        facts.push(("page", self.page()));
        facts
    }
}

const fn scope_text(scope: Scope) -> &'static str {
    match scope {
        Scope::Object => "the new object; problems that existed before the change are only warnings",
        Scope::Transition => "the change from the old to the new object",
        Scope::Cluster(_) => "the new object and other objects in the cluster",
    }
}

const fn unread_text(on_unread: OnUnread) -> &'static str {
    match on_unread {
        OnUnread::Deny => "refuses the write if the webhook cannot read the other objects",
        OnUnread::Warn => "is skipped, with a warning, if the webhook cannot read the other objects",
    }
}

const fn effect_of(action: Action) -> &'static str {
    match action {
        Action::Deny => "refuses the write",
        Action::Warn => "warns",
        Action::Audit => "records the finding in the audit log",
        Action::Off => "none: the rule is off unless the configuration enables it",
    }
}

fn override_of(rule: &Rule) -> String {
    if rule.overridable {
        let topology = if rule.topology == InTopology::Unjudged {
            ""
        } else {
            " (for a Cluster, in spec.topology.controlPlane.metadata.annotations)"
        };
        format!(
            "set this annotation on the object{topology}: {}: \"{}=<RFC 3339 time, at most 24 h ahead>\"",
            annotation::OVERRIDE_RULES,
            rule.id
        )
    } else {
        "an annotation cannot override this rule".to_owned()
    }
}

fn policy_of(rule: &Rule) -> String {
    match rule.cel.no_cel() {
        None => "this command exports the rule as a policy: kubectl kcp rules export --format vap".to_owned(),
        Some(why) => format!("none, only the webhook enforces this rule: {}", why.as_str()),
    }
}

/// A test case, with what all admission rules find in it.
struct Example {
    case: &'static Case,
    base: Base,
    findings: Vec<Finding>,
}

/// All test cases in the rule's topic, each with what all rules find in it.
fn examples(rule: &Rule) -> impl Iterator<Item = Example> {
    let topic = TOPICS
        .iter()
        .find(|topic| topic.rules.iter().any(|of_topic| of_topic.id == rule.id));
    topic
        .into_iter()
        .flat_map(|topic| topic.cases)
        .filter_map(|case| {
            let row = case.rows().next()?;
            Some(Example {
                case,
                base: row.base,
                findings: row.judge().ok()?,
            })
        })
}

/// The first test case in which this rule, and no other rule, finds a problem.
fn rejected_example(rule: &Rule) -> Option<Example> {
    examples(rule).find_map(|mut example| {
        example.findings.retain(|finding| finding.rule.id == rule.id);
        (!example.findings.is_empty()).then_some(example)
    })
}

/// The test case without a finding that is most similar to the rejected one, by kind, operation and fields.
fn accepted_example(rule: &Rule, rejected: &Example) -> Option<Example> {
    let fields = |example: &Example| fields(example.case);
    let meant = fields(rejected);
    let accepted = examples(rule).filter(|example| example.findings.is_empty());
    // Reverse the order, because `max_by_key` returns the last maximum, and the first test cases are the simplest.
    let accepted: Vec<_> = accepted.collect();
    accepted.into_iter().rev().max_by_key(|example| {
        let given = fields(example);
        (
            discriminant(&example.base) == discriminant(&rejected.base),
            example.case.operation() == rejected.case.operation(),
            given.intersection(&meant).count(),
            Reverse(given.difference(&meant).count()),
        )
    })
}

/// The fields that a test case writes, as JSON pointers.
fn fields(case: &Case) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    match case.write {
        Write::Create(patch) | Write::Delete(patch) => collect(patch, &mut fields),
        Write::Update(old, new) => {
            collect(old, &mut fields);
            collect(new, &mut fields);
        }
        Write::Scale(old, _) => collect(old, &mut fields),
    }
    fields
}

fn collect(patch: &str, fields: &mut BTreeSet<String>) {
    fn collect_fields(value: &Value, path: &str, fields: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    collect_fields(value, &format!("{path}/{name}"), fields);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| collect_fields(item, path, fields)),
            _ => {
                fields.insert(path.to_owned());
            }
        }
    }
    collect_fields(&serde_json::from_str(patch).unwrap_or_default(), "", fields);
}

/// Describes a test case: its name, and what it writes, as merge patches on a valid object.
fn example_text(case: &Case) -> String {
    let name = case.name.split_once('_').map_or(case.name, |(_, name)| name);
    let description = name.strip_prefix("of_").unwrap_or(name).replace('_', " ");
    match case.write {
        Write::Create(patch) => format!("{description}: create {}", short(patch)),
        Write::Update(old, new) => format!("{description}: update {} to {}", short(old), short(new)),
        Write::Scale(old, replicas) => format!("{description}: scale {} to {replicas}", short(old)),
        Write::Delete(object) => format!("{description}: delete {}", short(object)),
    }
}

fn short(patch: &str) -> String {
    let one_line: String = patch.lines().map(str::trim).collect();
    let mut characters = one_line.chars();
    let example_text: String = characters.by_ref().take(MAX_EXAMPLE_BYTES).collect();
    if characters.next().is_some() {
        example_text + "…"
    } else {
        example_text
    }
}

#[cfg(test)]
mod tests {
    use kcp_rules::topics::rules;

    use super::{ExplainedRule, accepted_example, rejected_example, short};

    #[test]
    fn the_accepted_example_is_near_the_rejected_one() {
        for (id, near) in [
            ("version-skips-minor", "accepts_next_minor"),
            ("control-plane-in-use", "accepts_deletion_without_workers"),
            ("max-surge-zero-below-three", "accepts_max_surge_0_with_three"),
        ] {
            let rule = rules().find(|rule| rule.id == id).unwrap();
            let rejected = rejected_example(rule).unwrap();
            let accepted = accepted_example(rule, &rejected).unwrap();
            assert!(
                accepted.case.name.starts_with(near),
                "{id}: {}",
                accepted.case.name
            );
            assert_eq!(accepted.case.operation(), rejected.case.operation(), "{id}");
        }
    }

    #[test]
    fn an_example_is_one_line_and_keeps_its_spaces() {
        assert_eq!(short("{\"a b\":\n   1}"), "{\"a b\":1}");
    }

    #[test]
    fn every_rule_has_an_accepted_and_a_rejected_example() {
        for rule in rules() {
            let facts = ExplainedRule::new(rule).facts();
            let names: Vec<&str> = facts.iter().map(|(name, _)| *name).collect();
            for name in [
                "why",
                "what to do",
                "checks",
                "considers",
                "effect",
                "source",
                "override",
                "policy",
                "configure",
                "accepted",
                "message",
                "page",
            ] {
                assert!(names.contains(&name), "{}: no {name} in {names:?}", rule.id);
            }
            assert!(
                names.contains(&"rejected") || names.contains(&"warned"),
                "{}: nothing is rejected in {names:?}",
                rule.id
            );
            let length: usize = facts.iter().map(|(name, value)| name.len() + value.len()).sum();
            assert!(length < 4096, "{} is explained in {length} bytes", rule.id);
        }
    }
}
