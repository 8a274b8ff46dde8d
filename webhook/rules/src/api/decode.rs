//! Decoding with an error that names the field.

use serde::Deserialize;
use thiserror::Error;

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
        // The decoder names a missing field in its message, and only the parent in its path.
        let missing = fault
            .strip_prefix("missing field `")
            .and_then(|rest| rest.strip_suffix('`'));
        match missing {
            None => Self { field, fault },
            Some(missing) => Self {
                field: match field.as_str() {
                    "." => missing.to_owned(),
                    parent => format!("{parent}.{missing}"),
                },
                fault: Self::MISSING.to_owned(),
            },
        }
    }

    /// Whether the field is not there at all.
    pub fn is_missing(&self) -> bool {
        self.fault == Self::MISSING
    }
}

/// Decodes one JSON document.
///
/// The plain decoder runs first: it is on the path of every review. Only a document that it refuses is decoded a
/// second time, to learn the path.
///
/// # Errors
/// [`DecodeError`] with the path of the first field whose type is wrong.
pub fn decode<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, DecodeError> {
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

#[cfg(test)]
mod tests {
    use super::{DecodeError, decode};
    use crate::api::ClusterPool;

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
                "invalid type: integer `1`, expected a string",
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
}
