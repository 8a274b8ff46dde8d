//! One rule, with its own test rows as examples.

use std::{cmp::Reverse, collections::BTreeSet, fmt::Write as _, mem::discriminant, slice};

use kcp_rules::{
    Action, Finding, Rule, Scope,
    case::{Base, Case, Write},
    configuration::KIND,
    overrides,
    topics::TOPICS,
};
use owo_colors::OwoColorize as _;
use serde::Serialize;
use serde_json::Value;

use crate::{
    commands::rules::list::{RuleItem, operations},
    document::API_VERSION,
    output::Report,
    terminal::{escape, table::Layout},
};

/// Some rows hold a quarter of a megabyte; an example is read.
const LONGEST_EXAMPLE: usize = 400;

/// One rule, or all of them.
pub(super) enum Explanations {
    One(Explanation),
    All(Vec<Explanation>),
}

/// What there is to say about a rule.
pub(super) struct Explanation {
    rule: &'static Rule,
    /// A row of the rule's own cases that it accepts, as [`shown`] writes it.
    accepted: Option<String>,
    rejected: Option<String>,
    /// What it says of the rejected row.
    findings: Vec<Finding>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ExplanationDocument {
    One(RuleExplanation),
    All(RuleExplanationList),
}

/// Several rules with examples.
#[derive(Serialize)]
#[cfg_attr(
    test,
    derive(schemars::JsonSchema),
    schemars(title = "AdmissionRuleExplanationList")
)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuleExplanationList {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "AdmissionRuleExplanationList")))]
    kind: &'static str,
    items: Vec<RuleExplanation>,
}

/// A rule with examples.
#[derive(Serialize)]
#[cfg_attr(
    test,
    derive(schemars::JsonSchema),
    schemars(title = "AdmissionRuleExplanation")
)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuleExplanation {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "AdmissionRuleExplanation")))]
    kind: &'static str,
    #[serde(flatten)]
    rule: RuleItem,
    /// A write that the rule accepts, as merge patches on a valid object.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<String>,
    /// A similar write that it rejects, or warns of.
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<String>,
    /// What it says of that write.
    messages: Vec<String>,
}

impl Explanations {
    fn each(&self) -> &[Explanation] {
        match self {
            Self::One(explanation) => slice::from_ref(explanation),
            Self::All(explanations) => explanations,
        }
    }

    fn list(&self) -> RuleExplanationList {
        RuleExplanationList {
            api_version: API_VERSION,
            kind: "AdmissionRuleExplanationList",
            items: self.each().iter().map(Explanation::document).collect(),
        }
    }
}

impl Report for Explanations {
    fn table(&self, _: Layout) -> String {
        let texts: Vec<_> = self.each().iter().map(Explanation::text).collect();
        texts.join("\n")
    }

    fn document(&self) -> impl Serialize {
        match self {
            Self::One(explanation) => ExplanationDocument::One(explanation.document()),
            Self::All(_) => ExplanationDocument::All(self.list()),
        }
    }

    fn names(&self) -> Vec<String> {
        self.each()
            .iter()
            .map(|explanation| explanation.rule.id.to_owned())
            .collect()
    }
}

impl Explanation {
    pub(super) fn of(rule: &'static Rule) -> Self {
        let rejected = rejected(rule);
        let accepted = rejected.as_ref().and_then(|rejected| accepted(rule, rejected));
        Self {
            rule,
            accepted: accepted.map(|example| shown(example.case)),
            rejected: rejected.as_ref().map(|example| shown(example.case)),
            findings: rejected.map_or_else(Vec::new, |example| example.findings),
        }
    }

    fn messages(&self) -> impl Iterator<Item = String> {
        let findings = self.findings.iter();
        findings.map(|finding| format!("{}: {}", finding.fault.field, finding.message()))
    }

    fn document(&self) -> RuleExplanation {
        RuleExplanation {
            api_version: API_VERSION,
            kind: "AdmissionRuleExplanation",
            rule: RuleItem::of(self.rule),
            accepted: self.accepted.clone(),
            rejected: self.rejected.clone(),
            messages: self.messages().collect(),
        }
    }

    fn text(&self) -> String {
        let rule = self.rule;
        let mut text = format!("{}: {}\n", rule.id.bold(), rule.summary);
        let mut fact = |name: &str, value: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {name:<10} {}", escape(value));
        };
        let on = operations(rule).join(", ").to_lowercase();
        fact("judges", &format!("{} on {on}", rule.check.kinds().join(", ")));
        fact("looks at", looks_at(rule.scope));
        fact("finding", follows(rule.action));
        fact("source", rule.source);
        fact("override", &override_of(rule));
        fact("natively", &natively(rule));
        fact(
            "configure",
            &format!(
                "{KIND} of the server and of lint: rules: {{{}: deny|warn|audit|off}}",
                rule.id
            ),
        );
        if let Some(accepted) = &self.accepted {
            fact("accepted", accepted);
        }
        if let Some(rejected) = &self.rejected {
            let mut actions = self.findings.iter().map(|finding| finding.action);
            let is_denied = actions.any(|action| action == Action::Deny);
            fact(if is_denied { "rejected" } else { "warned" }, rejected);
        }
        for message in self.messages() {
            fact("says", &message);
        }
        text
    }
}

const fn looks_at(scope: Scope) -> &'static str {
    match scope {
        Scope::Object => "the object as it would become; what was at fault before is a warning",
        Scope::Transition => "the step from the object as it is to the object as it would become",
        Scope::Cluster => "other objects of the cluster too",
    }
}

