//! Versions of the objects that leases are made of, as etcd stores them.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

/// What etcd counts: a write to anything makes the next. An object's `resourceVersion` is the one that made it so.
pub type Revision = u64;

/// One version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version<T> {
    /// The write that made it.
    pub revision: Revision,
    /// Which object; of a Lease the customization that it is of.
    pub name: String,
    /// None when the write deleted it.
    pub object: Option<T>,
}

/// What a customization says of its lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// `status.clusterDeploymentRef`
    pub cluster_deployment: Option<String>,
    /// `status.clusterPoolRef`
    pub pool: Option<String>,
    /// Condition `Available` is `False`.
    pub is_reserved: bool,
}

/// A Lease beside a customization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// `spec.holderIdentity`
    pub holder: Option<String>,
}

/// What keeps a `ClusterDeployment`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterDeployment {
    /// It has been deleted, and waits for its finalizers.
    pub is_deleting: bool,
    /// `metadata.finalizers`
    pub finalizers: Vec<String>,
}

/// Every version of everything about the pools of one namespace, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Customizations.
    pub entries: Vec<Version<Entry>>,
    /// Leases beside them.
    pub leases: Vec<Version<LeaseRecord>>,
    /// Clusters that were made for the pools, wherever they are.
    pub cluster_deployments: Vec<Version<ClusterDeployment>>,
    /// Copies of customizations beside those clusters, named `NAMESPACE/NAME`.
    pub copies: Vec<Version<()>>,
}

/// Sorts what etcd stores by the pools' namespaces.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    /// The namespace of the pool, by the key of what was made for it elsewhere: a deletion has no value that would name
    /// it.
    pools: HashMap<String, String>,
}

/// A write in etcd.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'s> {
    pub(super) revision: Revision,
    /// Without the API server's own prefix: `/GROUP/RESOURCE/NAMESPACE/NAME`.
    pub(super) key: &'s str,
    /// JSON; none when it deleted the object.
    pub(super) value: Option<&'s [u8]>,
}

#[derive(Clone, Copy)]
enum Kind {
    Entry,
    Lease,
    ClusterDeployment,
}

/// By where the API server keeps each: custom resources under their group, its own without.
const KINDS: [(&str, Kind); 3] = [
    ("/hive.openshift.io/clusterdeploymentcustomizations/", Kind::Entry),
    ("/hive.openshift.io/clusterdeployments/", Kind::ClusterDeployment),
    ("/leases/", Kind::Lease),
];

/// Names the namespace of the pool that a copy was made for. The pool's own customizations have no such label.
const POOL_NAMESPACE: &str = "/metadata/labels/hive.openshift.io~1clusterpool-namespace";

/// Before the customization's name in that of its Lease.
const LEASE_PREFIX: &str = "kcp-pool-";

impl Sorter {
    /// Adds a write to the versions of its namespace. What has nothing to do with leases is left out.
    pub(super) fn add(
        &mut self,
        stored: Stored<'_>,
        by_namespace: &mut HashMap<String, Versions>,
    ) -> Result<(), serde_json::Error> {
        let Stored { revision, key, value } = stored;
        let Some((kind, namespace, name)) = parse_key(key) else {
            return Ok(());
        };
        let object: Option<Value> = value.map(serde_json::from_slice).transpose()?;
        let object = object.as_ref();
        match kind {
            Kind::Entry => match self.pool_elsewhere(key, object, POOL_NAMESPACE) {
                Some(pool) => by_namespace.entry(pool).or_default().copies.push(Version {
                    revision,
                    name: format!("{namespace}/{name}"),
                    object: object.map(|_| ()),
                }),
                None => by_namespace
                    .entry(namespace.to_owned())
                    .or_default()
                    .entries
                    .push(Version {
                        revision,
                        name: name.to_owned(),
                        object: object.map(entry),
                    }),
            },
            Kind::Lease => {
                let Some(name) = name.strip_prefix(LEASE_PREFIX) else {
                    return Ok(());
                };
                by_namespace
                    .entry(namespace.to_owned())
                    .or_default()
                    .leases
                    .push(Version {
                        revision,
                        name: name.to_owned(),
                        object: object.map(lease_record),
                    });
            }
            Kind::ClusterDeployment => {
                let Some(pool) = self.pool_elsewhere(key, object, "/spec/clusterPoolRef/namespace") else {
                    return Ok(());
                };
                let versions = by_namespace.entry(pool).or_default();
                versions.cluster_deployments.push(Version {
                    revision,
                    name: name.to_owned(),
                    object: object.map(cluster_deployment),
                });
            }
        }
        Ok(())
    }

