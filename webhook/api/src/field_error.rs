//! Decodes objects, with errors that contain the path of the field.

use std::fmt;

use serde::{Deserialize, de};
use thiserror::Error;

/// The error for a field that does not have the type that the object's kind requires.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{field}: {fault}")]
pub struct DecodeError {
    /// The path of the field; `.` if the whole document is wrong.
    pub field: String,
    /// What is wrong with the field, such as the type found and the type expected.
    pub fault: String,
}

impl DecodeError {
    const MISSING: &str = "the field is missing";

    fn new(field: String, error: &serde_json::Error) -> Self {
        let fault = fault_of(error);
        if let Some((nested_field, fault)) = Nested::parts(&fault) {
            let nested = Self {
                field: nested_field.to_owned(),
                fault: fault.to_owned(),
            };
            return nested.prefix_field(&field);
        }
        // For a missing field, the path contains only the parent; the name of the field is in the message.
        let missing = fault
            .strip_prefix("missing field `")
            .and_then(|rest| rest.strip_suffix('`'));
        match missing {
            None => Self {
                field,
                fault: with_json_type_names(&fault),
            }
            .without_secret(),
            Some(missing) => Self {
                field: join(&field, missing),
                fault: Self::MISSING.to_owned(),
            },
        }
    }

    /// Returns the same error. If the value may be secret, the error shows the type of the value instead of the value.
    fn without_secret(self) -> Self {
        if !MAY_BE_SECRET.iter().any(|field| self.field.contains(field)) || self.is_missing() {
            return self;
        }
        Self {
            fault: without_value(&self.fault),
            ..self
        }
    }

    /// Returns the same error for a document that is nested in another one at `field`.
    pub(crate) fn prefix_field(self, field: &str) -> Self {
        Self {
            field: join(field, &self.field),
            fault: self.fault,
        }
        .without_secret()
    }

    /// Converts the error of a nested document to the error type of the outer deserializer.
    pub(crate) fn outer_error<E: de::Error>(&self) -> E {
        E::custom(Nested(self))
    }

    /// Whether the field is missing.
    pub fn is_missing(&self) -> bool {
        self.fault == Self::MISSING
    }
}

/// Fields below which every value may be secret. Not everyone who can read a response or the audit log is allowed to
/// read Secrets.
const MAY_BE_SECRET: &[&str] = &[
    "kubeadmConfigSpec",
    "installConfigPatches",
    "installerManifestPatches",
];

/// A [`DecodeError`] as text. An inner deserializer can pass an error to the outer one only as text. The text
/// begins with a character that no other error begins with, and the same character separates the field from
/// the problem.
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

/// Decodes one JSON document. Only if this fails, decodes it again to find the path of the first field that has a wrong type.
pub fn decode<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, DecodeError> {
    serde_json::from_str(json).map_err(|error| {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
            Err(located) => DecodeError::new(located.path().to_string(), located.inner()),
            Ok(_) => DecodeError::new(".".to_owned(), &error),
        }
    })
}

/// The message of a decoder's error. For a wrong type, it has no line and column, because the user did not write this
/// JSON.
fn fault_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((fault, _)) if error.is_data() => fault.to_owned(),
        _ => text,
    }
}

/// Replaces the type names of serde and Rust in a decoder's message with those of JSON and YAML.
fn with_json_type_names(fault: &str) -> String {
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
        // A string of the document is in double quotes; replace backticks only outside of it.
        found if found.starts_with("string ") => found.to_owned(),
        found => found.replace('`', "").replace("floating point", "number"),
    };
    let expected = match expected {
        "i64" | "u64" => "an integer",
        "i32" => "a 32-bit integer",
        "a sequence" => "a list",
        "a map" => "an object",
        named if named.starts_with("struct ") => "an object",
        other => other,
    };
    format!("found {found}, expected {expected}")
}

/// Returns the message of a decoder's error with the type of the value instead of the value.
fn without_value(fault: &str) -> String {
    let Some((found, expected)) = fault
        .strip_prefix("found ")
        .and_then(|parts| parts.rsplit_once(", expected "))
    else {
        // The message of another error may quote the value.
        let quotes = fault.contains(['"', '`', '\'']) && !fault.starts_with("duplicate field `");
        return if quotes {
            "the value cannot be decoded"
        } else {
            fault
        }
        .to_owned();
    };
    let found = match found.split(' ').next() {
        Some("string" | "character") => "a string",
        Some("integer") => "an integer",
        Some("number") => "a number",
        Some("boolean") => "a boolean",
        Some("null") => "null",
        Some("a") if found == "a list" => "a list",
        Some("an") if found == "an object" => "an object",
        _ => "another value",
    };
    format!("found {found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::{DecodeError, decode, with_json_type_names, without_value};
    use crate::review::{ClusterPool, KubeadmControlPlane};

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

    /// `kubeadmConfigSpec` is decoded separately from the rest of the object.
    #[test]
    fn errors_name_the_field_in_a_separately_decoded_part() {
        for (config, field, fault) in [
            ("3", "", "found an integer, expected an object"),
            (r#"{"files":{}}"#, ".files", "found an object, expected a list"),
            (
                r#"{"users":[{"name":"a"},{"name":1}]}"#,
                ".users[1].name",
                "found an integer, expected a string",
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
    fn faults_of_secret_fields_name_types_and_no_values() {
        for (fault, expected) in [
            (
                r#"found string "a, expected b", expected an integer"#,
                "found a string, expected an integer",
            ),
            (
                "found a list, expected an object",
                "found a list, expected an object",
            ),
            (
                "found number 1.34, expected a string",
                "found a number, expected a string",
            ),
            (
                "unknown variant `hunter2`, expected `a` or `b`",
                "the value cannot be decoded",
            ),
            ("duplicate field `name`", "duplicate field `name`"),
            ("the number is too large", "the number is too large"),
        ] {
            assert_eq!(without_value(fault), expected);
        }
    }

    #[test]
    fn faults_use_json_type_names() {
        for (fault, expected) in [
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
                "found integer 99999999999, expected a 32-bit integer",
            ),
            ("the number is too large", "the number is too large"),
        ] {
            assert_eq!(with_json_type_names(fault), expected);
        }
    }
}
