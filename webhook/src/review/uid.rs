//! Finds `request.uid` in a body that does not decode as a review.

use std::fmt;

use kcp_rules::api::Text;
use serde::{
    Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};

/// Returns the uid, if it comes before the first error in the body.
pub(super) fn find(body: &[u8]) -> Option<String> {
    let mut found = None;
    let at_top = Level {
        path: &["request", "uid"],
        found: &mut found,
    };
    // Ignore errors, which may come after the uid.
    _ = at_top.deserialize(&mut serde_json::Deserializer::from_slice(body));
    found
}

/// An object that contains the string at `path`.
struct Level<'f> {
    path: &'static [&'static str],
    found: &'f mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
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

impl<'de> Visitor<'de> for Level<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match self.path.split_first() {
                Some((wanted, below)) if *key == **wanted => map.next_value_seed(Level {
                    path: below,
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
