//! No answer shows a value of `kubeadmConfigSpec`, or of a customization's patches, that may be secret. A secret is
//! planted in every field of every API version, and every message is searched for it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: they may panic"
)]

use std::{fs, path::Path, sync::LazyLock};

use kcp_rules::{
    Action, Change, Configuration, Context, HasRules,
    api::{
        ClusterDeploymentCustomization, DecodeError, KubeadmControlPlane, KubeadmControlPlaneTemplate,
        control_plane::Shape, decode,
    },
    defaulting::SetDefaults,
    feature_gates::FeatureGates,
    judge,
    testing::case::{Base, NOW, V1BETA1, V1BETA2},
    topics,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const TEXT: &str = "hunter2-S3cr3t";
const NUMBER: u64 = 87_654_321;

/// The documents, with the fields below which everything may be secret.
const PLACES: &[(Base, &str, &[&str])] = &[
    (
        Base::ControlPlane(V1BETA1),
        "kubeadmcontrolplane-v1beta1",
        &["spec.kubeadmConfigSpec"],
    ),
    (
        Base::ControlPlane(V1BETA2),
        "kubeadmcontrolplane-v1beta2",
        &["spec.kubeadmConfigSpec"],
    ),
    (
        Base::Template(V1BETA1),
        "kubeadmcontrolplanetemplate-v1beta1",
        &["spec.template.spec.kubeadmConfigSpec"],
    ),
    (
        Base::Template(V1BETA2),
        "kubeadmcontrolplanetemplate-v1beta2",
        &["spec.template.spec.kubeadmConfigSpec"],
    ),
    (
        Base::Customization,
        "clusterdeploymentcustomization-v1",
        &["spec.installConfigPatches", "spec.installerManifestPatches"],
    ),
];

/// The paths and types of the fields that may be secret. `[]` is an element of a list, `{}` a value of a map.
fn fields(file: &str, below: &[&str]) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/fixtures/fields/{file}.txt"));
    let text = fs::read_to_string(path).unwrap();
    let fields = text.lines().filter_map(|line| {
        let mut columns = line.split('\t');
        Some((columns.next()?.to_owned(), columns.next()?.to_owned()))
    });
    fields
        .filter(|(path, _)| below.iter().any(|root| path.starts_with(root)))
        .collect()
}

/// Sets a value at a generic path. Each list gets two equal elements, so that duplicates are found too. The key in a
/// map is the secret.
fn put(place: &mut Value, steps: &[&str], value: &Value) {
    let Some((step, rest)) = steps.split_first() else {
        *place = value.clone();
        return;
    };
    match *step {
        "[]" => {
            if !place.is_array() {
                *place = json!([{}, {}]);
            }
            for element in place.as_array_mut().unwrap() {
                put(element, rest, value);
            }
        }
        step => {
            if !place.is_object() {
                *place = json!({});
            }
            let key = if step == "{}" { TEXT } else { step };
            put(&mut place[key], rest, value);
        }
    }
}

fn steps(path: &str) -> Vec<String> {
    let path = path.replace("[]", ".[]").replace("{}", ".{}");
    path.split('.').map(str::to_owned).collect()
}

fn planted(object: &Value, path: &str, value: &Value) -> Value {
    let mut object = object.clone();
    let steps = steps(path);
    let steps: Vec<_> = steps.iter().map(String::as_str).collect();
    put(&mut object, &steps, value);
    object
}

/// Every rule denies, with both settings of the feature gates.
static CONFIGURATIONS: LazyLock<[Configuration; 2]> = LazyLock::new(|| {
    [false, true].map(|is_on| Configuration {
        rules: topics::rules()
            .map(|rule| (rule.id.to_owned(), Action::Deny))
            .collect(),
        feature_gates: FeatureGates {
            ignition: is_on,
            machine_taints: is_on,
        },
        ..Configuration::default()
    })
});

fn messages<'a, T: HasRules + SetDefaults + Deserialize<'a>>(
    old: &'a str,
    new_text: &'a str,
) -> Result<Vec<String>, DecodeError> {
    let (old, new): (T, T) = (decode(old)?, decode(new_text)?);
    let context = Context {
        now: Some(NOW.parse().unwrap()),
        ..Context::UNKNOWN
    };
    let mut messages = Vec::new();
    let changes = [
        Change::create(&new),
        Change::update(&old, &new),
        Change::update(&new, &old),
        Change::update(&new, &new),
        Change::delete(&new),
    ];
    for change in changes.map(|change| change.with_context(context)) {
        for configuration in &*CONFIGURATIONS {
            let judgement = judge(&change, configuration);
            messages.extend(
                judgement
                    .findings
                    .iter()
                    .map(|finding| format!("{}: {}", finding.fault.field, finding.message())),
            );
            messages.extend(judgement.ignored_overrides);
        }
    }
    let (mut created, mut updated): (T, T) = (decode(new_text)?, decode(new_text)?);
    for defaulted in [created.set_defaults(None), updated.set_defaults(Some(&old))] {
        messages.extend(defaulted.corrections.iter().map(ToString::to_string));
    }
    Ok(messages)
}

