//! Consistency of the rule table, its cases and the fields of the real CRDs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::format_push_string,
    clippy::format_collect,
    clippy::needless_pass_by_value,
    reason = "tests: they may panic, and speed does not matter"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use kcp_rules::{
    Judgement,
    cel::Cel,
    rule::{Check, OnUnread, Rule},
    testing::{
        case::{Base, Case, V1BETA1},
        cases::cases_of,
        row::Row,
    },
    topics::{TOPICS, rules},
    view::{Part, View},
};

fn rows() -> impl Iterator<Item = (&'static str, Row<'static>)> {
    TOPICS.iter().flat_map(|topic| {
        let rows = cases_of(topic).iter().flat_map(Case::rows);
        rows.map(move |row| (topic.name, row))
    })
}

#[test]
fn every_case_finds_exactly_what_it_lists() {
    for (topic, row) in rows() {
        let found = row.judge().unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|finding| (finding.rule.id, &*finding.fault.field))
            .collect();
        let Row { case, base } = row;
        assert_eq!(found, case.findings, "{topic}: {} of {base:?}", case.name);
    }
}

/// What the rules that read exactly these objects find, and whether they lack an object.
fn found_by(judgement: &Judgement, reads: &[Part]) -> Vec<(&'static str, String)> {
    let findings = judgement.findings.iter();
    let findings = findings.map(|finding| (finding.rule, finding.message().to_string()));
    let unread = judgement.unread.iter().map(|rule| (*rule, "unread".to_owned()));
    let of_rules = findings.chain(unread).filter(|(rule, _)| rule.reads() == reads);
    of_rules.map(|(rule, text)| (rule.id, text)).collect()
}

/// The row of a rule names all other objects that the rule reads.
#[test]
fn a_rule_finds_the_same_with_only_the_objects_that_its_row_names() {
    let all_reads: BTreeSet<&[Part]> = rules().map(Rule::reads).collect();
    let everything = |row: &Row<'_>| {
        let mut view = (row.case.view)();
        view.assume_empty();
        view
    };
    for (topic, row) in rows() {
        let with_everything = row.judge_in(&everything(&row)).unwrap();
        for reads in &all_reads {
            let mut view = View::default();
            for &part in *reads {
                view.take(part, &mut everything(&row));
            }
            let judgement = row.judge_in(&view).unwrap();
            assert_eq!(
                found_by(&judgement, reads),
                found_by(&with_everything, reads),
                "{topic}: {} with only {reads:?}",
                row.case.name
            );
        }
    }
}

/// A rule that cannot read what it needs denies what it would deny, if users can override it, and is otherwise skipped.
#[test]
fn a_rule_never_passes_silently_what_it_could_not_read() {
    // If the Machines are unknown, version-lowered-unverified denies instead.
    const LEFT_TO_ANOTHER: [&str; 2] = ["version-lowered", "version-reverted"];
    for (topic, row) in rows() {
        let timeout = View {
            failures: vec!["could not read the Machines: timeout".to_owned()],
            ..View::default()
        };
        let unread = row.judge_in(&timeout).unwrap();
        for finding in row.judge().unwrap() {
            let rule = finding.rule;
            if rule.reads().is_empty() || LEFT_TO_ANOTHER.contains(&rule.id) {
                continue;
            }
            let actions = unread.findings.iter().filter(|unread| unread.rule.id == rule.id);
            let skipped = unread.skipped.iter().any(|skipped| skipped.id == rule.id);
            let action = actions.map(|finding| finding.action).max();
            assert!(
                skipped || action.is_some(),
                "{topic}: {}: {}",
                row.case.name,
                rule.id
            );
            if rule.on_unread() == Some(OnUnread::Deny) {
                assert!(
                    action >= Some(finding.action),
                    "{topic}: {}: {}",
                    row.case.name,
                    rule.id
                );
            }
        }
    }
}

#[test]
fn rules_that_deny_what_they_could_not_read() {
    let by_default = rules().filter(|rule| rule.on_unread() == Some(OnUnread::Deny));
    assert_eq!(
        by_default.map(|rule| rule.id).collect::<Vec<_>>(),
        [
            "version-lowered",
            "version-lowered-unverified",
            "replicas-with-upgrade",
            "replicas-during-rollout",
            "replicas-while-adopting",
            "joining-machine-outdated",
            "control-plane-in-use",
            "leader-migration-changed-during-rollout",
            "inventory-shared",
            "customization-held-by-another",
        ]
    );
}

#[test]
fn case_names_are_unique_and_start_with_the_verdict() {
    for topic in TOPICS {
        let mut names = BTreeSet::new();
        for case in cases_of(topic) {
            assert!(
                names.insert(case.name),
                "{}: {} is not unique",
                topic.name,
                case.name
            );
            let verdicts: &[&str] = if case.findings.is_empty() {
                &["accepts_"]
            } else {
                &["rejects_", "warns_"]
            };
            assert!(
                verdicts.iter().any(|verdict| case.name.starts_with(verdict)),
                "{}: {} should start with one of {verdicts:?}",
                topic.name,
                case.name,
            );
        }
    }
}

