//! Decoding with an error that names the field.

use std::fmt;

use serde::{Deserialize, de};
use serde_json::value::RawValue;
use thiserror::Error;

use super::json;

/// An object whose fields do not have the types that its kind gives them.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{field}: {fault}")]
pub struct DecodeError {
    /// The path of the field, `.` when the whole document is at fault.
    pub field: String,
    /// What was found and what was expected.
    pub fault: String,
}

impl DecodeError {
    const MISSING: &str = "the field is missing";

    fn new(field: String, error: &serde_json::Error) -> Self {
        let fault = fault(error);
        if let Some((within, fault)) = Nested::parts(&fault) {
            let within = Self {
                field: within.to_owned(),
                fault: fault.to_owned(),
            };
            return within.below(&field);
        }
        // The decoder names a missing field in its message, and only the parent in its path.
        let missing = fault
            .strip_prefix("missing field `")
            .and_then(|rest| rest.strip_suffix('`'));
        match missing {
            None => Self {
                field,
                fault: in_words(&fault),
            },
            Some(missing) => Self {
                field: join(&field, missing),
                fault: Self::MISSING.to_owned(),
            },
        }
    }

    /// The same of a document that is a part of another: what stands at `field`.
    pub(super) fn below(self, field: &str) -> Self {
        Self {
            field: join(field, &self.field),
            fault: self.fault,
        }
    }

    /// The error of a document within a document, for a deserializer of the outer one to fail with.
    pub(super) fn within<E: de::Error>(&self) -> E {
        E::custom(Nested(self))
    }

    /// Whether the field is not there at all.
    pub fn is_missing(&self) -> bool {
        self.fault == Self::MISSING
    }
}

/// An error's text is all that passes from the inner deserializer to the outer one: a mark that no other text starts
/// with keeps field and fault apart.
struct Nested<'e>(&'e DecodeError);

impl Nested<'_> {
    const MARK: char = '\0';

    fn parts(text: &str) -> Option<(&str, &str)> {
        text.strip_prefix(Self::MARK)?.split_once(Self::MARK)
    }
}

impl fmt::Display for Nested<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mark, DecodeError { field, fault }) = (Self::MARK, self.0);
        write!(f, "{mark}{field}{mark}{fault}")
    }
}

fn join(parent: &str, field: &str) -> String {
    match (parent, field) {
        (".", field) => field.to_owned(),
        (parent, ".") => parent.to_owned(),
        (parent, field) if field.starts_with('[') => format!("{parent}{field}"),
        (parent, field) => format!("{parent}.{field}"),
    }
}

/// Decodes one JSON document.
///
/// The quickest decoder runs first: it is on the path of every review. Only a document that it refuses is decoded again,
/// to learn what is wrong and the path.
///
/// # Errors
/// [`DecodeError`] with the path of the first field whose type is wrong.
pub fn decode<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, DecodeError> {
    json::read(json).map_or_else(|| decode_by_serde_json(json), |document| Ok(document.root))
}

/// Decodes a part of a JSON document that was decoded before.
///
/// # Errors
/// As [`decode`].
pub fn decode_part<'a, T: Deserialize<'a>>(part: &'a RawValue) -> Result<T, DecodeError> {
    decode_part_beside(part, None)
}

/// The same where an object may stand in the part that is known already.
pub(super) fn decode_part_beside<'a, T: Deserialize<'a>>(
    part: &'a RawValue,
    known: Option<&'a RawValue>,
) -> Result<T, DecodeError> {
    json::read_again(part, known).map_or_else(|| decode_by_serde_json(part.get()), Ok)
}

fn decode_by_serde_json<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, DecodeError> {
    serde_json::from_str(json).map_err(|error| {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
            Err(located) => DecodeError::new(located.path().to_string(), located.inner()),
            Ok(_) => DecodeError::new(".".to_owned(), &error),
        }
    })
}

/// What is wrong. A wrong type loses its line and column: nobody has written the JSON that they count in.
fn fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((fault, _)) if error.is_data() => fault.to_owned(),
        _ => text,
    }
}

/// A manifest's terms for those that serde and Rust use of types.
fn in_words(fault: &str) -> String {
    let parts = fault
        .strip_prefix("invalid type: ")
        .or(fault.strip_prefix("invalid value: "))
        .and_then(|parts| parts.rsplit_once(", expected "));
    let Some((found, expected)) = parts else {
        return fault.to_owned();
    };
    let found = match found {
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        // Only what serde quotes: a string of the document stands in double quotes.
        found if found.starts_with("string ") => found.to_owned(),
        found => found.replace('`', "").replace("floating point", "number"),
    };
    let expected = match expected {
        "i64" | "u64" => "an integer",
        "i32" => "an integer of 32 bits",
        "a sequence" => "a list",
        "a map" => "an object",
        named if named.starts_with("struct ") => "an object",
        said => said,
    };
    format!("found {found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::{DecodeError, decode, in_words};
    use crate::api::{ClusterPool, KubeadmControlPlane};

    #[test]
    fn errors_name_the_field() {
        for (text, field, fault) in [
            ("{}", "spec", "the field is missing"),
            (
                r#"{"spec":{"platform":{}}}"#,
                "spec.baseDomain",
                "the field is missing",
            ),
            (
                r#"{"spec":{"platform":{},"baseDomain":1}}"#,
                "spec.baseDomain",
                "found integer 1, expected a string",
            ),
        ] {
            let expected = DecodeError {
                field: field.to_owned(),
                fault: fault.to_owned(),
            };
            let error = decode::<ClusterPool<'_>>(text).unwrap_err();
            assert_eq!(error.is_missing(), fault == "the field is missing");
            assert_eq!(error, expected, "{text}");
        }
    }

    /// Some parts are kept with their text, and decoded on their own.
    #[test]
    fn errors_name_the_field_within_a_part_that_is_decoded_on_its_own() {
        for (config, field, fault) in [
            ("3", "", "found integer 3, expected an object"),
            (r#"{"files":{}}"#, ".files", "found an object, expected a list"),
            (
                r#"{"users":[{"name":"a"},{"name":1}]}"#,
                ".users[1].name",
                "found integer 1, expected a string",
            ),
        ] {
            let text = format!(r#"{{"apiVersion":"a/v1beta2","spec":{{"kubeadmConfigSpec":{config}}}}}"#);
            let expected = DecodeError {
                field: format!("spec.kubeadmConfigSpec{field}"),
                fault: fault.to_owned(),
            };
            assert_eq!(decode::<KubeadmControlPlane<'_>>(&text).unwrap_err(), expected);
        }
    }

    #[test]
    fn a_fault_is_in_a_manifests_words() {
        for (fault, words) in [
            (
                r#"invalid type: string "a, expected `b`", expected i64"#,
                r#"found string "a, expected `b`", expected an integer"#,
            ),
            (
                "invalid type: sequence, expected struct KubeadmControlPlaneSpec",
                "found a list, expected an object",
            ),
            (
                "invalid type: floating point `1.34`, expected a string",
                "found number 1.34, expected a string",
            ),
            (
                "invalid value: integer `99999999999`, expected i32",
                "found integer 99999999999, expected an integer of 32 bits",
            ),
            ("the number is too large", "the number is too large"),
        ] {
            assert_eq!(in_words(fault), words);
        }
    }
}