/// Everything that an answer says about a write of the new object.
fn response_texts(base: Base, old: &Value, new: &Value) -> Vec<String> {
    let (old, new) = (old.to_string(), new.to_string());
    let response_texts = match base {
        Base::Template(_) => messages::<KubeadmControlPlaneTemplate>(&old, &new),
        Base::Customization => messages::<ClusterDeploymentCustomization>(&old, &new),
        _ => messages::<KubeadmControlPlane>(&old, &new),
    };
    response_texts.unwrap_or_else(|error| vec![error.to_string()])
}

fn shows_a_secret(message: &str) -> bool {
    // Also the part before the hyphen: a version is shown, and its suffix is a part of it.
    message.contains("hunter2") || message.contains(&NUMBER.to_string())
}

fn base_object(base: Base) -> Value {
    let mut object = base.object();
    if base == Base::Customization {
        let patch = json!({"op": "move", "path": "/a", "from": "/b"});
        object["spec"] = json!({
            "installConfigPatches": [patch, patch],
            "installerManifestPatches": [
                {"manifestSelector": {"glob": "*"}, "patches": [patch, patch]},
                {"manifestSelector": {"glob": "*"}, "patches": [patch, patch]},
            ],
        });
    }
    object
}

#[test]
fn a_secret_in_any_single_field_is_not_shown() {
    let (mut plants, mut told_count) = (0, 0);
    for (base, file, roots) in PLACES {
        let old = base_object(*base);
        for (path, kind) in fields(file, roots) {
            let values = [
                json!(TEXT),
                json!(NUMBER),
                json!(87_654_321.5),
                json!([TEXT, TEXT]),
                json!({ TEXT: TEXT }),
                json!(format!("a ~ /{TEXT}, expected \"x\"")),
            ];
            for value in values {
                // A number of the right type may be shown.
                if value.is_u64() && matches!(kind.as_str(), "integer" | "int-or-string") {
                    continue;
                }
                plants += 1;
                let new = planted(&old, &path, &value);
                for message in response_texts(*base, &old, &new) {
                    told_count += 1;
                    assert!(!shows_a_secret(&message), "{file} {path} {value}: {message}");
                }
            }
        }
    }
    assert!(plants > 8_000, "{plants} values were planted");
    assert!(told_count > 30_000, "{told_count} messages were searched");
}

/// Many faults need several fields at once.
#[test]
fn secrets_in_all_fields_at_once_are_not_shown() {
    for (base, file, roots) in PLACES {
        let old = base_object(*base);
        let fields = fields(file, roots);
        for format in [None, Some("ignition"), Some("cloud-config")] {
            let mut new = old.clone();
            for (path, kind) in &fields {
                let value = match kind.as_str() {
                    "string" => json!(TEXT),
                    "boolean" => json!(true),
                    "integer" | "int-or-string" => json!(60),
                    _ => continue,
                };
                new = planted(&new, path, &value);
            }
            if let Some(format) = format {
                for (path, _) in fields.iter().filter(|(path, _)| path.ends_with("Spec.format")) {
                    new = planted(&new, path, &json!(format));
                }
            }
            let response_texts = response_texts(*base, &old, &new);
            assert!(response_texts.len() > 10, "{file}: {response_texts:#?}");
            for message in response_texts {
                assert!(!shows_a_secret(&message), "{file}: {message}");
            }
        }
    }
}

/// Policies write the same messages, which an integration test compares with those of the functions. No expression
/// about these fields quotes a value except for the operation of a patch, which is one of a fixed set.
#[test]
fn no_expression_quotes_a_value_that_may_be_secret() {
    let mut checked = 0;
    for rule in topics::rules() {
        for shape in [Shape::V1Beta1, Shape::V1Beta2] {
            let Some(faults) = rule.cel.expression(shape) else {
                continue;
            };
            if ["kubeadmConfigSpec.", "Patches["].iter().any(|path| {
                faults
                    .lines()
                    .any(|line| line.contains("'field'") && line.contains(path))
            }) {
                checked += 1;
                let faults = faults.replace("strings.quote(patch.op)", "");
                assert!(!faults.contains("strings.quote("), "{}: {faults}", rule.id);
            }
        }
    }
    assert!(checked >= 10, "{checked}");
}

#[test]
fn the_planted_object_is_as_intended() {
    let mut object = json!({});
    put(&mut object, &["a", "[]", "b", "{}"], &json!(1));
    let element = json!({"b": Map::from_iter([(TEXT.to_owned(), json!(1))])});
    assert_eq!(object, json!({"a": [element, element]}));
}
