//! One rule, with its own test rows as examples.

use std::fmt::Write as _;

use kcp_rules::{
    Action, Finding, Rule, Scope,
    case::{Case, Write},
    overrides,
    topics::TOPICS,
};
use owo_colors::OwoColorize as _;

use super::list::operations;
use crate::terminal::escape;

/// Some rows hold a quarter of a megabyte; an example is read.
const LONGEST_EXAMPLE: usize = 400;

/// What there is to say about a rule.
pub(super) fn text(rule: &Rule) -> String {
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
    if rule.overridable {
        fact(
            "override",
            &format!(
                "annotate {}: {}=<RFC 3339 time, at most 24 h ahead>",
                overrides::ANNOTATION,
                rule.id
            ),
        );
    }
    if let Some((accepted, _)) = example(rule, <[Finding]>::is_empty) {
        fact("accepted", &shown(accepted));
    }
    if let Some((rejected, findings)) = example(rule, |findings| concerns(findings, rule)) {
        fact("rejected", &shown(rejected));
        for finding in findings.iter().filter(|finding| finding.rule.id == rule.id) {
            fact("says", &format!("{}: {}", finding.fault.field, finding.message()));
        }
    }
    text
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

/// The first row of the rule's topic that all rules together speak of as wanted.
fn example(rule: &Rule, wanted: impl Fn(&[Finding]) -> bool) -> Option<(&'static Case, Vec<Finding>)> {
    let topic = TOPICS
        .iter()
        .find(|topic| topic.rules.iter().any(|of_topic| of_topic.id == rule.id))?;
    topic.cases.iter().find_map(|case| {
        let findings = case.rows().next()?.judge().ok()?;
        wanted(&findings).then_some((case, findings))
    })
}

fn concerns(findings: &[Finding], rule: &Rule) -> bool {
    findings.iter().any(|finding| finding.rule.id == rule.id)
}

/// A row as merge patches on a valid object.
fn shown(case: &Case) -> String {
    match case.write {
        Write::Create(patch) => format!("create {}", short(patch)),
        Write::Update(old, new) => format!("update {} to {}", short(old), short(new)),
        Write::Scale(old, replicas) => format!("scale {} to {replicas}", short(old)),
        Write::Delete(object) => format!("delete {}", short(object)),
    }
}

fn short(patch: &str) -> String {
    let one_line: String = patch.split_whitespace().collect();
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

    use super::text;
    use crate::terminal::plain;

    #[test]
    fn an_explanation() {
        let rule = rules().find(|rule| rule.id == "replicas-with-upgrade").unwrap();
        insta::assert_snapshot!(plain(&text(rule)));
    }

    #[test]
    fn every_rule_has_an_accepted_and_a_rejected_example() {
        for rule in rules() {
            let text = plain(&text(rule));
            for fact in ["  judges ", "  source ", "  accepted ", "  rejected ", "  says "] {
                assert!(text.contains(fact), "{}: no{fact}in\n{text}", rule.id);
            }
            assert!(
                text.len() < 4096,
                "{} is explained in {} bytes",
                rule.id,
                text.len()
            );
        }
    }
}
