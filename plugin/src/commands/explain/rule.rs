//! Explains an admission rule with examples from its test cases.

use std::{collections::BTreeMap, sync::LazyLock};

use kcp_api::names::annotation;
use kcp_rules::{Action, InTopology, OnUnread, Rule, Scope, configuration::KIND};
use serde::{Deserialize, Serialize};

use crate::{
    commands::rules::list::{RuleItem, operations},
    document::{Document, book_page},
};

/// Examples by the id of their rule.
pub(super) type Examples = BTreeMap<String, RuleExample>;

/// An accepted and a rejected test case of a rule, each in one line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RuleExample {
    /// What the rule accepts, as merge patches on a valid object.
    pub(super) accepted: String,
    /// A similar write that the rule rejects or warns about.
    pub(super) rejected: String,
    /// Whether the rule denies this write.
    pub(super) is_denied: bool,
    /// The rule's messages about this write, with their fields.
    pub(super) messages: Vec<String>,
    /// What to do about this write, each sentence once.
    pub(super) remedies: Vec<String>,
}

/// A test writes `examples.json` from the cases of the rules.
static EXAMPLES: LazyLock<Examples> =
    LazyLock::new(|| serde_json::from_str(include_str!("examples.json")).unwrap_or_default());

/// The explanation of an admission rule, with an accepted and a rejected example.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct RuleExplanation {
    #[serde(flatten)]
    rule: RuleItem,
    /// An example of a write that the rule accepts, as merge patches on a valid object.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<&'static str>,
    /// An example of a similar write that the rule rejects or warns about.
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<&'static str>,
    /// The rule's messages about the rejected write.
    messages: &'static [String],
    /// What to do about the rejected write, one sentence each.
    remedies: &'static [String],
    /// The address of the page that describes the rule.
    page: String,
}

impl Document for RuleExplanation {
    const KIND: &'static str = "AdmissionRuleExplanation";
}

pub(super) fn rule_document(rule: &'static Rule) -> RuleExplanation {
    let example = EXAMPLES.get(rule.id);
    RuleExplanation {
        rule: RuleItem::new(rule),
        accepted: example.map(|example| &*example.accepted),
        rejected: example.map(|example| &*example.rejected),
        messages: example.map_or(&[], |example| &example.messages),
        remedies: example.map_or(&[], |example| &example.remedies),
        page: page(rule),
    }
}

fn page(rule: &Rule) -> String {
    book_page(&format!("reference/rules.html#{}", rule.id))
}

/// What is known about the rule, each fact with its name.
pub(super) fn rule_facts(rule: &Rule) -> Vec<(&'static str, String)> {
    let example = EXAMPLES.get(rule.id);
    let verbs = operations(rule).join(", ").to_lowercase();
    let mut facts = vec![("why", rule.why.to_owned())];
    let remedies = example.into_iter().flat_map(|example| &example.remedies);
    facts.extend(remedies.map(|remedy| ("what to do", remedy.clone())));
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
    if let Some(example) = example {
        let effect = if example.is_denied { "rejected" } else { "warned" };
        facts.push(("accepted", example.accepted.clone()));
        facts.push((effect, example.rejected.clone()));
        facts.extend(
            example
                .messages
                .iter()
                .map(|message| ("message", message.clone())),
        );
    }
    facts.push(("page", page(rule)));
    facts
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

#[cfg(test)]
mod tests {
    use kcp_rules::topics::rules;

    use super::{EXAMPLES, rule_facts};

    #[test]
    fn every_rule_has_an_example_and_every_example_a_rule() {
        let ids: Vec<&str> = rules()
            .map(|rule| rule.id)
            .filter(|id| EXAMPLES.contains_key(*id))
            .collect();
        assert_eq!((ids.len(), EXAMPLES.len()), (rules().count(), rules().count()));
    }

    #[test]
    fn an_explanation_is_short() {
        for rule in rules() {
            let facts = rule_facts(rule);
            let length: usize = facts.iter().map(|(name, value)| name.len() + value.len()).sum();
            assert!(length < 4096, "{} is explained in {length} bytes", rule.id);
        }
    }
}
