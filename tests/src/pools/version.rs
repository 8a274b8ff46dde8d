//! Versions of the objects of leases, as etcd stores them.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// etcd's revision, which each write increments. An object's `resourceVersion` is the revision of its last write.
pub type Revision = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version<T> {
    /// The revision of the write.
    pub revision: Revision,
    /// A time after the write: when the test saw it.
    pub seen: Timestamp,
    /// The object's name.
    pub name: String,
    /// None if the write deleted the object.
    pub object: Option<T>,
}

/// The lease in a customization's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub cluster_deployment: Option<String>,
    pub pool: Option<String>,
    /// Condition `Available` is `False`.
    pub is_reserved: bool,
    /// The id in the record of its lease.
    pub lease_id: Option<String>,
    /// The cluster in the record of its lease, as NAMESPACE/NAME.
    pub cluster: Option<String>,
    /// The id of the janitor that cleans it, in the record of its cleaning.
    pub janitor_id: Option<String>,
}

/// The entry and the deletion of a `ClusterDeployment`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterDeployment {
    /// The entry that its `clusterPoolRef` names.
    pub customization: Option<String>,
    /// It was deleted and waits for its finalizers.
    pub is_deleting: bool,
    pub finalizers: Vec<String>,
}

/// All versions of the objects of the pools in one namespace, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    pub entries: Vec<Version<Entry>>,
    /// The clusters of the pools, in all namespaces.
    pub cluster_deployments: Vec<Version<ClusterDeployment>>,
    /// Copies of customizations in the clusters' namespaces, named `NAMESPACE/NAME`.
    pub copies: Vec<Version<()>>,
}

/// Assigns etcd's writes to the namespaces of the pools.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    /// The pool's namespace of each object that is in another namespace, by the object's key. A deletion has no value
    /// that names the pool.
    pools: HashMap<String, String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'s> {
    pub(super) revision: Revision,
    pub(super) seen: Timestamp,
    /// Without the API server's prefix: `/GROUP/RESOURCE/NAMESPACE/NAME`.
    pub(super) key: &'s str,
    /// JSON. None if the write deleted the object.
    pub(super) value: Option<&'s [u8]>,
}

#[derive(Clone, Copy)]
enum Kind {
    Entry,
    ClusterDeployment,
}

/// The API server's paths: custom resources are below their group, its own are not.
const KINDS: [(&str, Kind); 2] = [
    ("/hive.openshift.io/clusterdeploymentcustomizations/", Kind::Entry),
    ("/hive.openshift.io/clusterdeployments/", Kind::ClusterDeployment),
];

/// The label of a copy that names its pool's namespace. The pool's own customizations do not have it.
const POOL_NAMESPACE: &str = "/metadata/labels/hive.openshift.io~1clusterpool-namespace";

impl Sorter {
    /// Adds a write to the versions of its namespace. Ignores objects that do not belong to leases.
    pub(super) fn add(
        &mut self,
        stored: Stored<'_>,
        by_namespace: &mut HashMap<String, Versions>,
    ) -> Result<(), serde_json::Error> {
        let Stored {
            revision,
            seen,
            key,
            value,
        } = stored;
        let Some((kind, namespace, name)) = parse_key(key) else {
            return Ok(());
        };
        let object: Option<Value> = value.map(serde_json::from_slice).transpose()?;
        let object = object.as_ref();
        match kind {
            Kind::Entry => match self.pool_namespace(key, object, POOL_NAMESPACE) {
                Some(pool) => by_namespace.entry(pool).or_default().copies.push(Version {
                    revision,
                    seen,
                    name: format!("{namespace}/{name}"),
                    object: object.map(|_| ()),
                }),
                None => by_namespace
                    .entry(namespace.to_owned())
                    .or_default()
                    .entries
                    .push(Version {
                        revision,
                        seen,
                        name: name.to_owned(),
                        object: object.map(entry),
                    }),
            },
            Kind::ClusterDeployment => {
                let Some(pool) = self.pool_namespace(key, object, "/spec/clusterPoolRef/namespace") else {
                    return Ok(());
                };
                let versions = by_namespace.entry(pool).or_default();
                versions.cluster_deployments.push(Version {
                    revision,
                    seen,
                    name: name.to_owned(),
                    object: object.map(cluster_deployment),
                });
            }
        }
        Ok(())
    }

