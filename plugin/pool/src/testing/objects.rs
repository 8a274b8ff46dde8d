//! The objects of a namespace in JSON.

use std::{collections::BTreeMap, time::Duration};

use kcp_api::{ClusterPool, names::annotation::CLEAN_BEFORE_REUSE};
use kcp_client::ServerTime;
use serde_json::{Value, json};

use crate::{
    hive::{Hive, Presence},
    lease::{
        queue::{Place, Queue, queue_name},
        usage::Clusters,
    },
    objects::{
        CleaningRecord, ClusterName,
        cleaning::{CLEANING, Janitor},
        cluster_deployment::ClusterDeployments,
        record::{CONDITION, LeaseRecord, LeaseState},
    },
    snapshot::Snapshot,
    sources::secrets::SecretFacts,
};

/// The time of the tests.
pub const NOW: &str = "2026-11-21T05:00:00Z";
/// An hour before.
pub const LONG_AGO: &str = "2026-11-21T04:00:00Z";
/// A minute before.
pub const JUST_NOW: &str = "2026-11-21T04:59:00Z";

/// The objects of namespace `d`.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub pools: Vec<Value>,
    pub entries: Vec<Value>,
    pub clusters: Vec<Value>,
    pub copies: Vec<Value>,
    pub claims: Vec<Value>,
    pub old_records: Vec<Value>,
    pub queues: Vec<Value>,
    pub drops_inventory: Option<bool>,
    pub applied_inventories: BTreeMap<String, Vec<String>>,
    pub secrets: BTreeMap<String, SecretFacts>,
}

/// Decodes an object.
pub fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).unwrap()
}

impl Objects {
    /// Pool `pool`, which lists `a`, and this entry `a`.
    pub fn entry(entry: Value) -> Self {
        Self {
            pools: vec![pool_object("pool", &json!({"inventory": [{"name": "a"}]}))],
            entries: vec![entry],
            ..Self::default()
        }
    }

    pub fn cluster(mut self, cluster: Value) -> Self {
        self.clusters.push(cluster);
        self
    }

    pub fn snapshot(&self) -> Snapshot {
        let now = NOW.parse().unwrap();
        Snapshot {
            namespace: "d".to_owned(),
            pools: self.pools.iter().map(read).collect(),
            has_all_pools: true,
            entries: self.entries.iter().map(read).collect(),
            clusters: Clusters::All(ClusterDeployments::new(
                "d",
                self.clusters.iter().map(read).collect(),
            )),
            copies: self.copies.iter().map(read).collect(),
            claims: Some(self.claims.iter().map(read).collect()),
            old_records: self.old_records.iter().map(read).collect(),
            queues: Some(self.queues.iter().map(read).collect()),
            drops_inventory: self.drops_inventory,
            applied_inventories: self.applied_inventories.clone(),
            secrets: self.secrets.clone(),
            hive: Hive {
                config: Presence::Absent,
                ..Hive::UNKNOWN
            },
            now: ServerTime {
                earliest: now,
                latest: now,
                is_certain: true,
            },
            unread_kinds: Vec::new(),
        }
    }
}

/// Entry `a` with this status of Available, reserved for this ClusterDeployment of pool `pool`, without a record.
pub fn entry(available: &str, holder: Option<&str>) -> Value {
    entry_since(available, holder, LONG_AGO)
}

pub fn entry_since(available: &str, holder: Option<&str>, since: &str) -> Value {
    let pool = holder.map(|_| "pool");
    let mut status = json!({"conditions": [
        {"type": "Available", "status": available, "lastTransitionTime": since},
    ]});
    for (field, name) in [("clusterDeploymentRef", holder), ("clusterPoolRef", pool)] {
        if let Some(name) = name {
            status[field] = json!({ "name": name });
        }
    }
    json!({"metadata": {"name": "a", "namespace": "d", "resourceVersion": "1"}, "status": status})
}

/// The record of a lease that this ClusterDeployment acquired an hour ago.
pub fn lease(holder: &str, deadline: Option<&str>) -> LeaseRecord {
    LeaseRecord {
        state: LeaseState::Held,
        holder: holder.to_owned(),
        id: "k4x7".to_owned(),
        renewals: 0,
        acquired: LONG_AGO.parse().unwrap(),
        deadline: deadline.map(|deadline| deadline.parse().unwrap()),
        cluster: Some(ClusterName::new(holder, holder)),
        user: Some("jane".to_owned()),
    }
}

