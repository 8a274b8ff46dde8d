//! Go types, and how Hive's library `deephash` hashes their values: FNV-1a of the hashes of a value's parts.

use serde_json::Value;

pub(super) type Hash = [u8; 8];

/// The hash of a nil pointer, an empty string or an empty list.
pub(super) const NOTHING: Hash = OFFSET_BASIS.to_be_bytes();
/// The initial value of 64-bit FNV-1a.
const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
/// The factor of 64-bit FNV-1a.
const PRIME: u64 = 0x0100_0000_01b3;

/// A type of Go. An absent value is Go's zero value.
#[derive(Clone, Copy, Debug)]
pub(super) enum GoType {
    String,
    Bool,
    Int,
    Pointer(&'static Self),
    Slice(&'static Self),
    /// A map with strings as keys.
    Map(&'static Self),
    /// A struct: its fields in Go's order, with their names in JSON.
    Struct(&'static [(&'static str, Self)]),
}

impl GoType {
    /// The hash of a value. `None` if the value is not of this type, or has a field that this type does not have.
    pub(super) fn hash(&self, value: Option<&Value>) -> Option<Hash> {
        let value = value.filter(|value| !value.is_null());
        match (self, value) {
            (Self::String | Self::Pointer(_) | Self::Slice(_) | Self::Map(_), None) => Some(NOTHING),
            (Self::String, Some(Value::String(string))) => Some(hash_text(string)),
            (Self::Bool, None) => Some(hash_text("0")),
            (Self::Bool, Some(Value::Bool(is_true))) => Some(hash_text(if *is_true { "1" } else { "0" })),
            (Self::Int, None) => Some(integer(0)),
            (Self::Int, Some(number)) => number.as_i64().map(integer),
            (Self::Pointer(target), Some(value)) => target.hash(Some(value)),
            (Self::Slice(item), Some(Value::Array(items))) => {
                let items = items.iter().map(|value| item.hash(Some(value)));
                items
                    .collect::<Option<Vec<_>>>()
                    .map(|items| hash_structure(&items))
            }
            (Self::Map(item), Some(Value::Object(entries))) => {
                // Go's maps have no order: the library sorts the keys by the hexadecimal digits of their hashes.
                let entries = entries.iter().map(|(key, value)| {
                    let key = format!("{:016x}", u64::from_be_bytes(hash_text(key)));
                    Some((key, item.hash(Some(value))?))
                });
                let mut entries = entries.collect::<Option<Vec<_>>>()?;
                entries.sort();
                let bytes = entries
                    .iter()
                    .flat_map(|(key, value)| [key.as_bytes(), value.as_slice()]);
                Some(fnv1a(&bytes.collect::<Vec<_>>().concat()))
            }
            (Self::Struct(fields), None) => struct_hash(fields, |_| None),
            (Self::Struct(fields), Some(Value::Object(object))) => {
                let is_field = |name: &String| fields.iter().any(|(field, _)| field == name);
                object
                    .keys()
                    .all(is_field)
                    .then(|| struct_hash(fields, |name| object.get(name)))?
            }
            _ => None,
        }
    }
}

fn struct_hash<'v>(fields: &[(&str, GoType)], value: impl Fn(&str) -> Option<&'v Value>) -> Option<Hash> {
    let fields = fields.iter().map(|(name, field)| field.hash(value(name)));
    fields
        .collect::<Option<Vec<_>>>()
        .map(|fields| hash_structure(&fields))
}

pub(super) fn hash_text(text: &str) -> Hash {
    fnv1a(text.as_bytes())
}

fn integer(number: i64) -> Hash {
    fnv1a(&number.to_be_bytes())
}

pub(super) fn hash_structure(fields: &[Hash]) -> Hash {
    fnv1a(fields.as_flattened())
}

pub(super) fn fnv1a(bytes: &[u8]) -> Hash {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    bytes.iter().fold(OFFSET_BASIS, step).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        GoType::{self, Bool, Int, Map, Pointer, Slice, String, Struct},
        NOTHING, fnv1a, hash_structure, hash_text,
    };

    #[test]
    fn a_value_is_hashed_by_its_type() {
        const PAIR: GoType = Struct(&[("b", Bool), ("n", Int)]);
        let zero = fnv1a(&[0; 8]);
        let hex = |string: &str| format!("{:016x}", u64::from_be_bytes(hash_text(string))).into_bytes();
        let mut sorted = [hex("a"), hex("b")];
        sorted.sort();
        let in_order = if sorted[0] == hex("a") {
            ["1", "2"]
        } else {
            ["2", "1"]
        };
        let map: Vec<u8> = sorted
            .iter()
            .zip(in_order)
            .flat_map(|(key, value)| [key.clone(), hash_text(value).to_vec()].concat())
            .collect();
        for (name, go_type, value, expected) in [
            ("no string", String, json!(null), Some(NOTHING)),
            ("a string", String, json!("a"), Some(hash_text("a"))),
            ("a false", Bool, json!(false), Some(hash_text("0"))),
            ("a true", Bool, json!(true), Some(hash_text("1"))),
            (
                "a number",
                Int,
                json!(258),
                Some(fnv1a(&[0, 0, 0, 0, 0, 0, 1, 2])),
            ),
            ("nil", Pointer(&Bool), json!(null), Some(NOTHING)),
            (
                "a pointer to the zero value",
                Pointer(&Bool),
                json!(false),
                Some(hash_text("0")),
            ),
            ("no items", Slice(&String), json!([]), Some(NOTHING)),
            (
                "items",
                Slice(&String),
                json!(["a", "b"]),
                Some(hash_structure(&[hash_text("a"), hash_text("b")])),
            ),
            ("no entries", Map(&String), json!({}), Some(NOTHING)),
            (
                "entries",
                Map(&String),
                json!({"b": "2", "a": "1"}),
                Some(fnv1a(&map)),
            ),
            (
                "a struct",
                PAIR,
                json!({"b": true}),
                Some(hash_structure(&[hash_text("1"), zero])),
            ),
            (
                "no struct",
                PAIR,
                json!(null),
                Some(hash_structure(&[hash_text("0"), zero])),
            ),
            ("an unknown field", PAIR, json!({"c": 1}), None),
            (
                "an unknown field in a list",
                Slice(&PAIR),
                json!([{}, {"c": 1}]),
                None,
            ),
            ("another type", String, json!(1), None),
            ("a broken number", Int, json!(1.5), None),
        ] {
            let value: Value = value;
            assert_eq!(go_type.hash(Some(&value)), expected, "{name}");
        }
    }
}
