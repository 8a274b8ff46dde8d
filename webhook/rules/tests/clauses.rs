//! The table of requirements in `clauses.md` contains every rule and no other id. A requirement without a rule says why.

use std::collections::BTreeSet;

use kcp_rules::topics::rules;

const CLAUSES: &str = include_str!("../clauses.md");

/// The rule ids in the second column of a row.
fn ids(row: &str) -> BTreeSet<&str> {
    let quoted = row.split('`').skip(1).step_by(2);
    quoted
        .filter(|word| rules().any(|rule| rule.id == *word))
        .collect()
}

#[test]
fn every_clause_has_a_rule_and_every_rule_a_clause() {
    let rows = CLAUSES.lines().filter_map(|line| {
        let (clause, answered) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        (clause != "requirement").then_some((clause, answered))
    });
    let mut named = BTreeSet::new();
    for (clause, answered) in rows {
        let quoted = answered.split('`').skip(1).step_by(2).count();
        let ids = ids(answered);
        if let Some(reason) = answered.strip_prefix("none: ") {
            assert!(
                ids.is_empty() && !reason.is_empty(),
                "{clause} has a rule: {answered}"
            );
            continue;
        }
        assert!(!ids.is_empty(), "{clause} has no rule: {answered}");
        assert_eq!(
            ids.len(),
            quoted,
            "{clause} has an id that is no rule: {answered}"
        );
        named.extend(ids);
    }
    let all: BTreeSet<_> = rules().map(|rule| rule.id).collect();
    assert_eq!(named, all);
}
