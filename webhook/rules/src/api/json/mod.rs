//! A fast JSON decoder for the common case. Its results equal those of `serde_json`.
//!
//! Most of a large object consists of strings that no rule reads, and an update contains most of the object
//! twice. This decoder skips to the end of such strings, decodes a value and captures its text in one pass,
//! and compares a repeated object instead of parsing it again. It checks a text only once, and then searches for the
//! end of a value in it. It gives up on unusual or invalid input. The caller then uses `serde_json`, which also returns
//! the error.
//!
//! - [`scanner`]: skips over JSON text
//! - [`deserializer`]: decodes values

mod deserializer;
mod scanner;

use serde::Deserialize;
use serde_json::value::RawValue;

pub(super) use deserializer::WITH_TEXT;
use scanner::{ScanStopped, Scanner};

/// A decoded JSON document, and an upper bound for the number of its values.
#[derive(Debug, PartialEq, Eq)]
pub struct Document<T> {
    pub root: T,
    /// An upper bound for the number of nested values: the number of opening brackets and commas outside of strings.
    pub value_count: usize,
}

/// Decodes a JSON document. Returns `None` if the caller must use `serde_json`.
pub fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Option<Document<T>> {
    decode_all(Scanner::new(text)).ok()
}

/// Same as [`read`], but also returns `None` for a document with more than `max_values` values: a decoded value needs many
/// times the memory of its text.
pub fn read_bounded<'a, T: Deserialize<'a>>(text: &'a str, max_values: usize) -> Option<Document<T>> {
    decode_all(Scanner::new(text).with_max_values(max_values)).ok()
}

/// Decodes a part of a document. Returns `None` if the caller must use `serde_json`.
pub(super) fn read_part<'a, T: Deserialize<'a>>(text: &'a RawValue) -> Option<T> {
    Some(decode_all(Scanner::of_part(text)).ok()?.root)
}

fn decode_all<'a, T: Deserialize<'a>>(mut scanner: Scanner<'a>) -> Result<Document<T>, ScanStopped> {
    let root = T::deserialize(&mut scanner)?;
    scanner.end()?;
    Ok(Document {
        root,
        value_count: scanner.values(),
    })
}

#[cfg(test)]
mod tests;
