//! The part of `docs/src/reference/rules.md` that describes every rule, and the examples in `explain/examples.json`.

use std::{cmp::Reverse, collections::BTreeSet, fmt::Write as _, mem::discriminant};

use kcp_control_plane::testing::page::{assert_generated, assert_written, markdown};
use kcp_rules::{
    Action, Finding, InTopology, Rule,
    testing::{
        case::{Base, Case, Write},
        cases::cases_of,
    },
    topics::{TOPICS, Topic, rules},
};
use serde_json::Value;

use super::rule::{Examples, RuleExample};
use crate::commands::rules::list::operations;

/// The maximum length of an example, in characters. Some test cases are 256 KiB long.
const MAX_EXAMPLE_CHARS: usize = 400;

#[test]
fn the_page_describes_every_rule() {
    let mut text = "\n| topic | rules |\n|---|---|\n".to_owned();
    for topic in TOPICS {
        let links: Vec<String> = topic.rules.iter().map(|rule| link(rule.id)).collect();
        writeln!(text, "| {} | {} |", title(topic), links.join(", ")).unwrap();
    }
    let mut examples = Examples::new();
    for topic in TOPICS {
        // No rule has an id of this form, so that the anchor of a rule is its id.
        writeln!(text, "\n## About {}", title(topic)).unwrap();
        for rule in topic.rules {
            let example = rule_example(topic, rule);
            text += &section(rule, &example);
            examples.insert(rule.id.to_owned(), example);
        }
    }
    assert_generated("reference/rules.md", &text);
    let examples = serde_json::to_string_pretty(&examples).unwrap() + "\n";
    assert_written("../src/commands/explain/examples.json", &examples);
}

fn title(topic: &Topic) -> String {
    topic.name.replace('-', " ")
}

fn link(id: &str) -> String {
    format!("[`{id}`](#{id})")
}

fn section(rule: &Rule, example: &RuleExample) -> String {
    let mut text = format!("\n### {}\n\n", rule.id);
    let mut item = |name: &str, value: &str| {
        writeln!(text, "- **{name}**: {value}").unwrap();
    };
    item("rule", &markdown(rule.summary));
    item("why", &markdown(rule.why));
    let kinds = rule.kinds().join(", ");
    let verbs = operations(rule).join(", ").to_lowercase();
    item("checks", &format!("{kinds} on {verbs}"));
    item("default action", &format!("{:?}", rule.action).to_lowercase());
    if rule.topology == InTopology::Strands {
        let why = "the rule only warns, except for a new Cluster whose class has no patches; it also only warns if the topology \
                   controller writes a new version";
        item("in the topology of a Cluster", why);
    }
    let is_overridable = if rule.overridable { "yes" } else { "no" };
    item("override", is_overridable);
    let is_exported = match rule.cel.no_cel() {
        None => "yes".to_owned(),
        Some(why) => format!("no: {}", why.as_str()),
    };
    item("policy", &is_exported);
    item("source", &markdown(rule.source));
    let message = &example.messages[0];
    writeln!(text, "\n```text\n{message}\n```").unwrap();
    text
}

fn rule_example(topic: &Topic, rule: &Rule) -> RuleExample {
    let rejected = rejected_example(topic, rule);
    let accepted = accepted_example(topic, &rejected);
    let findings = &rejected.findings;
    let mut remedies: Vec<String> = Vec::new();
    for finding in findings {
        let remedy = &finding.fault.remedy;
        if !remedies.iter().any(|other| other == remedy) {
            remedies.push(remedy.to_string());
        }
    }
    let messages = findings
        .iter()
        .map(|finding| format!("{}: {}", finding.fault.field, finding.message()));
    RuleExample {
        accepted: example_text(accepted.case),
        rejected: example_text(rejected.case),
        is_denied: findings.iter().any(|finding| finding.action == Action::Deny),
        messages: messages.collect(),
        remedies,
    }
}

/// A test case, with what all admission rules find in it.
struct Example {
    case: &'static Case,
    base: Base,
    findings: Vec<Finding>,
}

/// All test cases of a topic, each with what all rules find in it.
fn examples(topic: &Topic) -> impl Iterator<Item = Example> {
    cases_of(topic).iter().map(|case| {
        let row = case.rows().next().unwrap();
        Example {
            case,
            base: row.base,
            findings: row.judge().unwrap(),
        }
    })
}

/// The first test case in which this rule finds a problem, without what other rules find.
fn rejected_example(topic: &Topic, rule: &Rule) -> Example {
    let rejected = examples(topic).find_map(|mut example| {
        example.findings.retain(|finding| finding.rule.id == rule.id);
        (!example.findings.is_empty()).then_some(example)
    });
    rejected.unwrap_or_else(|| panic!("{} has no rejected case in its topic", rule.id))
}

/// The test case without a finding that is most similar to the rejected one, by kind, operation and fields.
fn accepted_example(topic: &Topic, rejected: &Example) -> Example {
    let fields = |example: &Example| fields(example.case);
    let meant = fields(rejected);
    let accepted = examples(topic).filter(|example| example.findings.is_empty());
    // Reverse the order, because `max_by_key` returns the last maximum, and the first test cases are the simplest.
    let accepted: Vec<_> = accepted.collect();
    let nearest = accepted.into_iter().rev().max_by_key(|example| {
        let given = fields(example);
        (
            discriminant(&example.base) == discriminant(&rejected.base),
            example.case.operation() == rejected.case.operation(),
            given.intersection(&meant).count(),
            Reverse(given.difference(&meant).count()),
        )
    });
    nearest.unwrap_or_else(|| panic!("{} has no accepted case", topic.name))
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
    collect_fields(&serde_json::from_str(patch).unwrap(), "", fields);
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
    let example_text: String = characters.by_ref().take(MAX_EXAMPLE_CHARS).collect();
    if characters.next().is_some() {
        example_text + "…"
    } else {
        example_text
    }
}

#[test]
fn the_accepted_example_is_near_the_rejected_one() {
    for (id, near) in [
        ("version-skips-minor", "accepts_next_minor"),
        ("control-plane-in-use", "accepts_deletion_without_workers"),
        ("max-surge-zero-below-three", "accepts_max_surge_0_with_three"),
    ] {
        let has_rule = |topic: &&Topic| topic.rules.iter().any(|rule| rule.id == id);
        let topic = TOPICS.iter().find(has_rule).unwrap();
        let rule = rules().find(|rule| rule.id == id).unwrap();
        let rejected = rejected_example(topic, rule);
        let accepted = accepted_example(topic, &rejected);
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