#[test]
fn every_rule_has_an_accepting_and_a_rejecting_case() {
    let mut rejected = BTreeSet::new();
    for (_, row) in rows() {
        rejected.extend(row.case.findings.iter().map(|(rule, _)| *rule));
    }
    for topic in TOPICS {
        for rule in topic.rules {
            let accepts = |row: Row<'_>| {
                let kinds = rule.check.kinds();
                row.case.findings.iter().all(|(id, _)| *id != rule.id)
                    && rule.operations.contains(&row.case.operation())
                    && row.new_object().unwrap()["kind"]
                        .as_str()
                        .is_some_and(|kind| kinds.contains(&kind))
            };
            assert!(
                cases_of(topic).iter().flat_map(Case::rows).any(accepts),
                "{} has no accepted case",
                rule.id
            );
            assert!(rejected.contains(rule.id), "{} has no rejected case", rule.id);
        }
    }
}

#[test]
fn every_rule_about_two_kinds_has_a_rejected_case_for_each() {
    let found_by = |rule: &str, is_kind: fn(Base) -> bool| {
        rows().any(|(_, row)| is_kind(row.base) && row.case.findings.iter().any(|(id, _)| *id == rule))
    };
    for rule in rules().filter(|rule| matches!(rule.check, Check::ControlPlaneSpec(_))) {
        assert!(
            found_by(rule.id, |base| matches!(base, Base::ControlPlane(_))),
            "{} has no rejected control plane",
            rule.id
        );
        assert!(
            found_by(rule.id, |base| matches!(base, Base::Template(_))),
            "{} has no rejected template",
            rule.id
        );
    }
}

#[test]
fn ids_are_unique_and_in_kebab_case() {
    let mut ids = BTreeSet::new();
    for rule in rules() {
        assert!(ids.insert(rule.id), "{} is not unique", rule.id);
        assert!(
            rule.id.split('-').count() >= 2,
            "{} is not <field>-<fault>",
            rule.id
        );
        assert!(
            rule.id.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !rule.id.contains("--"),
            "{} is not in kebab case",
            rule.id
        );
        assert!(
            (1..=80).contains(&rule.summary.len()),
            "the summary of {} is empty or longer than 80 characters",
            rule.id
        );
        assert!(!rule.source.is_empty(), "{} has no source", rule.id);
        assert!(
            !matches!(rule.cel, Cel::Faults("")),
            "{} says neither its CEL nor why it has none",
            rule.id
        );
        assert!(
            rule.why.ends_with('.') && rule.why.len() <= 240 && !rule.why.contains("  "),
            "{} needs a reason of one or two sentences: {}",
            rule.id,
            rule.why
        );
    }
}

/// `fixtures/fields` lists every field of the real CRDs except metadata, which every object has.
fn served_fields(file: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/fields")
        .join(file);
    fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split('\t').next())
        .chain(["metadata.name", "metadata.annotations{}"])
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_reported_path_is_a_field_of_the_crd() {
    let mut fields: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (_, Row { case, base }) in rows() {
        let file = match base {
            _ if case.in_topology => "cluster-v1beta2.txt",
            Base::ControlPlane(V1BETA1) => "kubeadmcontrolplane-v1beta1.txt",
            Base::ControlPlane(_) => "kubeadmcontrolplane-v1beta2.txt",
            Base::Template(V1BETA1) => "kubeadmcontrolplanetemplate-v1beta1.txt",
            Base::Template(_) => "kubeadmcontrolplanetemplate-v1beta2.txt",
            Base::Cluster => "cluster-v1beta2.txt",
            Base::ClusterPool => "clusterpool-v1.txt",
            Base::Customization => "clusterdeploymentcustomization-v1.txt",
            Base::ClusterDeployment => "clusterdeployment-v1.txt",
        };
        let fields = fields.entry(file).or_insert_with(|| served_fields(file));
        for (rule, path) in case.findings {
            let generic = without_indices(path);
            assert!(
                fields.contains(&generic),
                "{rule} reports {path}, and {file} has no {generic}"
            );
        }
    }
}

/// The path with `[]` for an index and `{}` for the key of a map.
fn without_indices(path: &str) -> String {
    let mut steps = path.split('[');
    let mut generic = steps.next().unwrap_or_default().to_owned();
    for step in steps {
        let (index, rest) = step.split_once(']').unwrap();
        generic.push_str(if index.parse::<usize>().is_ok() {
            "[]"
        } else {
            "{}"
        });
        generic.push_str(rest);
    }
    generic
}

/// Every message as the user reads it: field, error type, value, what is wrong, what to do, rule id.
#[test]
fn messages() {
    let mut list = String::new();
    for (topic, row) in rows().filter(|(_, row)| row.case.bases.first() == Some(&row.base)) {
        for finding in row.judge().unwrap() {
            list.push_str(&format!(
                "{topic} {}\n  {}: {}\n",
                row.case.name,
                finding.fault.field,
                finding.message()
            ));
        }
    }
    insta::assert_snapshot!(list);
}

/// Each case with the API versions that have its fields, and the answer of an API server. The integration test `rows`
/// sends all of them.
#[test]
fn answers() {
    let mut list = String::new();
    for (topic, row) in rows().filter(|(_, row)| row.case.bases.first() == Some(&row.base)) {
        let versions: Vec<_> = row.case.bases.iter().map(|base| base.version()).collect();
        list.push_str(&format!(
            "{:9} {:16} {topic} {}\n",
            row.answer().unwrap().as_str(),
            versions.join(","),
            row.case.name,
        ));
    }
    insta::assert_snapshot!(list);
}

#[test]
fn rule_list() {
    let list: String = rules()
        .map(|rule| {
            format!(
                "{:34} {:47} {:?} {}\n",
                rule.id,
                rule.kinds().join(","),
                rule.action,
                rule.summary
            )
        })
        .collect();
    insta::assert_snapshot!(list);
}
