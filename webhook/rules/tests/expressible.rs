//! Each case lists exactly the API versions that have the fields it writes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: they may panic")]

use std::{collections::BTreeMap, fs, path::Path};

use kcp_rules::testing::{
    case::{Answer, Base, CONTROL_PLANES, Case, TEMPLATES, V1BETA1, Write},
    cases::cases,
    row::Row,
};
use serde_json::{Map, Value};

/// The fields of an API version with their types and constraints. `[]` is an element of a list, `{}` a value of a map.
struct Definition {
    fields: BTreeMap<String, Field>,
    /// Whether required fields must be present.
    complete: bool,
}

struct Field {
    kind: String,
    constraints: String,
}

impl Definition {
    fn of(base: Base, complete: bool) -> Self {
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
        let fields = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let mut columns = line.split('\t').map(str::to_owned);
            let mut column = || columns.next().unwrap_or_default();
            (
                column(),
                Field {
                    kind: column(),
                    constraints: column(),
                },
            )
        });
        Self {
            fields: fields.collect(),
            complete,
        }
    }

    /// The first path of a merge patch that does not exist in the version, has another type, or violates the schema.
    fn lacks(&self, path: &str, value: &Value) -> Option<String> {
        // Every object has metadata. Our CRD for clusters without Hive preserves any platform, as the rules do.
        if path.starts_with("metadata") || path == "spec.platform" {
            return None;
        }
        if path.is_empty() {
            return self.lacks_one(value.as_object()?, str::to_owned);
        }
        let here = || Some(path.to_owned());
        let Some(Field { kind, constraints }) = self.fields.get(path) else {
            return here();
        };
        if self.complete && !self.is_complete(path, value, constraints) {
            return here();
        }
        match (kind.as_str(), value) {
            ("object", Value::Object(fields)) if self.fields.contains_key(&format!("{path}{{}}")) => {
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
            _ => here(),
        }
    }

    fn lacks_one(&self, fields: &Map<String, Value>, path: impl Fn(&str) -> String) -> Option<String> {
        fields
            .iter()
            .find_map(|(name, value)| self.lacks(&path(name), value))
    }

    fn is_complete(&self, path: &str, value: &Value, constraints: &str) -> bool {
        let Some(fields) = value.as_object() else {
            return !(value.is_null() && constraints.contains("required"));
        };
        if fields.is_empty() && constraints.contains("minProperties=1") {
            return false;
        }
        // `[has(self.a),has(self.b)].filter(x,x==true).size() == 1`
        if constraints.contains(".size() == 1") {
            let given = fields
                .keys()
                .filter(|name| constraints.contains(&format!("has(self.{name})")));
            if given.count() != 1 {
                return false;
            }
        }
        // Outside of lists, the patch may be merged into an object that has the required fields.
        !path.ends_with("[]") || {
            let required = self
                .fields
                .range(format!("{path}.")..)
                .map_while(|(child, field)| {
                    let name = child.strip_prefix(path)?.strip_prefix('.')?;
                    Some((name, field))
                });
            required
                .filter(|(name, field)| !name.contains(['.', '[']) && field.constraints.contains("required"))
                .all(|(name, _)| fields.contains_key(name))
        }
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

/// The first path that the case writes and that does not exist in the version of `base`.
fn lacks(case: &Case, base: Base) -> Option<String> {
    // A denied case may lack required fields, because that is why it is denied.
    let answer = case.rows().next().unwrap().answer().unwrap();
    let definition = Definition::of(base, answer != Answer::Deny);
    patches(case.write)
        .iter()
        .find_map(|patch| definition.lacks("", patch))
}

#[test]
fn every_case_lists_the_versions_that_have_its_fields() {
    let mut wrong = Vec::new();
    for case in cases() {
        for base in versions(case) {
            let Case {
                name, bases, answer, ..
            } = case;
            match lacks(case, base) {
                // If a version does not have the field, the case itself states the answer.
                Some(path) if bases.contains(&base) && answer.is_none() => {
                    wrong.push(format!("{name}: {base:?} has no {path}"));
                }
                None if !bases.contains(&base) && finds_the_same(case, base) => {
                    wrong.push(format!("{name} also applies to {base:?}"));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The base objects of all versions of the kind.
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
