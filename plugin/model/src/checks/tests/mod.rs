//! Each check: a control plane with nothing wrong passes, and what each fault comes to, to the letter.

mod etcd;
mod machines;
mod object;
mod sources;
mod workload;

use std::{collections::BTreeSet, fmt::Write as _};

pub use object::starts;

use crate::checks::CHECKS;
use crate::{
    checks::example::observed,
    control_plane::example::now,
    inspection::{Checked, Outcome, inspect::inspect},
    snapshot::Observed,
};

/// The check that a case is about, the case, and what is wrong.
type Case = (&'static str, &'static str, fn(&mut Observed));

const TOPICS: [&[Case]; 5] = [
    sources::CASES,
    object::CASES,
    etcd::CASES,
    workload::CASES,
    machines::CASES,
];

fn changed(change: fn(&mut Observed)) -> Observed {
    let mut observed = observed();
    change(&mut observed);
    observed
}

#[test]
fn ids_are_unique_and_kebab_case() {
    let ids: BTreeSet<&str> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(ids.len(), CHECKS.len());
    for id in ids {
        assert!(
            id.chars().all(|c| c.is_ascii_lowercase() || c == '-'),
            "{id} is not kebab-case"
        );
    }
}

#[test]
fn a_control_plane_with_nothing_wrong_passes_every_check() {
    let observed = observed();
    for check in CHECKS {
        let expected = Checked {
            id: check.id,
            outcome: Outcome::Pass,
            reason: None,
            findings: vec![],
        };
        assert_eq!(check.run(&observed, now()), expected);
    }
}

#[test]
fn every_check_has_a_case_in_which_it_does_not_pass() {
    for check in CHECKS {
        let mut cases = TOPICS.concat().into_iter().filter(|case| case.0 == check.id);
        let finds = |(_, _, change): Case| {
            let outcome = check.run(&changed(change), now()).outcome;
            outcome > Outcome::Skipped
        };
        assert!(cases.any(finds), "{} never finds anything", check.id);
    }
}

/// What a case comes to: what its check says, which others say something, and the verdict.
fn told((id, name, change): Case) -> String {
    let inspection = inspect(&changed(change), now());
    let mut text = format!("{id}: {name}: {}\n", inspection.health.as_str());
    let own = inspection.checks.iter().find(|checked| checked.id == id);
    let own = own.unwrap_or_else(|| panic!("there is no check {id}"));
    let outcome = format!("{:?}", own.outcome).to_lowercase();
    let reason = own
        .reason
        .as_ref()
        .map_or(String::new(), |reason| format!(": {reason}"));
    writeln!(text, "  {outcome}{reason}").expect("text");
    for finding in &own.findings {
        let outcome = format!("{:?}", finding.outcome).to_lowercase();
        writeln!(
            text,
            "  {outcome} {}: {}",
            finding.objects.join(" "),
            finding.message
        )
        .expect("text");
        if let Some(hint) = &finding.hint {
            writeln!(text, "    hint: {hint}").expect("text");
        }
    }
    let others: Vec<String> = inspection
        .checks
        .iter()
        .filter(|checked| checked.id != id && checked.outcome != Outcome::Pass)
        .map(|checked| format!("{} {:?}", checked.id, checked.outcome).to_lowercase())
        .collect();
    if !others.is_empty() {
        writeln!(text, "  beside: {}", others.join(", ")).expect("text");
    }
    text
}

#[test]
fn what_each_fault_comes_to() {
    let names: Vec<_> = TOPICS.concat().iter().map(|(id, name, _)| (*id, *name)).collect();
    let unique: BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "two cases have one name");
    for (topic, cases) in ["sources", "object", "etcd", "workload", "machines"]
        .into_iter()
        .zip(TOPICS)
    {
        let told: Vec<String> = cases.iter().copied().map(told).collect();
        insta::assert_snapshot!(topic, told.join("\n"));
    }
}

#[test]
fn every_message_and_hint_is_one_line_about_an_object() {
    for (id, name, change) in TOPICS.concat() {
        for checked in inspect(&changed(change), now()).checks {
            for finding in checked.findings {
                assert!(!finding.objects.is_empty(), "{id} {name}");
                assert!(
                    finding.objects.iter().all(|object| !object.is_empty()),
                    "{id} {name}"
                );
                assert!(!finding.message.is_empty(), "{id} {name}");
                let texts = [Some(&finding.message), finding.hint.as_ref()];
                assert!(
                    texts.into_iter().flatten().all(|text| !text.contains('\n')),
                    "{id} {name}"
                );
            }
        }
    }
}
