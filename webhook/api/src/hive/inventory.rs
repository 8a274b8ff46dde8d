//! `spec.inventory` of a pool, which is a list. In the design document it is an object that contains the list; `lint`
//! accepts both.

use std::{fmt, ops::Deref, slice::Iter};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor, value::SeqAccessDeserializer},
};

use super::InventoryEntry;

/// The customizations for the clusters of a pool, `spec.inventory`. Each cluster uses one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    entries: Vec<InventoryEntry>,
    is_object: bool,
}

impl Inventory {
    /// The field that contains the list of entries in the design document.
    pub const LIST_FIELD_IN_DESIGN: &'static str = "ClusterDeploymentCustomizations";

    /// Whether the inventory is an object, as in the design document. The CRD accepts only a list.
    pub fn is_object(&self) -> bool {
        self.is_object
    }

    /// The names of the customizations, without empty names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.entries.iter().map(|entry| entry.name.as_str());
        names.filter(|name| !name.is_empty())
    }
}

impl Deref for Inventory {
    type Target = [InventoryEntry];

    fn deref(&self) -> &[InventoryEntry] {
        &self.entries
    }
}

impl<'i> IntoIterator for &'i Inventory {
    type Item = &'i InventoryEntry;
    type IntoIter = Iter<'i, InventoryEntry>;

    fn into_iter(self) -> Iter<'i, InventoryEntry> {
        self.entries.iter()
    }
}

impl From<Vec<InventoryEntry>> for Inventory {
    fn from(entries: Vec<InventoryEntry>) -> Self {
        Self {
            entries,
            is_object: false,
        }
    }
}

impl Serialize for Inventory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.entries.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Inventory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InventoryVisitor;

        impl<'de> Visitor<'de> for InventoryVisitor {
            type Value = Inventory;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Inventory, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Inventory::from)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Inventory, A::Error> {
                let mut entries: Option<Vec<_>> = None;
                while let Some(field) = object.next_key::<String>()? {
                    if field.eq_ignore_ascii_case(Inventory::LIST_FIELD_IN_DESIGN) {
                        entries = object.next_value()?;
                    } else {
                        object.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Inventory {
                    entries: entries.unwrap_or_default(),
                    is_object: true,
                })
            }
        }

        deserializer.deserialize_any(InventoryVisitor)
    }
}

#[cfg(test)]
mod tests {
    use crate::{field_error::decode, review::ClusterPool};

    fn pool(inventory: &str) -> String {
        format!(
            r#"{{"spec":{{"platform":{{}},"baseDomain":"","imageSetRef":{{"name":""}},"size":0,"inventory":{inventory}}}}}"#
        )
    }

    #[test]
    fn reads_list_and_object() {
        for (text, is_object, names) in [
            (
                r#"[{"name":"a"},{"name":""},{"name":"b"}]"#,
                false,
                vec!["a", "b"],
            ),
            ("[]", false, vec![]),
            (
                r#"{"ClusterDeploymentCustomizations":[{"name":"a"}]}"#,
                true,
                vec!["a"],
            ),
            (
                r#"{"x":[{"y":1}],"clusterDeploymentCustomizations":[{"name":"a"}]}"#,
                true,
                vec!["a"],
            ),
            (r#"{"ClusterDeploymentCustomizations":null}"#, true, vec![]),
            ("{}", true, vec![]),
        ] {
            let text = pool(text);
            let pool: ClusterPool<'_> = decode(&text).unwrap();
            let inventory = pool.spec.inventory.unwrap();
            assert_eq!(inventory.is_object(), is_object, "{text}");
            assert_eq!(inventory.names().collect::<Vec<_>>(), names, "{text}");
        }
        assert_eq!(
            decode::<ClusterPool<'_>>(&pool("null")).unwrap().spec.inventory,
            None
        );
    }

    #[test]
    fn errors_name_the_field() {
        for (text, field) in [
            (r#"[{"name":"a"},{"name":1}]"#, "spec.inventory[1].name"),
            (
                r#"{"ClusterDeploymentCustomizations":[{"name":1}]}"#,
                "spec.inventory.ClusterDeploymentCustomizations[0].name",
            ),
            (r#""a""#, "spec.inventory"),
        ] {
            let text = pool(text);
            assert_eq!(decode::<ClusterPool<'_>>(&text).unwrap_err().field, field);
        }
    }

    #[test]
    fn writes_a_list() {
        let text = pool(r#"{"ClusterDeploymentCustomizations":[{"name":"a"}]}"#);
        let pool: ClusterPool<'_> = decode(&text).unwrap();
        let written = serde_json::to_value(&pool.spec).unwrap();
        assert_eq!(
            written["inventory"],
            serde_json::json!([{"kind": "ClusterDeploymentCustomization", "name": "a"}])
        );
    }
}
