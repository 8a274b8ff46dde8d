//! Each case names the API versions that have the fields it writes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: they may panic")]

use std::{collections::BTreeMap, fs, path::Path};

use kcp_rules::{
    case::{Answer, Base, CONTROL_PLANES, Case, Row, TEMPLATES, V1BETA1, Write},
    topics::TOPICS,
};
use serde_json::Value;

/// The fields of a served version, with their types: `[]` is a list's element, `{}` a map's value.
struct Definition(BTreeMap<String, String>);

impl Definition {
    fn of(base: Base) -> Self {
        let file = match base {
            Base::ControlPlane(V1BETA1) => "kubeadmcontrolplane-v1beta1",
            Base::ControlPlane(_) => "kubeadmcontrolplane-v1beta2",
            Base::Template(V1BETA1) => "kubeadmcontrolplanetemplate-v1beta1",
            Base::Template(_) => "kubeadmcontrolplanetemplate-v1beta2",
            Base::Cluster => "cluster-v1beta2",
            Base::ClusterPool => "clusterpool-v1",
            Base::Customization => "clusterdeploymentcustomization-v1",
            Base::ClusterDeployment => "clusterdeployment-v1",
        };
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/fixtures/fields/{file}.txt"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let fields = text.lines().filter(|line| !line.starts_with('#'));
        let fields = fields.filter_map(|line| line.split_once('\t'));
        let type_of = |rest: &str| rest.split('\t').next().unwrap_or_default().to_owned();
        Self(
            fields
                .map(|(path, rest)| (path.to_owned(), type_of(rest)))
                .collect(),
        )
    }

    /// The first path of a merge patch that the version does not have, or has as another type.
    fn lacks(&self, path: &str, value: &Value) -> Option<String> {
        if path.starts_with("metadata") {
            return None;
        }
        let Some(kind) = self.0.get(path).filter(|_| !path.is_empty()) else {
            return match value {
                Value::Object(fields) if path.is_empty() => self.lacks_one(fields, str::to_owned),
                _ => Some(path.to_owned()),
            };
        };
        match (kind.as_str(), value) {
            ("object", Value::Object(fields)) if self.0.contains_key(&format!("{path}{{}}")) => {
                self.lacks_one(fields, |_| format!("{path}{{}}"))
            }
            ("object", Value::Object(fields)) => self.lacks_one(fields, |name| format!("{path}.{name}")),
            ("array", Value::Array(elements)) => elements
                .iter()
                .find_map(|element| self.lacks(&format!("{path}[]"), element)),
            ("any", _)
            | (_, Value::Null)
            | ("string" | "int-or-string", Value::String(_))
            | ("integer" | "int-or-string", Value::Number(_))
            | ("boolean", Value::Bool(_)) => None,
            _ => Some(path.to_owned()),
        }
    }

    fn lacks_one(
        &self,
        fields: &serde_json::Map<String, Value>,
        path: impl Fn(&str) -> String,
    ) -> Option<String> {
        fields
            .iter()
            .find_map(|(name, value)| self.lacks(&path(name), value))
    }
}

fn patches(write: Write) -> Vec<Value> {
    let texts = match write {
        Write::Create(patch) | Write::Scale(patch, _) | Write::Delete(patch) => vec![patch],
        Write::Update(old, new) => vec![old, new],
    };
    texts
        .iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect()
}

/// The first path that the case writes and the version of `base` does not have.
fn lacks(case: &Case, base: Base) -> Option<String> {
    let definition = Definition::of(base);
    patches(case.write)
        .iter()
        .find_map(|patch| definition.lacks("", patch))
}

#[test]
fn every_case_is_of_the_versions_that_have_its_fields() {
    let mut wrong = Vec::new();
    for case in TOPICS.iter().flat_map(|topic| topic.cases) {
        for base in versions(case) {
            let Case {
                name, bases, answer, ..
            } = case;
            match lacks(case, base) {
                // What a definition does not have, its schema answers for.
                Some(path) if bases.contains(&base) && *answer != Some(Answer::Schema) => {
                    wrong.push(format!("{name}: {base:?} has no {path}"));
                }
                None if !bases.contains(&base) && finds_the_same(case, base) => {
                    wrong.push(format!("{name} is of {base:?} too"));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The base of each version of its kind.
fn versions(case: &Case) -> Vec<Base> {
    match case.bases {
        [Base::ControlPlane(_), ..] => CONTROL_PLANES.to_vec(),
        [Base::Template(_), ..] => TEMPLATES.to_vec(),
        bases => bases.to_vec(),
    }
}

fn finds_the_same(case: &Case, base: Base) -> bool {
    let found = Row { case, base }.judge().unwrap();
    let found = found
        .iter()
        .map(|finding| (finding.rule.id, &*finding.fault.field));
    found.eq(case.findings.iter().copied())
}
