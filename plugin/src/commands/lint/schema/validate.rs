//! Compares an object with its schema, as an API server does: it drops unknown fields and null, and then rejects wrong values.

use std::collections::HashSet;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use kcp_rules::{syntax::parse_go_duration, topics::misspelled};
use serde_json::Value;

use super::structural::{Format, ListType, Schema, Type};
use crate::commands::lint::{
    document::{LocatedValue, YamlNode},
    substitution::is_placeholder,
};

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ViolationKind {
    /// The API server drops the field. Contains the name of the field that was probably meant.
    Unknown {
        nearest: Option<&'static str>,
    },
    /// The field has another type. Contains the expected type with its article.
    Type {
        expected: &'static str,
    },
    Missing,
    /// The value is none of those that the field may have.
    Unsupported(&'static [Value]),
    /// An earlier item of the list has the same values of these keys. Without keys, the two items are equal.
    Duplicate(&'static [String]),
    /// The value has the right type, but is not allowed. Contains what is wrong and what to do.
    Value(String),
}

#[derive(Clone, Debug)]
pub(super) struct Violation<'o> {
    /// The path of the field, such as `spec.files[0].path`.
    pub(super) path: String,
    /// The value; if the field is missing, the object without it.
    pub(super) value: &'o LocatedValue,
    pub(super) problem: ViolationKind,
}

/// All violations, in the order of the fields.
pub(super) fn violations<'o>(
    schema: &'static Schema,
    value: &'o LocatedValue,
    path: &str,
) -> Vec<Violation<'o>> {
    let mut validator = Validator::default();
    validator.value(schema, value, path);
    validator.found
}

#[derive(Debug, Default)]
struct Validator<'o> {
    found: Vec<Violation<'o>>,
}

impl<'o> Validator<'o> {
    fn add(&mut self, path: &str, value: &'o LocatedValue, problem: ViolationKind) {
        self.found.push(Violation {
            path: path.to_owned(),
            value,
            problem,
        });
    }

    fn value(&mut self, schema: &'static Schema, value: &'o LocatedValue, path: &str) {
        let schema = schema.resolved();
        match &value.node {
            YamlNode::Scalar(Value::String(text)) if is_placeholder(text) => {}
            YamlNode::Scalar(scalar) if schema.accepts(Type::of(scalar)) => {
                if let Err(why) = check_scalar(schema, scalar) {
                    self.add(path, value, ViolationKind::Value(why));
                } else if !schema.allowed.is_empty() && !schema.allowed.contains(scalar) {
                    self.add(path, value, ViolationKind::Unsupported(&schema.allowed));
                }
            }
            YamlNode::List(items) if schema.accepts(Type::Array) => self.list(schema, items, value, path),
            YamlNode::Object(fields) if schema.accepts(Type::Object) => {
                self.object(schema, fields, value, path);
            }
            _ => {
                let expected = schema.type_name();
                self.add(path, value, ViolationKind::Type { expected });
            }
        }
    }

    fn object(
        &mut self,
        schema: &'static Schema,
        fields: &'o [(String, LocatedValue)],
        value: &'o LocatedValue,
        path: &str,
    ) {
        // An API server counts only the fields that it keeps.
        let mut kept = 0;
        for (name, field) in fields {
            match (schema.properties.get(name), &schema.additional_properties) {
                (Some(_), _) | (_, Some(_)) if field.is_null() => {}
                (Some(known), _) => {
                    kept += 1;
                    self.value(known, field, &join(path, name));
                }
                (None, Some(each)) => {
                    kept += 1;
                    self.value(each, field, &format!("{path}[{name}]"));
                }
                (None, None) if schema.keeps_unknown_fields => kept += 1,
                (None, None) => {
                    let nearest = nearest(schema, name, fields);
                    self.add(&join(path, name), field, ViolationKind::Unknown { nearest });
                }
            }
        }
        let is_set = |name: &String| {
            fields
                .iter()
                .any(|(field, value)| field == name && !value.is_null())
        };
        for name in schema.required.iter().filter(|name| !is_set(name)) {
            self.add(&join(path, name), value, ViolationKind::Missing);
        }
        if schema.min_properties.is_some_and(|min| kept < min) {
            let why = "must have at least one field that the API server knows; set one, or remove the object";
            self.add(path, value, ViolationKind::Value(why.to_owned()));
        }
    }

