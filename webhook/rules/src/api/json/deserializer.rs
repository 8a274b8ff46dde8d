//! Decodes values with a [`Scanner`].

use std::{fmt, iter};

use serde::{
    Deserializer,
    de::{
        self, DeserializeSeed, IntoDeserializer as _, MapAccess, SeqAccess, Visitor,
        value::{BorrowedStrDeserializer, MapDeserializer},
    },
    forward_to_deserialize_any,
};

use super::scanner::{Quoted, ScanStopped, Scanner};

/// The newtype name with which a type requests two elements: a value, and its text as a `RawValue`. Other
/// deserializers treat it as an ordinary newtype.
pub(in crate::api) const WITH_TEXT: &str = "$kcp_rules::WithText";

/// The newtype name of `RawValue`, which requests its text as a map with this name as the only key (`serde_json`,
/// `raw.rs`). If a later version uses another name, this decoder gives up and `serde_json` decodes the document.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

impl fmt::Display for ScanStopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not decoded by the fast decoder")
    }
}

impl std::error::Error for ScanStopped {}

impl de::Error for ScanStopped {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl<'de> Deserializer<'de> for &mut Scanner<'de> {
    type Error = ScanStopped;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ScanStopped> {
        match self.peek()? {
            b'"' => self.string()?.decode(visitor),
            b'{' => {
                let mut fields = Items::of(self, b'}')?;
                let value = visitor.visit_map(&mut fields)?;
                fields.end()?;
                Ok(value)
            }
            b'[' => {
                let mut items = Items::of(self, b']')?;
                let value = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(value)
            }
            b't' => {
                self.literal("true")?;
                visitor.visit_bool(true)
            }
            b'f' => {
                self.literal("false")?;
                visitor.visit_bool(false)
            }
            b'n' => {
                self.literal("null")?;
                visitor.visit_unit()
            }
            _ => decode_with_serde_json(self.capture(Scanner::number)?.1, visitor),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ScanStopped> {
        self.string()?.decode(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ScanStopped> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ScanStopped> {
        if self.peek()? == b'n' {
            self.literal("null")?;
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ScanStopped> {
        match name {
            RAW_VALUE => RawText(self.value()?).deserialize_any(visitor),
            WITH_TEXT => visitor.visit_seq(ValueAndText::Value(self)),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ScanStopped> {
        let variant = self.string()?.unescaped().ok_or(ScanStopped)?;
        visitor.visit_enum(BorrowedStrDeserializer::new(variant))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ScanStopped> {
        self.value()?;
        visitor.visit_unit()
    }

    /// JSON has no byte strings.
    fn deserialize_bytes<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ScanStopped> {
        Err(ScanStopped)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ScanStopped> {
        Err(ScanStopped)
    }

    /// Gives up on null, because some map visitors would accept it as an empty map.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ScanStopped> {
        match self.peek()? {
            b'{' => self.deserialize_any(visitor),
            _ => Err(ScanStopped),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char unit unit_struct seq tuple tuple_struct struct
        identifier
    }
}

impl<'de> Quoted<'de> {
    fn decode<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ScanStopped> {
        match self.unescaped() {
            Some(text) => visitor.visit_borrowed_str(text),
            None => decode_with_serde_json(self.text(), visitor),
        }
    }
}

/// Leaves escapes and numbers to `serde_json`: they are short, and their rules are complex.
fn decode_with_serde_json<'de, V: Visitor<'de>>(text: &'de str, visitor: V) -> Result<V::Value, ScanStopped> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_any(visitor).map_err(|_| ScanStopped)
}

/// Visits the items of a list or the fields of an object.
struct Items<'s, 'de> {
    scanner: &'s mut Scanner<'de>,
    closing: u8,
    is_first: bool,
    is_over: bool,
    /// Whether the scanner remembers the value of the field whose name it has read last.
    is_remembered: bool,
}

impl<'s, 'de> Items<'s, 'de> {
    fn of(scanner: &'s mut Scanner<'de>, closing: u8) -> Result<Self, ScanStopped> {
        scanner.open()?;
        Ok(Self {
            scanner,
            closing,
            is_first: true,
            is_over: false,
            is_remembered: false,
        })
    }

    /// Whether another item follows. May be called again after the last item.
    fn has_next(&mut self) -> Result<bool, ScanStopped> {
        if !self.is_over {
            self.is_over = !self.scanner.has_next(self.is_first, self.closing)?;
            self.is_first = false;
        }
        Ok(!self.is_over)
    }

    /// Gives up if the visitor has not consumed all items.
    fn end(mut self) -> Result<(), ScanStopped> {
        if self.has_next()? {
            Err(ScanStopped)
        } else {
            Ok(())
        }
    }
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = ScanStopped;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ScanStopped> {
        if self.has_next()? {
            seed.deserialize(&mut *self.scanner).map(Some)
        } else {
            Ok(None)
        }
    }
}

impl<'de> MapAccess<'de> for Items<'_, 'de> {
    type Error = ScanStopped;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ScanStopped> {
        if !self.has_next()? {
            return Ok(None);
        }
        let key = self.scanner.key()?;
        self.is_remembered = key.is_often_repeated_field();
        if let Some(name) = key.unescaped() {
            return seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some);
        }
        let key: String = serde_json::from_str(key.text()).map_err(|_| ScanStopped)?;
        seed.deserialize(key.into_deserializer()).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ScanStopped> {
        if self.is_remembered {
            self.scanner.remember(|scanner| seed.deserialize(scanner))
        } else {
            seed.deserialize(&mut *self.scanner)
        }
    }
}

/// A sequence of two elements: a value and its JSON text.
enum ValueAndText<'s, 'de> {
    Value(&'s mut Scanner<'de>),
    Text(&'de str),
}

impl<'de> SeqAccess<'de> for ValueAndText<'_, 'de> {
    type Error = ScanStopped;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ScanStopped> {
        match self {
            Self::Value(scanner) => {
                let (value, text) = scanner.capture(|scanner| seed.deserialize(scanner))?;
                *self = Self::Text(text);
                Ok(Some(value))
            }
            Self::Text(text) => seed.deserialize(RawText(text)).map(Some),
        }
    }
}

/// The JSON text of a value, which decodes as a `RawValue`.
struct RawText<'de>(&'de str);

impl<'de> Deserializer<'de> for RawText<'de> {
    type Error = ScanStopped;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ScanStopped> {
        let text = BorrowedStrDeserializer::new(self.0);
        visitor.visit_map(MapDeserializer::new(iter::once((RAW_VALUE, text))))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
