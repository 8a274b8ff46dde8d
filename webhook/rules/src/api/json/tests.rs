//! `serde_json` is the oracle: the fast decoder accepts nothing else, and both return the same values.

use std::{borrow::Cow, collections::BTreeMap, fmt::Debug};

use proptest::{prelude::*, sample::Index};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{ClusterPool, KubeadmControlPlane, KubeadmControlPlaneTemplate},
    case::{Base, V1BETA1, V1BETA2},
};

/// An object whose field values are skipped.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

fn base() -> impl Strategy<Value = Value> {
    let bases = [
        Base::ControlPlane(V1BETA1),
        Base::ControlPlane(V1BETA2),
        Base::Template(V1BETA2),
        Base::ClusterPool,
    ];
    prop::sample::select(bases.map(Base::object).to_vec())
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[ -~]{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("(files|content|kubeadmConfigSpec|.{0,4})", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A position, the number of characters to remove there, and the text to insert.
type Edit = (Index, usize, &'static str);

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let inserted = prop::sample::select(vec![
        "",
        "\"",
        "\\",
        "\\\\",
        "\\\"",
        "\\n",
        "\\x",
        "\\u00e9",
        "\\u12",
        "\\ud800",
        "\n",
        "\t",
        "\u{1}",
        "\u{7f}",
        "é",
        "\u{feff}",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        " ",
        "\u{a0}",
        "0",
        "01",
        "-",
        "-0",
        "1.",
        ".5",
        "1.5",
        "1e5",
        "1E+400",
        "9",
        "null",
        "true",
        "nul",
        "{}",
        "[]",
        "\"a\":",
        "1,",
        "\"kubeadmConfigSpec\":",
    ]);
    prop::collection::vec((any::<Index>(), 0_usize..3, inserted), 0..4)
}

fn edited(mut text: String, edits: &[Edit]) -> String {
    for (at, removed, inserted) in edits {
        let mut places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
        places.push(text.len());
        let first = at.index(places.len());
        let last = (first + removed).min(places.len() - 1);
        text.replace_range(places[first]..places[last], inserted);
    }
    text
}

/// Checks that both decoders return the same value, or that both fail.
fn check_same<'a, T: Deserialize<'a> + Debug>(text: &'a str) -> Result<(), TestCaseError> {
    let read = read::<T>(text).map(|document| document.root);
    let expected = serde_json::from_str::<T>(text).ok();
    prop_assert_eq!(format!("{read:?}"), format!("{expected:?}"), "{}", text);
    Ok(())
}

fn check_all_types(text: &str) -> Result<(), TestCaseError> {
    check_same::<Value>(text)?;
    check_same::<&RawValue>(text)?;
    check_same::<IgnoredAny>(text)?;
    check_same::<Fields<'_>>(text)?;
    check_same::<KubeadmControlPlane<'_>>(text)?;
    check_same::<KubeadmControlPlaneTemplate<'_>>(text)?;
    check_same::<ClusterPool<'_>>(text)
}

proptest! {
    #[test]
    fn any_document_is_decoded_the_same(value in any_json(), pretty: bool, edits in edits()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        check_all_types(&edited(text.unwrap(), &edits))?;
    }

    #[test]
    fn any_object_is_decoded_the_same(object in base(), edits in edits()) {
        check_all_types(&edited(object.to_string(), &edits))?;
    }

    #[test]
    fn repeated_objects_are_decoded_the_same(object in base(), first in edits(), second in edits()) {
        let text = object.to_string();
        let (new, old) = (edited(text.clone(), &first), edited(text, &second));
        check_same::<Fields<'_>>(&format!(r#"{{"object":{new},"oldObject":{old}}}"#))?;
    }

    #[test]
    fn parts_are_decoded_the_same(object in base(), edits in edits()) {
        let text = edited(object.to_string(), &edits);
        if let Ok(part) = serde_json::from_str(&text) {
            check_same_part::<&RawValue>(part)?;
            check_same_part::<Value>(part)?;
            check_same_part::<Fields<'_>>(part)?;
        }
    }

    #[test]
    fn the_second_object_is_decoded_the_same_beside_the_first(
        object in base(),
        known in edits(),
        spaced: bool,
        edits in edits(),
    ) {
        let text = object.to_string();
        let config = object["spec"]["kubeadmConfigSpec"].to_string();
        let known = edited(config.clone(), &known);
        let space = if spaced { " " } else { "" };
        let first = text.replace(&config, &known);
        let second = edited(text.replace(&config, &format!("{space}{known}{space}")), &edits);
        let text = format!("[{first},{second}]");
        check_same::<(Value, Value)>(&text)?;
        check_same::<(Value, &RawValue)>(&text)?;
        check_same::<(Value, Fields<'_>)>(&text)?;
        check_same::<(KubeadmControlPlane<'_>, KubeadmControlPlane<'_, &RawValue>)>(&text)?;
    }
}

fn check_same_part<'a, T: Deserialize<'a> + Debug>(part: &'a RawValue) -> Result<(), TestCaseError> {
    let expected = format!("{:?}", serde_json::from_str::<T>(part.get()).ok());
    prop_assert_eq!(format!("{:?}", read_part::<T>(part)), expected, "{}", part);
    Ok(())
}

#[test]
fn values_are_counted() {
    for (text, values) in [
        ("7", 0),
        ("[1,2,3]", 3),
        (r#"{"a":[],"b":{}}"#, 4),
        (r#"["[,{","\"[,","\\",[]]"#, 5),
        // A repeated object is counted twice.
        (
            r#"[{"kubeadmConfigSpec":{"a":[1,2]}},{"kubeadmConfigSpec":{"a":[1,2]}}]"#,
            10,
        ),
    ] {
        assert_eq!(
            read::<IgnoredAny>(text).map(|document| document.value_count),
            Some(values),
            "{text}"
        );
        assert_eq!(
            read::<Value>(text).map(|document| document.value_count),
            Some(values),
            "{text}"
        );
    }
}

#[test]
fn bounded_documents_have_at_most_the_given_number_of_values() {
    for (text, values) in [
        ("[1,2,3]", 3),
        (r#"{"a":[],"b":{}}"#, 4),
        (r#"["\n",[]]"#, 3),
        (
            r#"[{"kubeadmConfigSpec":{"a":[1,2]}},{"kubeadmConfigSpec":{"a":[1,2]}}]"#,
            10,
        ),
    ] {
        let count = |max| read_bounded::<Value>(text, max).map(|document| document.value_count);
        assert_eq!((count(values), count(values - 1)), (Some(values), None), "{text}");
        // The check of skipped values comes at the end of the document.
        let count = |max| read_bounded::<IgnoredAny>(text, max).map(|document| document.value_count);
        assert_eq!((count(values), count(values - 1)), (Some(values), None), "{text}");
    }
}

#[test]
fn text_nested_deeper_than_the_limit_of_serde_json_is_rejected() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for (depth, is_accepted) in [(1, true), (127, true), (128, false), (100_000, false)] {
        assert_eq!(
            read::<IgnoredAny>(&nested(depth)).is_some(),
            is_accepted,
            "{depth}"
        );
        assert_eq!(read::<Value>(&nested(depth)).is_some(), is_accepted, "{depth}");
        assert_eq!(
            serde_json::from_str::<Value>(&nested(depth)).is_ok(),
            is_accepted,
            "{depth}"
        );
    }
}

/// Only open lists and objects count, not those that are already closed.
#[test]
fn depth_counts_only_open_brackets() {
    let text = format!("[{}[]]", "[{}],".repeat(1000));
    assert!(read::<Value>(&text).is_some());
    assert!(read::<IgnoredAny>(&text).is_some());
}

#[test]
fn a_verbatim_value_has_its_text() {
    let object = json!({"kubeadmConfigSpec": {"files": [{"path": "/a\n", "content": "b\n"}]}});
    let text = format!(r#"{{"apiVersion":"a/v1beta2","spec":{object}}}"#);
    let read = read::<KubeadmControlPlane<'_>>(&text).unwrap().root;
    let config = read.spec.kubeadm_config_spec.unwrap();
    assert_eq!(config.text().get(), object["kubeadmConfigSpec"].to_string());
    assert_eq!(config.files.as_ref().unwrap()[0].path.as_deref(), Some("/a\n"));
}

#[test]
fn every_character_and_escape_is_decoded_the_same() {
    for padding in [0, 7, 16, 40].map(|length| "-".repeat(length)) {
        for character in ('\0'..='\u{80}').chain(['é', '\u{2028}', '\u{1f600}']) {
            for content in ["@", "\\@", "\\u00@0", "\\\\@", "\\\\\\@"] {
                let content = content.replace('@', &character.to_string());
                let text = format!("{{\"{content}{padding}\":\"{padding}{content}\"}}");
                check_same::<Value>(&text).unwrap();
                check_same::<&RawValue>(&text).unwrap();
            }
        }
    }
}

/// A visitor may stop before the end of a list.
/// The scanner compares sixteen bytes at a time, and the last bytes of a document one by one.
#[test]
fn every_character_is_decoded_the_same_at_every_place() {
    let characters = ('\0'..=' ').chain(['"', '\\', '-', '\u{7f}', '\u{e4}', '\u{1f600}']);
    for character in characters {
        for (before, after) in (0..=33).flat_map(|before| [(before, 0), (before, 40)]) {
            let (before, after) = ("-".repeat(before), "-".repeat(after));
            // The rest of a string after an escape is scanned separately.
            for start in ["", "\\n"] {
                let text = format!("\"{start}{before}{character}{after}\"");
                check_same::<Value>(&text).unwrap();
                check_same::<&RawValue>(&text).unwrap();
            }
        }
    }
}

#[test]
fn lists_must_be_consumed_entirely() {
    for text in [
        "[[true,1]]",
        "[[true,1],[false,2]]",
        "[[true,1]",
        "[[true,1,2]]",
        "[[true,1,2]",
        "[[true]]",
        "[[true,1],]",
        "[[true,1,]]",
        "[true,1]",
    ] {
        check_same::<Vec<(bool, u8)>>(text).unwrap();
    }
}

/// Some visitors accept more than the requested type, such as null for a map or a number for a string.
#[test]
fn the_requested_type_decides() {
    for text in [
        "null",
        "true",
        "1",
        "-1",
        "1.5",
        "1e400",
        "\"\"",
        "\"a\\n\"",
        "[]",
        "[1]",
        "{}",
        "{\"a\":1}",
    ] {
        check_same::<serde_json::Map<String, Value>>(text).unwrap();
        check_same::<BTreeMap<String, i8>>(text).unwrap();
        check_same::<Vec<u8>>(text).unwrap();
        check_same::<Option<Vec<u8>>>(text).unwrap();
        check_same::<Option<Value>>(text).unwrap();
        check_same::<(u8,)>(text).unwrap();
        check_same::<()>(text).unwrap();
        check_same::<bool>(text).unwrap();
        check_same::<u64>(text).unwrap();
        check_same::<i64>(text).unwrap();
        check_same::<f64>(text).unwrap();
        check_same::<String>(text).unwrap();
        check_same::<Cow<'_, str>>(text).unwrap();
        check_same::<char>(text).unwrap();
    }
}
