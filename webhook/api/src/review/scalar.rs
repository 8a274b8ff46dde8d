//! Scalar types that borrow from the JSON text.

use std::{
    borrow::{Borrow, Cow},
    convert::Infallible,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
};

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use serde_json::value::RawValue;

/// A string that borrows from the JSON text unless it contains an escape.
///
/// This is a newtype, because serde does not borrow a `Cow<str>` inside an `Option` or a `Vec`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
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

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
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

/// A string that may be secret. Only its length in JSON is stored, so it cannot appear in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Redacted {
    bytes: usize,
}

impl Redacted {
    /// Whether the string is empty.
    pub fn is_empty(self) -> bool {
        self.bytes == 0
    }
}

impl<'de> Deserialize<'de> for Redacted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RedactedText::deserialize(deserializer).map(RedactedText::redacted)
    }
}

/// A string that may be secret. It is not decoded until it is needed, because it may be most of an object. Two such
/// strings are equal if they have the same length in JSON.
#[derive(Clone, Copy)]
pub struct RedactedText<'a> {
    json: &'a str,
}

impl RedactedText<'_> {
    /// Whether the string is empty.
    pub fn is_empty(self) -> bool {
        self.redacted().is_empty()
    }

    /// Decodes the string. Returns `None` if its JSON has an invalid escape.
    pub fn decode(self) -> Option<String> {
        serde_json::from_str(self.json).ok()
    }

    /// Returns only the length of the string.
    pub fn redacted(self) -> Redacted {
        Redacted {
            // The length without the quotes. Escapes are not decoded.
            bytes: self.json.len().saturating_sub(2),
        }
    }
}

impl PartialEq for RedactedText<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.redacted() == other.redacted()
    }
}

impl Eq for RedactedText<'_> {}

impl Hash for RedactedText<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.redacted().hash(state);
    }
}

impl fmt::Debug for RedactedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redacted().fmt(f)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RedactedText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match <&'de RawValue>::deserialize(deserializer)?.get() {
            json if json.starts_with('"') => Ok(Self { json }),
            json => Err(not_a_string(json)),
        }
    }
}

/// Returns the error that a decoder of strings returns for this JSON text.
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

/// An integer or a string, as Kubernetes' `IntOrString`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrString<'a> {
    /// A JSON number without a fraction.
    Int(i64),
    /// A JSON string with any content.
    String(Text<'a>),
}

impl IntOrString<'_> {
    /// The number, even if it is written as a string. `None` for other strings, such as `"50%"`.
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
    use super::Redacted;
    use crate::review::decode;

    #[test]
    fn a_redacted_string_stores_only_its_length() {
        for (text, bytes) in [(r#""""#, 0), (r#" "" "#, 0), (r#"" ""#, 1), (r#""\n\u00e9""#, 8)] {
            assert_eq!(decode::<Redacted>(text), Ok(Redacted { bytes }), "{text}");
        }
    }

    #[test]
    fn a_redacted_value_must_be_a_string() {
        for (text, fault) in [
            ("1.5", "found number 1.5, expected a string"),
            ("null", "found null, expected a string"),
            ("[1]", "found a list, expected a string"),
            (r#"{"a":"\u00"}"#, "invalid escape at line 1 column 12"),
        ] {
            assert_eq!(decode::<Redacted>(text).unwrap_err().fault, fault, "{text}");
        }
    }
}
