//! Finds `request.uid` in a body that does not decode as a review.

use std::fmt;

use kcp_rules::api::Text;
use serde::{
    Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};

/// Returns `request.uid`, if it comes before the first error in the body.
pub(super) fn find(body: &[u8]) -> Option<String> {
    let mut found = None;
    let uid_of_request = StringAtPath {
        path: &["request", "uid"],
        found: &mut found,
    };
    // Ignore errors, which may come after the uid.
    _ = uid_of_request.deserialize(&mut serde_json::Deserializer::from_slice(body));
    found
}

/// Stores the string at `path` of an object in `found`.
struct StringAtPath<'f> {
    path: &'static [&'static str],
    found: &'f mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for StringAtPath<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.path.is_empty() {
            let uid: Text<'de> = serde::Deserialize::deserialize(deserializer)?;
            // If there are two uids, use the first. A complete decoder rejects the second.
            self.found.get_or_insert_with(|| uid.into_owned());
            return Ok(());
        }
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for StringAtPath<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match self.path.split_first() {
                Some((wanted, rest)) if *key == **wanted => map.next_value_seed(StringAtPath {
                    path: rest,
                    found: self.found,
                })?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}
