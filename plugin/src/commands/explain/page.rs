//! The part of `docs/src/reference/rules.md` that describes every rule.

use std::fmt::Write as _;

use kcp_control_plane::testing::page::{assert_generated, markdown};
use kcp_rules::{
    InTopology, Rule,
    topics::{TOPICS, Topic},
};

use super::rule::ExplainedRule;
use crate::commands::rules::list::operations;

#[test]
fn the_page_describes_every_rule() {
    let mut text = "\n| topic | rules |\n|---|---|\n".to_owned();
    for topic in TOPICS {
        let links: Vec<String> = topic.rules.iter().map(|rule| link(rule.id)).collect();
        writeln!(text, "| {} | {} |", title(topic), links.join(", ")).unwrap();
    }
    for topic in TOPICS {
        // No rule has an id of this form, so that the anchor of a rule is its id.
        writeln!(text, "\n## About {}", title(topic)).unwrap();
        for rule in topic.rules {
            text += &section(rule);
        }
    }
    assert_generated("reference/rules.md", &text);
}

fn title(topic: &Topic) -> String {
    topic.name.replace('-', " ")
}

fn link(id: &str) -> String {
    format!("[`{id}`](#{id})")
}

fn section(rule: &'static Rule) -> String {
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
        let why = "the rule only warns, unless the Cluster is new and its class has no patches; it also only warns of a new version \
                   that the topology controller writes";
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
    let example = ExplainedRule::new(rule);
    let message = example.messages().next().unwrap();
    writeln!(text, "\n```text\n{message}\n```").unwrap();
    text
}