const fn follows(action: Action) -> &'static str {
    match action {
        Action::Deny => "refuses the write",
        Action::Warn => "warns",
        Action::Audit => "is recorded in the audit log",
        Action::Off => "none: the rule is off unless the configuration sets it",
    }
}

fn override_of(rule: &Rule) -> String {
    if rule.overridable {
        format!(
            "annotate {}: {}=<RFC 3339 time, at most 24 h ahead>",
            overrides::ANNOTATION,
            rule.id
        )
    } else {
        "not by an annotation".to_owned()
    }
}

fn natively(rule: &Rule) -> String {
    match rule.cel.no_cel() {
        None => "in the policies of kubectl kcp rules export --format vap".to_owned(),
        Some(why) => format!("by the webhook alone: {}", why.as_str()),
    }
}

/// A row of the rule's topic, and what the rule says of it.
struct Example {
    case: &'static Case,
    base: Base,
    findings: Vec<Finding>,
}

/// Each case of the rule's topic on its first base, with what all rules say of it.
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

/// The first that the rule speaks of; what other rules say of it is left out.
fn rejected(rule: &Rule) -> Option<Example> {
    examples(rule).find_map(|mut example| {
        example.findings.retain(|finding| finding.rule.id == rule.id);
        (!example.findings.is_empty()).then_some(example)
    })
}

/// Of those that no rule speaks of, one as near as can be to the one rejected: the same kind, the same operation, and
/// the same fields.
fn accepted(rule: &Rule, rejected: &Example) -> Option<Example> {
    let fields = |example: &Example| fields(example.case);
    let meant = fields(rejected);
    let accepted = examples(rule).filter(|example| example.findings.is_empty());
    // Of equals `max_by_key` takes the last, and the first rows of a table are the plainest.
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

/// The fields that a case writes, as JSON pointers.
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
    fn below(value: &Value, path: &str, fields: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    below(value, &format!("{path}/{name}"), fields);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| below(item, path, fields)),
            _ => {
                fields.insert(path.to_owned());
            }
        }
    }
    below(&serde_json::from_str(patch).unwrap_or_default(), "", fields);
}

/// What a row is about, and the row as merge patches on a valid object. What is known of the cluster stands in the
/// name alone.
fn shown(case: &Case) -> String {
    let about = case.name.split_once('_').map_or(case.name, |(_, about)| about);
    let about = about.strip_prefix("of_").unwrap_or(about).replace('_', " ");
    match case.write {
        Write::Create(patch) => format!("{about}: create {}", short(patch)),
        Write::Update(old, new) => format!("{about}: update {} to {}", short(old), short(new)),
        Write::Scale(old, replicas) => format!("{about}: scale {} to {replicas}", short(old)),
        Write::Delete(object) => format!("{about}: delete {}", short(object)),
    }
}

fn short(patch: &str) -> String {
    let one_line: String = patch.lines().map(str::trim).collect();
    let mut characters = one_line.chars();
    let shown: String = characters.by_ref().take(LONGEST_EXAMPLE).collect();
    if characters.next().is_some() {
        shown + "…"
    } else {
        shown
    }
}

#[cfg(test)]
mod tests {
    use kcp_rules::topics::rules;

    use super::{Explanation, Explanations, RuleExplanation, RuleExplanationList, accepted, rejected, short};
    use crate::{
        terminal::plain,
        testing::{assert_every_format, schema},
    };

    #[test]
    fn the_accepted_example_is_near_the_rejected_one() {
        for (id, near) in [
            ("version-skips-minor", "accepts_next_minor"),
            ("control-plane-in-use", "accepts_deletion_without_workers"),
            ("max-surge-zero-below-three", "accepts_max_surge_0_with_three"),
        ] {
            let rule = rules().find(|rule| rule.id == id).unwrap();
            let rejected = rejected(rule).unwrap();
            let accepted = accepted(rule, &rejected).unwrap();
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
    fn every_document_is_as_its_schema_says() {
        let list = Explanations::All(rules().map(Explanation::of).collect());
        for explanation in list.each() {
            schema::conforms(&explanation.document());
        }
        schema::conforms(&list.list());
        assert_every_format(&list);
        schema::checked_in::<RuleExplanation>("admissionruleexplanation.json");
        schema::checked_in::<RuleExplanationList>("admissionruleexplanationlist.json");
    }

    #[test]
    fn an_explanation() {
        let rule = rules().find(|rule| rule.id == "replicas-with-upgrade").unwrap();
        insta::assert_snapshot!(plain(&Explanation::of(rule).text()));
    }

    #[test]
    fn every_rule_has_an_accepted_and_a_rejected_example() {
        for rule in rules() {
            let text = plain(&Explanation::of(rule).text());
            for fact in [
                "  judges ",
                "  looks at ",
                "  finding ",
                "  source ",
                "  override ",
                "  natively ",
                "  configure ",
                "  accepted ",
                "  says ",
            ] {
                assert!(text.contains(fact), "{}: no{fact}in\n{text}", rule.id);
            }
            assert!(
                text.contains("  rejected ") || text.contains("  warned "),
                "{}: nothing is rejected in\n{text}",
                rule.id
            );
            assert!(
                text.len() < 4096,
                "{} is explained in {} bytes",
                rule.id,
                text.len()
            );
        }
    }
}
