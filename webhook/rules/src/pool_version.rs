//! The version of a pool. Hive annotates each cluster with the version of its pool when it creates the cluster, and
//! replaces unclaimed clusters whose version differs from the pool's current one.
//!
//! The version is a hash over Go values, field by field in the order of Go's types (Hive, `calculatePoolVersion`). This
//! module knows that order for AWS and `OpenStack`, and its tests compare the results with Hive's own tests. The
//! version of a pool on another platform is unknown.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::api::hive::{ClusterPoolSpec, LocalReference};

type Hash = [u8; 8];

/// The annotation of a `ClusterDeployment` with the version that its pool had when the cluster was created.
pub const ANNOTATION: &str = "hive.openshift.io/cluster-pool-spec-hash";

/// The hash of a nil pointer, an empty string or an empty list.
const NOTHING: Hash = OFFSET_BASIS.to_be_bytes();
/// FNV-1a, 64 bits.
const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
/// FNV-1a, 64 bits.
const PRIME: u64 = 0x0100_0000_01b3;

/// The version of a pool as 16 hexadecimal digits; `None` if it is unknown.
pub fn pool_version(spec: &ClusterPoolSpec) -> Option<String> {
    let mut bytes = [
        platform(&spec.platform)?,
        text(&spec.base_domain),
        structure(&[text(&spec.image_set_ref.name)]),
        optional(spec.install_config_secret_template_ref.as_ref()),
        optional(spec.customization_ref.as_ref()),
    ]
    .concat();
    if spec.inventory.is_some() {
        bytes.extend(b"hasInventory");
    }
    // Hive hashes a byte slice as a list of numbers.
    let numbers = bytes.iter().map(|byte| fnv1a(&u64::from(*byte).to_be_bytes()));
    let version = structure(&numbers.collect::<Vec<_>>());
    Some(format!("{:016x}", u64::from_be_bytes(version)))
}

/// Whether two pools have the same version. This works on every platform, because it compares the hashed fields.
pub fn hashes_the_same(one: &ClusterPoolSpec, other: &ClusterPoolSpec) -> bool {
    one.platform == other.platform
        && one.base_domain == other.base_domain
        && one.image_set_ref == other.image_set_ref
        && one.install_config_secret_template_ref == other.install_config_secret_template_ref
        && one.customization_ref == other.customization_ref
        && one.inventory.is_some() == other.inventory.is_some()
}

/// The hash of Go's struct `Platform`, whose fields are AWS, Azure, `BareMetal`, GCP, `OpenStack` and five more.
fn platform(platform: &Map<String, Value>) -> Option<Hash> {
    let mut set = platform.iter().filter(|(_, value)| !value.is_null());
    let (Some((name, value)), None) = (set.next(), set.next()) else {
        return None;
    };
    let (index, value) = match name.as_str() {
        "aws" => (0, read::<Aws>(value)?.hash()?),
        "openstack" => (4, read::<OpenStack>(value)?.hash()),
        _ => return None,
    };
    let mut fields = [NOTHING; 10];
    *fields.get_mut(index)? = value;
    Some(structure(&fields))
}