    fn list(
        &mut self,
        schema: &'static Schema,
        items: &'o [LocatedValue],
        value: &'o LocatedValue,
        path: &str,
    ) {
        if let Err(why) = check_count(items.len(), schema.min_items, schema.max_items, "item") {
            self.add(path, value, ViolationKind::Value(why));
        }
        let mut keys = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if let Some(each) = &schema.items {
                self.value(each, item, &path);
            }
            if key(schema, item).is_some_and(|key| !keys.insert(key)) {
                self.add(&path, item, ViolationKind::Duplicate(&schema.list_keys));
            }
        }
    }
}

/// What makes an item of a list unique; `None` if items may be equal.
fn key(schema: &Schema, item: &LocatedValue) -> Option<String> {
    match schema.list_type? {
        ListType::Set => Some(item.to_json().to_string()),
        ListType::Map => {
            let keys = schema.list_keys.iter();
            let values: Option<Vec<_>> = keys
                .map(|key| item.get(key).map(|value| value.to_json().to_string()))
                .collect();
            values.map(|values| values.join(","))
        }
    }
}

/// The known field that was probably meant, unless the object has it.
fn nearest(schema: &'static Schema, name: &str, fields: &[(String, LocatedValue)]) -> Option<&'static str> {
    let unset = schema.properties.keys().map(String::as_str);
    let unset = unset.filter(|known| !fields.iter().any(|(field, _)| field == known));
    misspelled(name, unset)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn check_scalar(schema: &Schema, value: &Value) -> Result<(), String> {
    if let Some(text) = value.as_str() {
        // An API server counts characters, not bytes.
        check_count(
            text.chars().count(),
            schema.min_length,
            schema.max_length,
            "character",
        )?;
        check_format(schema, text)?;
    }
    // The derived schemas leave out the format int32, which every integer outside of the status has. So these limits apply to every
    // integer.
    let [least, most] = [i32::MIN, i32::MAX].map(f64::from);
    let [least, most] = [least, most].map(|limit| (schema.kind == Some(Type::Integer)).then_some(limit));
    match value.as_f64() {
        Some(number) => check_range(number, schema.minimum.or(least), schema.maximum.or(most)),
        None => Ok(()),
    }
}

fn check_format(schema: &Schema, text: &str) -> Result<(), String> {
    match &schema.pattern {
        Some(pattern) if !pattern.matches(text) => return Err(format!("must {}", words(&pattern.text))),
        _ => {}
    }
    match schema.format {
        Some(Format::DateTime) if text.parse::<Timestamp>().is_err() => {
            Err("must be a time in RFC 3339 format, such as 2030-01-01T00:00:00Z".to_owned())
        }
        Some(Format::Byte) if BASE64_STANDARD.decode(text).is_err() => {
            Err("must be encoded in Base64".to_owned())
        }
        Some(Format::Duration) => check_duration(text),
        _ => Ok(()),
    }
}

/// How the regular expressions of the schemas begin, and what they require. The first row that fits counts.
const PATTERNS: [(&str, &str); 8] = [
    (
        "^(([A-Za-z0-9]",
        "have only letters, digits, '-', '_' and '.', and begin and end with a letter or digit",
    ),
    ("^([a-z0-9]", "be a name such as Ready or example.com/Ready"),
    (r"^(\+|-)?", "be a quantity such as 1, 500m or 2Gi"),
    (
        "^[a-zA-Z]",
        "have only letters, digits and '-', and begin with a letter",
    ),
    (r"^\[[0-9]", "be a range such as [1-3]"),
    (
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "have only lowercase letters, digits and '-', and begin and end with a letter or digit",
    ),
    (
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "have only lowercase letters, digits, '-' and '.', and begin and end with a letter or digit",
    ),
    ("^[a-z0-9]", "be a group and a version such as example.com/v1"),
];

/// What a regular expression requires, after "must".
fn words(pattern: &str) -> &'static str {
    let mut known = PATTERNS.iter().filter(|(start, _)| pattern.starts_with(start));
    known
        .next()
        .map_or("match the pattern of its schema", |(_, words)| words)
}

/// Units that users write but that Go does not have, and their length in hours.
const LONG_UNITS: [(char, u64); 2] = [('d', 24), ('w', 7 * 24)];

/// Whether Cluster API can decode a duration, whose type is `metav1.Duration`.
pub(super) fn check_duration(text: &str) -> Result<(), String> {
    if parse_go_duration(text.strip_prefix(['+', '-']).unwrap_or(text)).is_some() {
        return Ok(());
    }
    let mut in_hours = LONG_UNITS.iter().filter_map(|(unit, hours)| {
        let number: u64 = text.strip_suffix(*unit)?.trim_end().parse().ok()?;
        number.checked_mul(*hours)
    });
    let remedy = match (in_hours.next(), text.parse::<u64>()) {
        (Some(hours), _) => format!("; write {hours}h"),
        (None, Ok(number)) => format!("; write {number}s for seconds, or {number}m for minutes"),
        (None, Err(_)) => String::new(),
    };
    Err(format!(
        "must be a number and a unit, such as 90s, 5m or 1h30m{remedy}"
    ))
}

fn check_range(number: f64, min: Option<f64>, max: Option<f64>) -> Result<(), String> {
    match (min, max) {
        (Some(min), _) if number < min => Err(format!("must be at least {min}")),
        (_, Some(max)) if number > max => Err(format!("must be at most {max}")),
        _ => Ok(()),
    }
}

fn check_count(count: usize, min: Option<usize>, max: Option<usize>, noun: &str) -> Result<(), String> {
    match (min, max) {
        (Some(1), _) if count == 0 => Err("must not be empty; set a value, or remove the field".to_owned()),
        (Some(min), _) if count < min => Err(format!("must have at least {min} {noun}s")),
        (_, Some(max)) if count > max => Err(format!("must have at most {max} {noun}s")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::{any, proptest};
    use serde_json::{Value, json};

    use super::{PATTERNS, ViolationKind, check_duration, violations, words};
    use crate::commands::lint::{document, schema::structural::Schema};

    const KIND: (&str, &str) = ("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane");

    /// A control plane without a violation, and the JSON pointer and value of a change to it.
    fn changed(pointer: &str, value: &Value) -> Value {
        let mut object = json!({
            "apiVersion": KIND.0,
            "kind": KIND.1,
            "metadata": {"name": "a"},
            "spec": {
                "version": "v1.34.2",
                "machineTemplate": {"spec": {"infrastructureRef": {"apiGroup": "g.io", "kind": "K", "name": "n"}}},
                "kubeadmConfigSpec": {"verbosity": 1},
            },
        });
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[name] = value.clone();
        object
    }

    fn found(object: &Value) -> Vec<(String, ViolationKind)> {
        let object = document::parse(object.to_string().as_bytes()).remove(0).unwrap();
        let schema = Schema::of_kind(KIND.0, KIND.1).unwrap();
        let found = violations(schema, &object, "").into_iter();
        found
            .map(|violation| (violation.path, violation.problem))
            .collect()
    }

    #[test]
    fn accepts_what_an_api_server_accepts() {
        for (pointer, value) in [
            ("/metadata/name", json!("a.b-c")),
            ("/metadata/labels", json!({"a": null})),
            ("/metadata/finalizers", json!(["a"])),
            ("/spec/replicas", json!(null)),
            ("/spec/replicas", json!(3.0)),
            ("/spec/replicas", json!("${REPLICAS}")),
            ("/spec/rollout", json!({"after": "2030-01-01T00:00:00Z"})),
            (
                "/spec/rollout",
                json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "1"}}}),
            ),
            (
                "/spec/kubeadmConfigSpec/clusterConfiguration",
                json!({"imageRepository": "é".repeat(512)}),
            ),
            ("/spec/machineTemplate/metadata", json!({"labels": {"a": ""}})),
            ("/spec/machineTemplate/metadata", json!({"labels": {"a": null}})),
            ("/status", json!({"a": 1})),
        ] {
            assert_eq!(found(&changed(pointer, &value)), [], "{pointer} {value}");
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn rejects_what_an_api_server_rejects_or_drops() {
        let value = |text: &str| ViolationKind::Value(text.to_owned());
        let unknown = |nearest| ViolationKind::Unknown { nearest };
        let arguments = |arguments: Value| json!({"scheduler": {"extraArgs": arguments}});
        let empty = "must not be empty; set a value, or remove the field";
        let rolling_update: &[Value] = Vec::leak(vec![json!("RollingUpdate")]);
        let name_and_value: &[String] = Vec::leak(vec!["name".to_owned(), "value".to_owned()]);
        for (pointer, given, path, problem) in [
            ("/spec/versoin", json!("v1"), "spec.versoin", unknown(None)),
            (
                "/spec/replica",
                json!(3),
                "spec.replica",
                unknown(Some("replicas")),
            ),
            ("/spec/foo", json!(null), "spec.foo", unknown(None)),
            ("/Spec", json!({}), "Spec", unknown(None)),
            (
                "/spec/version",
                json!(null),
                "spec.version",
                ViolationKind::Missing,
            ),
            ("/spec/version", json!(""), "spec.version", value(empty)),
            (
                "/spec/replicas",
                json!("3"),
                "spec.replicas",
                ViolationKind::Type {
                    expected: "an integer",
                },
            ),
            (
                "/spec/replicas",
                json!(3.5),
                "spec.replicas",
                ViolationKind::Type {
                    expected: "an integer",
                },
            ),
            (
                "/spec/kubeadmConfigSpec",
                json!([]),
                "spec.kubeadmConfigSpec",
                ViolationKind::Type {
                    expected: "an object",
                },
            ),
            (
                "/spec/rollout",
                json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": true}}}),
                "spec.rollout.strategy.rollingUpdate.maxSurge",
                ViolationKind::Type {
                    expected: "an integer or a string",
                },
            ),
            (
                "/spec/rollout",
                json!({"strategy": {"type": "InPlace"}}),
                "spec.rollout.strategy.type",
                ViolationKind::Unsupported(rolling_update),
            ),
            (
                "/spec/rollout",
                json!({"after": "tomorrow"}),
                "spec.rollout.after",
                value("must be a time in RFC 3339 format, such as 2030-01-01T00:00:00Z"),
            ),
            (
                "/spec/rollout",
                json!({"before": {"certificatesExpiryDays": 6}}),
                "spec.rollout.before.certificatesExpiryDays",
                value("must be at least 7"),
            ),
            (
                "/spec/kubeadmConfigSpec/clusterConfiguration",
                arguments(json!([{"name": "v", "value": "1"}, {"value": "1", "name": "v"}])),
                "spec.kubeadmConfigSpec.clusterConfiguration.scheduler.extraArgs[1]",
                ViolationKind::Duplicate(name_and_value),
            ),
            (
                "/spec/kubeadmConfigSpec/clusterConfiguration",
                arguments(json!([{"name": "v"}])),
                "spec.kubeadmConfigSpec.clusterConfiguration.scheduler.extraArgs[0].value",
                ViolationKind::Missing,
            ),
            (
                "/spec/kubeadmConfigSpec/clusterConfiguration",
                arguments(json!([])),
                "spec.kubeadmConfigSpec.clusterConfiguration.scheduler.extraArgs",
                value(empty),
            ),
            (
                "/spec/kubeadmConfigSpec/clusterConfiguration",
                json!({"imageRepository": "é".repeat(513)}),
                "spec.kubeadmConfigSpec.clusterConfiguration.imageRepository",
                value("must have at most 512 characters"),
            ),
            (
                "/spec/kubeadmConfigSpec",
                json!({"verbosity": null}),
                "spec.kubeadmConfigSpec",
                value(
                    "must have at least one field that the API server knows; set one, or remove the object",
                ),
            ),
            (
                "/metadata/labels",
                json!({"a": 1}),
                "metadata.labels[a]",
                ViolationKind::Type { expected: "a string" },
            ),
            (
                "/metadata/name",
                json!("<no value>"),
                "metadata.name",
                value(
                    "must have only lowercase letters, digits, '-' and '.', and begin and end with a letter or digit",
                ),
            ),
        ] {
            let object = changed(pointer, &given);
            let expected = (path.to_owned(), problem);
            assert_eq!(found(&object), [expected], "{pointer} {given}");
        }
    }

    /// A new pattern may begin as another one.
    #[test]
    fn says_what_each_pattern_requires() {
        let data = include_str!("cluster-api.json");
        let texts = data.split("\"pattern\":").skip(1);
        let patterns = texts.map(|text| {
            let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
            values.next().unwrap().unwrap()
        });
        let patterns: BTreeSet<_> = patterns.collect();
        let known: BTreeSet<_> = patterns.iter().map(|pattern| words(pattern)).collect();
        assert_eq!((patterns.len(), known.len()), (9, 8), "{patterns:?}");
        assert!(
            known
                .iter()
                .all(|words| PATTERNS.iter().any(|(_, known)| known == words))
        );
    }

    #[test]
    fn reads_durations_as_cluster_api_does() {
        const SYNTAX: &str = "must be a number and a unit, such as 90s, 5m or 1h30m";
        for (text, remedy) in [
            ("5m", None),
            ("1h30m", None),
            ("0", None),
            ("-1.5s", None),
            (".5h", None),
            ("1d", Some("; write 24h")),
            ("2 w", Some("; write 336h")),
            ("20", Some("; write 20s for seconds, or 20m for minutes")),
            ("", Some("")),
            ("5min", Some("")),
            ("99999999999999999999d", Some("")),
        ] {
            let expected = remedy.map_or(Ok(()), |remedy| Err(format!("{SYNTAX}{remedy}")));
            assert_eq!(check_duration(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<String>(), number in any::<f64>()) {
            for pointer in ["/metadata/name", "/spec/version", "/spec/replicas", "/spec/rollout", "/x"] {
                found(&changed(pointer, &json!(text)));
                found(&changed(pointer, &json!({text.as_str(): [number, null]})));
            }
        }
    }
}
