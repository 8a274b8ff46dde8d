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
                fault: fault(located.inner()),
            },
            Ok(_) => DecodeError {
                field: ".".to_owned(),
                fault: fault(&error),
            },
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
