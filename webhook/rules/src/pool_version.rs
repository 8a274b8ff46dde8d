//! The version of a pool. Hive annotates each cluster with the version of its pool when it creates the cluster, and
//! replaces unclaimed clusters whose version differs from the pool's current one.
//!
//! The version is a hash over Go values, field by field in the order of Go's types (Hive, `calculatePoolVersion`).
//! [`platform`] has the types of all platforms. The tests compare the results with Hive's own tests.

mod go_type;
mod platform;

use serde_json::{Map, Value};

use crate::api::hive::{ClusterPoolSpec, LocalReference};
use go_type::{Hash, NOTHING, fnv1a, hash_structure, hash_text};
use platform::PLATFORM;

/// The version of a pool as 16 hexadecimal digits. `None` if the platform has a field that these types do not have,
/// because Hive is newer.
pub fn pool_version(spec: &ClusterPoolSpec) -> Option<String> {
    let mut bytes = [
        platform_hash(&spec.platform)?,
        hash_text(&spec.base_domain),
        hash_structure(&[hash_text(&spec.image_set_ref.name)]),
        optional_reference_hash(spec.install_config_secret_template_ref.as_ref()),
        optional_reference_hash(spec.customization_ref.as_ref()),
    ]
    .concat();
    if spec.inventory.is_some() {
        bytes.extend(b"hasInventory");
    }
    // Hive hashes a byte slice as a list of numbers.
    let numbers = bytes.iter().map(|byte| fnv1a(&u64::from(*byte).to_be_bytes()));
    let version = hash_structure(&numbers.collect::<Vec<_>>());
    Some(format!("{:016x}", u64::from_be_bytes(version)))
}

/// Whether two pools have the same version. Works on every platform, because it compares the hashed fields themselves.
pub fn have_same_hash(one: &ClusterPoolSpec, other: &ClusterPoolSpec) -> bool {
    one.platform == other.platform
        && one.base_domain == other.base_domain
        && one.image_set_ref == other.image_set_ref
        && one.install_config_secret_template_ref == other.install_config_secret_template_ref
        && one.customization_ref == other.customization_ref
        && one.inventory.is_some() == other.inventory.is_some()
}

/// The hash of the pool's platform. `None` if the pool does not have exactly one platform, or the platform has an
/// unknown field.
fn platform_hash(platform: &Map<String, Value>) -> Option<Hash> {
    let set = platform.values().filter(|value| !value.is_null()).count();
    (set == 1)
        .then(|| PLATFORM.hash(Some(&Value::Object(platform.clone()))))
        .flatten()
}

fn reference_hash(reference: &LocalReference) -> Hash {
    hash_structure(&[hash_text(&reference.name)])
}

fn optional_reference_hash(pointer: Option<&LocalReference>) -> Hash {
    pointer.map_or(NOTHING, reference_hash)
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
            assert_eq!(have_same_hash(&before, &after), is_same, "{field}");
        }
    }

    /// A pool on each platform has a version, and each of its fields changes the version.
    #[test]
    fn every_platform_has_a_version() {
        let vsphere = json!({
            "vCenter": "vcenter.example.com", "datacenter": "dc", "defaultDatastore": "ds", "network": "vm",
            "credentialsSecretRef": {"name": "a"}, "certificatesSecretRef": {"name": "b"},
        });
        let infrastructure = json!({
            "vcenters": [{"server": "a", "port": 443, "user": "b", "password": "c", "datacenters": ["d"]}],
            "defaultMachinePlatform": {"cpus": 4, "osDisk": {"diskSizeGB": 120}, "zones": ["z"]},
            "hosts": [{"role": "compute", "networkDevice": {"ipAddrs": ["192.0.2.1/24"]}}],
        });
        let platforms = [
            json!({"aws": {"region": "a", "userTags": {"a": "b", "c": "d"}, "privateLink": {"enabled": true}}}),
            json!({"aws": {"region": "a", "userTags": {"a": "d", "c": "b"}, "privateLink": {"enabled": true}}}),
            json!({"azure": {"region": "a", "baseDomainResourceGroupName": "b"}}),
            json!({"baremetal": {"libvirtSSHPrivateKeySecretRef": {"name": "a"}}}),
            json!({"gcp": {"region": "a"}}),
            json!({"gcp": {"region": "a", "discardLocalSsdOnHibernate": false}}),
            json!({"openstack": {"cloud": "a"}}),
            json!({"vsphere": vsphere}),
            json!({"vsphere": {"infrastructure": infrastructure}}),
            json!({"agentBareMetal": {"agentSelector": {"matchLabels": {"a": "b"}}}}),
            json!({"ibmcloud": {"region": "a"}}),
            json!({"none": {}}),
            json!({"nutanix": {"prismCentral": {"address": "a", "port": 9440}}}),
        ];
        let versions: Vec<_> = platforms
            .iter()
            .map(|platform| version(|spec| spec["platform"] = platform.clone()))
            .collect();
        assert!(versions.iter().all(Option::is_some), "{versions:?}");
        let different: std::collections::BTreeSet<_> = versions.iter().collect();
        assert_eq!(different.len(), platforms.len(), "{versions:?}");
    }

    #[test]
    fn the_version_of_an_unknown_field_is_unknown() {
        for platform in [
            json!({}),
            json!({"aws": {}, "openstack": {}}),
            json!({"new": {}}),
            json!({"aws": {"new": 1}}),
            json!({"vsphere": {"infrastructure": {"hosts": [{"new": 1}]}}}),
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