/// Fails on an unknown field, because its position in the Go type is unknown.
fn read<T: DeserializeOwned>(platform: &Value) -> Option<T> {
    serde_json::from_value(platform.clone()).ok()
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Aws {
    credentials_secret_ref: LocalReference,
    credentials_assume_role: Option<AssumeRole>,
    region: String,
    user_tags: Option<Map<String, Value>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AssumeRole {
    #[serde(rename = "roleARN")]
    role_arn: String,
    #[serde(rename = "externalID")]
    external_id: String,
}

impl Aws {
    fn hash(&self) -> Option<Hash> {
        // The order in which Hive hashes tags is unknown.
        let tags = self.user_tags.as_ref().is_none_or(Map::is_empty);
        let role = self.credentials_assume_role.as_ref();
        let role = role.map(|role| structure(&[text(&role.role_arn), text(&role.external_id)]));
        tags.then(|| {
            structure(&[
                reference(&self.credentials_secret_ref),
                role.unwrap_or(NOTHING),
                text(&self.region),
                NOTHING,
                NOTHING,
            ])
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct OpenStack {
    credentials_secret_ref: LocalReference,
    certificates_secret_ref: Option<LocalReference>,
    cloud: String,
    trunk_support: bool,
}

impl OpenStack {
    fn hash(&self) -> Hash {
        structure(&[
            reference(&self.credentials_secret_ref),
            optional(self.certificates_secret_ref.as_ref()),
            text(&self.cloud),
            text(if self.trunk_support { "1" } else { "0" }),
        ])
    }
}

fn reference(reference: &LocalReference) -> Hash {
    structure(&[text(&reference.name)])
}

fn optional(pointer: Option<&LocalReference>) -> Hash {
    pointer.map_or(NOTHING, reference)
}

fn text(text: &str) -> Hash {
    fnv1a(text.as_bytes())
}

fn structure(fields: &[Hash]) -> Hash {
    fnv1a(fields.as_flattened())
}

fn fnv1a(bytes: &[u8]) -> Hash {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    bytes.iter().fold(OFFSET_BASIS, step).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(edit: impl FnOnce(&mut Value)) -> ClusterPoolSpec {
        let mut spec = json!({
            "platform": {"aws": {"credentialsSecretRef": {"name": "aws-creds"}, "region": "region"}},
            "baseDomain": "test-domain",
            "imageSetRef": {"name": "test-image-set"},
            "size": 3
        });
        edit(&mut spec);
        serde_json::from_value(spec).unwrap()
    }

    fn version(edit: impl FnOnce(&mut Value)) -> Option<String> {
        pool_version(&spec(edit))
    }

    /// Expected values of Hive's `TestReconcileClusterPool`.
    #[test]
    fn versions_are_the_same_as_hives() {
        let inventory = |spec: &mut Value| spec["inventory"] = json!([{"name": "test-cdc-1"}]);
        let customization =
            |spec: &mut Value| spec["customizationRef"] = json!({"name": "non-inventory-cdc"});
        let open_stack = |spec: &mut Value| {
            spec["platform"] =
                json!({"openstack": {"credentialsSecretRef": {"name": "aws-creds"}, "cloud": ""}});
        };
        for (found, expected) in [
            (version(|_| {}), "04a8f79a4a2e9733"),
            (version(inventory), "a6dcbd6776a3c92b"),
            (
                version(|spec| {
                    inventory(spec);
                    customization(spec);
                }),
                "f1a16535dbc27559",
            ),
            (version(customization), "564f99a732a771e9"),
            (
                version(|spec| {
                    inventory(spec);
                    open_stack(spec);
                }),
                "0be50b7ba396d313",
            ),
        ] {
            assert_eq!(found.as_deref(), Some(expected));
        }
    }

    #[test]
    fn size_and_entries_do_not_change_the_version() {
        let one = version(|spec| spec["inventory"] = json!([{"name": "a"}]));
        let other = version(|spec| {
            spec["inventory"] = json!([{"name": "b"}, {"name": "c"}]);
            spec["size"] = json!(7);
        });
        assert_eq!(one, other);
        assert!(one.is_some());
    }

    #[test]
    fn only_hashed_fields_are_compared() {
        let vsphere = |spec: &mut Value| spec["platform"] = json!({"vsphere": {"datacenter": "a"}});
        let before = spec(vsphere);
        for (field, value, is_same) in [
            ("size", json!(7), true),
            ("maxSize", json!(7), true),
            ("platform", json!({"vsphere": {"datacenter": "b"}}), false),
            ("baseDomain", json!("other-domain"), false),
            ("imageSetRef", json!({"name": "other"}), false),
            ("installConfigSecretTemplateRef", json!({"name": "other"}), false),
            ("customizationRef", json!({"name": "other"}), false),
            ("inventory", json!([]), false),
        ] {
            let after = spec(|spec| {
                vsphere(spec);
                spec[field] = value;
            });
            assert_eq!(hashes_the_same(&before, &after), is_same, "{field}");
        }
    }

    #[test]
    fn the_version_on_an_unknown_platform_is_unknown() {
        for platform in [
            json!({}),
            json!({"vsphere": {}}),
            json!({"aws": {}, "openstack": {}}),
            json!({"aws": {"privateLink": {"enabled": true}}}),
            json!({"aws": {"userTags": {"a": "b"}}}),
            json!({"openstack": {"new": 1}}),
            json!({"openstack": "cloud"}),
        ] {
            assert_eq!(
                version(|spec| spec["platform"] = platform.clone()),
                None,
                "{platform}"
            );
        }
    }
}