    /// The namespace of the pool that an object was made for, which some version of it names there.
    fn pool_elsewhere(&mut self, key: &str, object: Option<&Value>, pointer: &str) -> Option<String> {
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
    }
}

fn lease_record(object: &Value) -> LeaseRecord {
    LeaseRecord {
        holder: text(object, "/spec/holderIdentity"),
    }
}

fn cluster_deployment(object: &Value) -> ClusterDeployment {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    ClusterDeployment {
        is_deleting: object.pointer("/metadata/deletionTimestamp").is_some(),
        finalizers: finalizers
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
    }
}

/// An empty name is none.
fn text(object: &Value, pointer: &str) -> Option<String> {
    let text = object.pointer(pointer)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::{Value, json};

    use super::{ClusterDeployment, Entry, LeaseRecord, Sorter, Stored, Version, Versions};

    fn sorted(writes: &[(u64, &str, Option<Value>)]) -> HashMap<String, Versions> {
        let (mut sorter, mut by_namespace) = (Sorter::default(), HashMap::new());
        for (revision, key, value) in writes {
            let value = value.as_ref().map(|value| value.to_string().into_bytes());
            let stored = Stored {
                revision: *revision,
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
            name: name.to_owned(),
            object,
        }
    }

    #[test]
    fn reads_what_a_customization_says_of_its_lease() {
        const KEY: &str = "/hive.openshift.io/clusterdeploymentcustomizations/n/host-1";
        let held = json!({"status": {
            "conditions": [{"type": "ApplySucceeded", "status": "True"}, {"type": "Available", "status": "False"}],
            "clusterDeploymentRef": {"name": "a"}, "clusterPoolRef": {"name": "p"},
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
        ]);
        let held = Entry {
            cluster_deployment: Some("a".to_owned()),
            pool: Some("p".to_owned()),
            is_reserved: true,
        };
        let entries = vec![
            version(2, "host-1", Some(Entry::default())),
            version(3, "host-1", Some(held)),
            version(4, "host-1", Some(Entry::default())),
            version(5, "host-1", None),
        ];
        let expected = Versions {
            entries,
            ..Versions::default()
        };
        assert_eq!(sorted, HashMap::from([("n".to_owned(), expected)]));
    }

    #[test]
    fn a_lease_is_named_after_its_customization_and_others_are_left_out() {
        let lease = json!({"spec": {"holderIdentity": "a"}});
        let sorted = sorted(&[
            (2, "/leases/n/kcp-pool-host-1", Some(lease.clone())),
            (3, "/leases/kube-system/apiserver-1", Some(lease)),
            (4, "/leases/n/kcp-pool-host-1", None),
            (5, "/configmaps/n/host-1", Some(json!({}))),
        ]);
        let holder = Some("a".to_owned());
        let leases = vec![
            version(2, "host-1", Some(LeaseRecord { holder })),
            version(4, "host-1", None),
        ];
        let expected = Versions {
            leases,
            ..Versions::default()
        };
        assert_eq!(sorted, HashMap::from([("n".to_owned(), expected)]));
    }

    #[test]
    fn a_cluster_deployment_belongs_to_the_namespace_of_its_pool() {
        const KEY: &str = "/hive.openshift.io/clusterdeployments/a/a";
        let spec = json!({"clusterPoolRef": {"namespace": "n", "poolName": "p"}});
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
        let deleting = ClusterDeployment {
            is_deleting: true,
            finalizers: vec!["f".to_owned()],
        };
        let cluster_deployments = vec![
            version(3, "a", Some(ClusterDeployment::default())),
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
