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
            Err(located) => DecodeError {
                field: located.path().to_string(),
                fault: located.inner().to_string(),
            },
            Ok(_) => DecodeError {
                field: ".".to_owned(),
                fault: error.to_string(),
            },
        }
    })
}
