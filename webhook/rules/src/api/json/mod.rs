//! Decodes JSON as `serde_json` does, sooner or not at all.
//!
//! Most of a large object are strings that no rule reads, and most of an update stands in it twice. Here a string's end
//! is searched for, a value is decoded and its text kept in one pass, and what stands in a text again is compared and not
//! read. Whatever is unusual, faults above all, is left to `serde_json`, which says what is wrong: the caller turns to it
//! when nothing comes from here.
//!
//! - [`scanner`]: passes over a text
//! - [`deserializer`]: makes values of it

mod deserializer;
mod scanner;

use serde::Deserialize;
use serde_json::value::RawValue;

pub(super) use deserializer::WITH_TEXT;
use scanner::{GivenUp, Scanner};

/// A decoded document.
#[derive(Debug, PartialEq, Eq)]
pub struct Document<T> {
    /// What it says.
    pub root: T,
    /// How many values are in it, counted by the brackets and commas outside of strings. One or two more where lists and
    /// objects are not empty, and never fewer.
    pub values: usize,
}

/// Decodes a document. `None` when that is better left to `serde_json`.
pub fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Option<Document<T>> {
    whole(Scanner::new(text)).ok()
}

/// Decodes a text that is JSON for sure, in which an object may stand that is known already. `None` as of [`read`].
pub(super) fn read_again<'a, T: Deserialize<'a>>(
    text: &'a RawValue,
    known: Option<&'a RawValue>,
) -> Option<T> {
    let scanner = Scanner::again(text);
    let scanner = match known {
        Some(known) => scanner.beside(known),
        None => scanner,
    };
    Some(whole(scanner).ok()?.root)
}

fn whole<'a, T: Deserialize<'a>>(mut scanner: Scanner<'a>) -> Result<Document<T>, GivenUp> {
    let root = T::deserialize(&mut scanner)?;
    scanner.end()?;
    Ok(Document {
        root,
        values: scanner.values(),
    })
}

#[cfg(test)]
mod tests;
