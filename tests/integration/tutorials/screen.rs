//! Compares a screen of a tutorial with the output of its command.

use std::collections::BTreeSet;
use std::sync::LazyLock;

/// The line of a screen that stands for lines that the tutorial leaves out.
const LEFT_OUT: &str = "...";

/// The ids of all rules and checks.
static IDS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let rules = kcp_rules::topics::rules().map(|rule| rule.id);
    let checks = kcp_control_plane::checks::all().map(|check| check.id);
    rules.chain(checks).collect()
});

/// The rules and the checks that a text names, those of an audit with their results.
fn named(text: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for line in text.lines() {
        let words: Vec<&str> = line
            .split(|character: char| !character.is_ascii_alphanumeric() && character != '-')
            .filter(|word| !word.is_empty())
            .collect();
        if let [result @ ("PASS" | "FAIL" | "UNKNOWN"), check, ..] = words.as_slice() {
            named.insert(format!("{result} {check}"));
        }
        let ids = words.iter().filter(|word| IDS.contains(*word));
        named.extend(ids.map(|id| (*id).to_owned()));
    }
    named
}

/// Whether a word is the name of a Machine, here or in the tutorial.
pub(super) fn is_machine(word: &str) -> bool {
    let suffix = word.strip_prefix("edge-").unwrap_or_default();
    suffix.len() == 5 && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The words of a text without what differs from run to run.
pub(super) fn masked(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(masked_word).collect();
    words.join(" ")
}

fn masked_word(word: &str) -> String {
    let is_part_of_name = |character: char| character.is_ascii_alphanumeric() || character == '-';
    let mut masked = String::new();
    let mut rest = word;
    while !rest.is_empty() {
        let end = rest
            .find(|character| !is_part_of_name(character))
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        masked += &masked_name(name);
        let mut after = after.chars();
        masked.extend(after.next());
        rest = after.as_str();
    }
    masked
}

fn masked_name(name: &str) -> String {
    const LEASE_ID_BYTES: usize = 16;
    const MACHINE_BYTES: usize = 10;
    let of_pod = name
        .len()
        .checked_sub(MACHINE_BYTES)
        .map(|start| name.split_at(start));
    if let Some((component, machine)) = of_pod
        && is_machine(machine)
    {
        return format!("{component}MACHINE");
    }
    if ["sample-foo", "sample-bar"].contains(&name) {
        return "ENTRY".to_owned();
    }
    let is_duration = name.starts_with(|first: char| first.is_ascii_digit())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b"dhms".contains(&byte));
    if is_duration {
        return "#".to_owned();
    }
    let is_lease = name.len() == LEASE_ID_BYTES
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if is_lease {
        return "LEASE".to_owned();
    }
    let mut masked = String::new();
    for character in name.chars() {
        match character.is_ascii_digit() {
            true if masked.ends_with('#') => {}
            true => masked.push('#'),
            false => masked.push(character),
        }
    }
    masked
}

/// The first line of a screen that is not in the output, or the ids that only one of them names; `None` if they agree.
pub(super) fn difference(screen: &str, output: &str) -> Option<String> {
    let found = masked(output);
    let mut lines = screen.lines().filter(|line| *line != LEFT_OUT);
    if let Some(line) = lines.find(|line| !found.contains(&masked(line))) {
        return Some(format!("the output does not have the line: {line}"));
    }
    let (of_screen, of_output) = (named(screen), named(output));
    let is_whole = !screen.lines().any(|line| line == LEFT_OUT);
    (is_whole && of_screen != of_output)
        .then(|| format!("the output names {of_output:?}, the tutorial {of_screen:?}"))
}

#[test]
fn what_differs_from_run_to_run_is_masked() {
    for (text, expected) in [
        ("21:43:29  3/3 Machines", "#:#:# #/# Machines"),
        ("pod etcd-edge-6lg29, edge-abcde.", "pod etcd-MACHINE, MACHINE."),
        ("(17s ago), in 1h2m", "(# ago), in #"),
        ("at 2026-11-25T21:44:28Z of v1.34.2", "at #-#-#T#:#:#Z of v#.#.#"),
        ("lease k4x7qzbm2v9cdfhj of sample-foo", "lease LEASE of ENTRY"),
        ("edge-kubeconfig  edge", "edge-kubeconfig edge"),
    ] {
        assert_eq!(masked(text), expected, "{text}");
    }
}

#[test]
fn a_screen_that_differs_from_the_output_is_found() {
    let output = "edge   3/3   Degraded   etcd-no-leader\nFAIL  webhooks-deadlock\n  a b\n";
    for (screen, expected) in [
        (output, None),
        (
            "edge 5/5 Degraded etcd-no-leader\nFAIL webhooks-deadlock a\nb",
            None,
        ),
        ("edge 3/3\n...\n", None),
        (
            "edge 3/3 Healthy\n...\n",
            Some("the output does not have the line: edge 3/3 Healthy"),
        ),
        (
            "edge 3/3 Degraded\n",
            Some("the output names {\"FAIL webhooks-deadlock\", \"etcd-no-leader\"}, the tutorial {}"),
        ),
    ] {
        assert_eq!(difference(screen, output).as_deref(), expected, "{screen}");
    }
}
