//! The part of `docs/src/reference/checks.md` that describes every check, and the examples in `checks/examples.json`.

use std::{cmp::Reverse, fmt::Write as _};

use super::{cases, changed};
use crate::{
    checks::{
        Check, TOPICS,
        actor::{Actor, Responsible},
        example::{CheckExample, Examples, facts},
        finding::Finding,
    },
    snapshot::Snapshot,
    testing::{
        objects::now,
        page::{assert_generated, assert_written, markdown},
    },
};

/// The title of each topic, in the order of [`TOPICS`].
const TITLES: [&str; 21] = [
    "Whether each source could be read",
    "Conditions of the control plane",
    "Pauses, deletion, failures and owners",
    "Writes of the controller that fail",
    "Pending changes and their progress",
    "Deletions that block each other",
    "Evictions from nodes",
    "Members that vote before their Machine has a node",
    "Machines and their nodes",
    "Nodes without a Machine",
    "Failure domains",
    "Changes of members that etcd refuses",
    "Quorum of etcd",
    "Whether the members of etcd agree",
    "Members of etcd",
    "Databases and versions of etcd",
    "Components on each node",
    "What kubeadm gives to joining Machines",
    "The workload cluster",
    "Unhealthy Machines and their health checks",
    "Secrets and certificates",
];

#[test]
fn the_page_describes_every_check() {
    assert_eq!(TITLES.len(), TOPICS.len());
    let topics = || TITLES.into_iter().zip(TOPICS.iter().copied());
    let mut text = "\n| topic | checks |\n|---|---|\n".to_owned();
    for (title, checks) in topics() {
        let links: Vec<String> = checks.iter().map(|check| link(check.id)).collect();
        writeln!(text, "| {title} | {} |", links.join(", ")).expect("text");
    }
    let mut examples = Examples::new();
    for (title, checks) in topics() {
        writeln!(text, "\n## {title}").expect("text");
        for check in checks {
            let example = example(check);
            text += &section(check, &example);
            examples.insert(check.id.to_owned(), example);
        }
    }
    assert_generated("reference/checks.md", &text);
    let examples = serde_json::to_string_pretty(&examples).expect("JSON") + "\n";
    assert_written("src/checks/examples.json", &examples);
}

#[test]
fn every_meaning_is_one_sentence() {
    for check in crate::checks::all() {
        let sentence = check.meaning.strip_suffix('.').unwrap_or_default();
        assert!(
            !sentence.is_empty() && !sentence.contains(". "),
            "{}: {}",
            check.id,
            check.meaning
        );
    }
}

fn link(id: &str) -> String {
    format!("[`{id}`](#{id})")
}

fn section(check: &Check, example: &CheckExample) -> String {
    let mut text = format!("\n### {}\n\n{}\n\n", check.id, markdown(check.meaning));
    let mut item = |name: &str, value: &str| {
        writeln!(text, "- **{name}**: {value}").expect("text");
    };
    for (name, value) in facts(check, &example.actors) {
        item(name, &value);
    }
    let causes: Vec<String> = check.causes().map(link).collect();
    if !causes.is_empty() {
        item("possible causes", &causes.join(", "));
    }
    let finding = &example.finding;
    writeln!(text, "\n```text\n{}", finding.line()).expect("text");
    if let Some(hint) = &finding.hint {
        writeln!(text, "hint: {hint}").expect("text");
    }
    text + "```\n"
}

/// What the check finds in each of its cases.
fn findings(check: &Check) -> Vec<(Snapshot, Finding)> {
    let mut found = Vec::new();
    for (_, _, change) in cases().filter(|(id, _, _)| *id == check.id) {
        let observed = changed(change);
        for finding in check.run(&observed, now()).findings {
            found.push((observed.clone(), finding));
        }
    }
    found
}

/// Who can act next because of a finding.
fn actors(check: &Check) -> Vec<Actor> {
    if let Responsible::Fault(actor) | Responsible::Step(actor) = check.responsible {
        return vec![actor];
    }
    let mut actors = Vec::new();
    for (observed, finding) in findings(check) {
        let actor = check.responsible.actor(&observed, &finding, now());
        if !actors.contains(&actor) {
            actors.push(actor);
        }
    }
    actors
}

/// The first of the most severe findings, preferably one with a hint. The time of a test case says nothing.
fn example(check: &Check) -> CheckExample {
    let found = findings(check).into_iter().map(|(_, finding)| finding);
    let first = found.min_by_key(|finding| Reverse((finding.outcome, finding.hint.is_some())));
    let finding = first.unwrap_or_else(|| panic!("{} never finds anything", check.id));
    CheckExample {
        actors: actors(check),
        finding: finding.with_since(None),
    }
}