    /// The namespace of an object's pool, which some version of the object names.
    fn pool_namespace(&mut self, key: &str, object: Option<&Value>, pointer: &str) -> Option<String> {
        if let Some(pool) = object.and_then(|object| text(object, pointer)) {
            self.pools.insert(key.to_owned(), pool);
        }
        self.pools.get(key).cloned()
    }
}

fn parse_key(key: &str) -> Option<(Kind, &str, &str)> {
    KINDS.into_iter().find_map(|(folder, kind)| {
        let (namespace, name) = key.strip_prefix(folder)?.split_once('/')?;
        Some((kind, namespace, name))
    })
}

fn entry(object: &Value) -> Entry {
    #[derive(Deserialize)]
    struct Condition<'c> {
        r#type: &'c str,
        status: &'c str,
    }
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let is_reserved = conditions
        .into_iter()
        .flatten()
        .filter_map(|condition| Condition::deserialize(condition).ok())
        .any(|condition| condition.r#type == "Available" && condition.status == "False");
    Entry {
        cluster_deployment: text(object, "/status/clusterDeploymentRef/name"),
        pool: text(object, "/status/clusterPoolRef/name"),
        is_reserved,
        lease_id: recorded(object, "kubectl-kcp.dev/Lease", "id="),
        cluster: recorded(object, "kubectl-kcp.dev/Lease", "cluster="),
        janitor_id: recorded(object, "kubectl-kcp.dev/Cleaning", "janitor="),
    }
}

/// A field of the record in the condition of this type. Empty fields are `-`.
fn recorded(object: &Value, condition: &str, field: &str) -> Option<String> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array)?;
    let record = conditions.iter().find(|found| found["type"] == condition)?;
    let mut fields = record.get("message")?.as_str()?.split(' ');
    let value = fields.find_map(|text| text.strip_prefix(field))?;
    (value != "-").then(|| value.to_owned())
}

fn cluster_deployment(object: &Value) -> ClusterDeployment {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    ClusterDeployment {
        customization: text(object, "/spec/clusterPoolRef/clusterDeploymentCustomization/name"),
        is_deleting: object.pointer("/metadata/deletionTimestamp").is_some(),
        finalizers: finalizers
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
    }
}

