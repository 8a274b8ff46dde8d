//! Scalars that borrow from the JSON text.

use std::{
    borrow::{Borrow, Cow},
    convert::Infallible,
    fmt,
    ops::Deref,
};

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use serde_json::value::RawValue;

/// A string that borrows from the JSON text unless it holds an escape.
///
/// A newtype because serde borrows a bare `Cow<str>` only, not one inside `Option` or `Vec`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    /// Detaches the string from the text it was decoded from.
    pub fn into_owned(self) -> String {
        self.0.into_owned()
    }
}

impl Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// A string of which nothing is kept but its length in JSON: what may be secret cannot end up in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Withheld {
    bytes: usize,
}

impl Withheld {
    /// Whether there is nothing in it.
    pub fn is_empty(self) -> bool {
        self.bytes == 0
    }
}

/// The string is skipped and not decoded: it may be most of an object, and decoding it would copy it wherever it holds
/// an escape.
impl<'de> Deserialize<'de> for Withheld {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match <&'de RawValue>::deserialize(deserializer)?.get() {
            // As long as it is without its quotes, escapes and all.
            text if text.starts_with('"') => Ok(Withheld {
                bytes: text.len() - 2,
            }),
            text => Err(not_a_string(text)),
        }
    }
}

/// As a decoder of strings says it.
fn not_a_string<E: Error>(text: &str) -> E {
    struct Expected;

    impl Visitor<'_> for Expected {
        type Value = Infallible;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }
    }

    let mut deserializer = serde_json::Deserializer::from_str(text);
    match deserializer.deserialize_any(Expected) {
        Ok(never) => match never {},
        Err(error) => {
            let error = error.to_string();
            E::custom(error.split_once(" at line ").map_or(&*error, |(fault, _)| fault))
        }
    }
}

/// Kubernetes' int-or-string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrString<'a> {
    /// A JSON number without a fraction.
    Int(i64),
    /// A JSON string, whatever it holds.
    String(Text<'a>),
}

impl IntOrString<'_> {
    /// The number meant: a string counts when all of it is a number. `"50%"` is none.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::String(text) => text.parse().ok(),
        }
    }
}

impl fmt::Display for IntOrString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::String(text) => write!(f, "{text:?}"),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for IntOrString<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntOrStringVisitor;

        impl<'de> Visitor<'de> for IntOrStringVisitor {
            type Value = IntOrString<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer or a string")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                Ok(IntOrString::Int(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                i64::try_from(number)
                    .map(IntOrString::Int)
                    .map_err(|_| E::custom("the number is too large"))
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(IntOrString::String(Text(Cow::Borrowed(text))))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(IntOrString::String(Text(Cow::Owned(text.to_owned()))))
            }
        }

        deserializer.deserialize_any(IntOrStringVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::Withheld;
    use crate::api::decode;

    #[test]
    fn of_a_withheld_string_only_its_length_is_kept() {
        for (text, bytes) in [(r#""""#, 0), (r#" "" "#, 0), (r#"" ""#, 1), (r#""\n\u00e9""#, 8)] {
            assert_eq!(decode::<Withheld>(text), Ok(Withheld { bytes }), "{text}");
        }
    }

    #[test]
    fn what_is_withheld_is_a_string() {
        for (text, fault) in [
            ("1.5", "found number 1.5, expected a string"),
            ("null", "found null, expected a string"),
            ("[1]", "found a list, expected a string"),
            (r#"{"a":"\u00"}"#, "invalid escape at line 1 column 12"),
        ] {
            assert_eq!(decode::<Withheld>(text).unwrap_err().fault, fault, "{text}");
        }
    }
}