/// Entry `a` with this lease from pool `pool`.
pub fn leased(record: &LeaseRecord) -> Value {
    let mut leased = entry("False", Some(&record.holder));
    let condition = json!({"type": CONDITION, "status": "True", "reason": record.state.reason(),
        "message": record.message(), "lastTransitionTime": LONG_AGO});
    leased["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(condition);
    leased
}

/// The record of a cleaning that began an hour ago, after `us` held the entry. The janitor has an id and a deadline.
pub fn cleaning(janitor: Option<(&str, &str)>, failures: u32) -> CleaningRecord {
    CleaningRecord {
        holder: Some("us".to_owned()),
        since: LONG_AGO.parse().unwrap(),
        janitor: janitor.map(|(id, deadline)| Janitor {
            id: id.to_owned(),
            deadline: deadline.parse().unwrap(),
        }),
        failures,
        user: Some("jane".to_owned()),
    }
}

/// Entry `a` of pool `pool`, which must be cleaned.
pub fn being_cleaned(record: &CleaningRecord) -> Value {
    let mut object = entry("False", None);
    object["status"]["clusterPoolRef"] = json!({"name": "pool"});
    let condition = json!({"type": CLEANING, "status": "True", "reason": record.reason(), "message": record.message(),
        "lastTransitionTime": LONG_AGO});
    object["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(condition);
    object
}

/// The pool with this value of the annotation that asks for cleaning.
pub fn asking(mut pool: Value, value: &str) -> Value {
    pool["metadata"]["annotations"] = json!({CLEAN_BEFORE_REUSE: value});
    pool
}

/// The record of a lease whose cluster no longer exists, according to a check.
pub fn gone(holder: &str, deadline: &str) -> LeaseRecord {
    LeaseRecord {
        state: LeaseState::ClusterGone,
        ..lease(holder, Some(deadline))
    }
}

/// The record of a lease for which a check has found a cluster with this uid.
pub fn in_use(holder: &str, deadline: &str, uid: &str) -> LeaseRecord {
    LeaseRecord {
        state: LeaseState::InUse { uid: uid.to_owned() },
        ..lease(holder, Some(deadline))
    }
}

/// The queue of pool `pool`, in which these lessees wait since these times for this number of entries.
pub fn queue(lessees: &[(&str, &str, usize)]) -> Value {
    let now = NOW.parse().unwrap();
    let now = ServerTime {
        earliest: now,
        latest: now,
        is_certain: true,
    };
    let place = |(holder, since, count): &(&str, &str, usize)| Place {
        since: since.parse().unwrap(),
        holder: (*holder).to_owned(),
        until: now.latest + Duration::from_secs(90),
        entries: None,
        count: *count,
        part: 0,
    };
    let places = lessees.iter().map(place);
    let annotations = places.flat_map(|place| Queue::default().annotations_with("pool", &place, now));
    let annotations: serde_json::Map<_, _> = annotations.collect();
    json!({"metadata": {"name": queue_name("pool", 0), "annotations": annotations}})
}

/// The object with another name.
pub fn named(name: &str, mut object: Value) -> Value {
    object["metadata"]["name"] = name.into();
    object
}

/// The cluster after its deletion was requested, with these remaining finalizers.
pub fn deleted(mut cluster: Value, finalizers: &[&str]) -> Value {
    cluster["metadata"]["deletionTimestamp"] = LONG_AGO.into();
    cluster["metadata"]["finalizers"] = json!(finalizers);
    cluster
}

/// A pool with the required fields, and these fields of a spec.
pub fn pool_object(name: &str, spec: &Value) -> Value {
    let mut whole = json!({
        "platform": {"none": {}}, "baseDomain": "example.com", "imageSetRef": {"name": "v4"}, "size": 1,
    });
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    json!({"metadata": {"name": name, "namespace": "d", "resourceVersion": "1"}, "spec": whole})
}

pub fn pool(spec: &Value) -> ClusterPool {
    serde_json::from_value(pool_object("pool", spec)).unwrap()
}

/// A ClusterDeployment of a pool of namespace `d`.
pub fn cluster(name: &str, pool: &str, customization: Option<&str>) -> Value {
    let customization = customization.map(|name| json!({ "name": name }));
    let reference = json!({
        "namespace": "d", "poolName": pool, "clusterDeploymentCustomization": customization,
    });
    json!({
        "metadata": {"name": name, "namespace": name, "uid": format!("uid-of-{name}")},
        "spec": {"clusterPoolRef": reference},
    })
}