/// None if the name is empty.
fn text(object: &Value, pointer: &str) -> Option<String> {
    let text = object.pointer(pointer)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::{Value, json};

    use super::{ClusterDeployment, Entry, Sorter, Stored, Version, Versions};

    const SEEN: jiff::Timestamp = jiff::Timestamp::UNIX_EPOCH;

    fn sorted(writes: &[(u64, &str, Option<Value>)]) -> HashMap<String, Versions> {
        let (mut sorter, mut by_namespace) = (Sorter::default(), HashMap::new());
        for (revision, key, value) in writes {
            let value = value.as_ref().map(|value| value.to_string().into_bytes());
            let stored = Stored {
                revision: *revision,
                seen: SEEN,
                key,
                value: value.as_deref(),
            };
            sorter.add(stored, &mut by_namespace).unwrap();
        }
        by_namespace
    }

    fn version<T>(revision: u64, name: &str, object: Option<T>) -> Version<T> {
        Version {
            revision,
            seen: SEEN,
            name: name.to_owned(),
            object,
        }
    }

    #[test]
    fn reads_what_a_customization_says_of_its_lease() {
        const KEY: &str = "/hive.openshift.io/clusterdeploymentcustomizations/n/host-1";
        let held = json!({"status": {
            "conditions": [
                {"type": "ApplySucceeded", "status": "True"}, {"type": "Available", "status": "False"},
                {"type": "kubectl-kcp.dev/Lease", "status": "True", "message": "v1 holder=a id=k4x7 renewals=0 cluster=a/a"},
            ],
            "clusterDeploymentRef": {"name": "a"}, "clusterPoolRef": {"name": "p"},
        }});
        let being_cleaned = json!({"status": {
            "conditions": [
                {"type": "Available", "status": "False"},
                {"type": "kubectl-kcp.dev/Cleaning", "status": "True", "message": "v1 holder=a janitor=m2p9 deadline=-"},
            ],
            "clusterPoolRef": {"name": "p"},
        }});
        let half = json!({"status": {
            "conditions": [{"type": "Available", "status": "True"}, {"type": "Other", "status": "False"}],
            "clusterDeploymentRef": {"name": ""},
        }});
        let sorted = sorted(&[
            (2, KEY, Some(json!({"metadata": {"name": "host-1"}}))),
            (3, KEY, Some(held)),
            (4, KEY, Some(half)),
            (5, KEY, None),
            (6, KEY, Some(being_cleaned)),
        ]);
        let held = Entry {
            cluster_deployment: Some("a".to_owned()),
            pool: Some("p".to_owned()),
            is_reserved: true,
            lease_id: Some("k4x7".to_owned()),
            cluster: Some("a/a".to_owned()),
            janitor_id: None,
        };
        let being_cleaned = Entry {
            pool: Some("p".to_owned()),
            is_reserved: true,
            janitor_id: Some("m2p9".to_owned()),
            ..Entry::default()
        };
        let entries = vec![
            version(2, "host-1", Some(Entry::default())),
            version(3, "host-1", Some(held)),
            version(4, "host-1", Some(Entry::default())),
            version(5, "host-1", None),
            version(6, "host-1", Some(being_cleaned)),
        ];
        let expected = Versions {
            entries,
            ..Versions::default()
        };
        assert_eq!(sorted, HashMap::from([("n".to_owned(), expected)]));
    }

    #[test]
    fn a_cluster_deployment_belongs_to_the_namespace_of_its_pool() {
        const KEY: &str = "/hive.openshift.io/clusterdeployments/a/a";
        let spec = json!({"clusterPoolRef": {
            "namespace": "n", "poolName": "p", "clusterDeploymentCustomization": {"name": "x"},
        }});
        let deleting =
            json!({"metadata": {"deletionTimestamp": "2026-11-21T05:00:00Z", "finalizers": ["f"]}});
        let sorted = sorted(&[
            (
                2,
                "/hive.openshift.io/clusterdeployments/other/other",
                Some(json!({})),
            ),
            (3, KEY, Some(json!({"spec": spec}))),
            (4, KEY, Some(deleting)),
            (5, KEY, None),
        ]);
        let living = ClusterDeployment {
            customization: Some("x".to_owned()),
            ..ClusterDeployment::default()
        };
        let deleting = ClusterDeployment {
            customization: None,
            is_deleting: true,
            finalizers: vec!["f".to_owned()],
        };
        let cluster_deployments = vec![
            version(3, "a", Some(living)),
            version(4, "a", Some(deleting)),
            version(5, "a", None),
        ];
        let expected = Versions {
            cluster_deployments,
            ..Versions::default()
        };
        assert_eq!(sorted, HashMap::from([("n".to_owned(), expected)]));
    }

    #[test]
    fn a_copy_belongs_to_the_namespace_of_its_pool() {
        const KEY: &str = "/hive.openshift.io/clusterdeploymentcustomizations/a/host-1";
        let copy = json!({"metadata": {"labels": {"hive.openshift.io/clusterpool-namespace": "n"}}});
        let sorted = sorted(&[(2, KEY, Some(copy)), (3, KEY, None)]);
        let expected = Versions {
            copies: vec![version(2, "a/host-1", Some(())), version(3, "a/host-1", None)],
            ..Versions::default()
        };
        assert_eq!(sorted, HashMap::from([("n".to_owned(), expected)]));
    }
}
