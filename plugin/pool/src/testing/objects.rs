//! The objects of a namespace in JSON.

use serde_json::{Value, json};

use crate::{
    objects::{cluster_deployment::Deployments, cluster_pool::Pool, record::name_of},
    snapshot::Snapshot,
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
    pub records: Vec<Value>,
    pub clusters: Vec<Value>,
    pub copies: Vec<Value>,
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

    pub fn record(mut self, record: Value) -> Self {
        self.records.push(record);
        self
    }

    pub fn cluster(mut self, cluster: Value) -> Self {
        self.clusters.push(cluster);
        self
    }

    pub fn snapshot(&self) -> Snapshot {
        fn read<T: serde::de::DeserializeOwned>(objects: &[Value]) -> Vec<T> {
            let read = |object: &Value| serde_json::from_value(object.clone()).unwrap();
            objects.iter().map(read).collect()
        }
        Snapshot {
            namespace: "d".to_owned(),
            pools: read(&self.pools),
            entries: read(&self.entries),
            records: read(&self.records),
            deployments: Deployments::of("d", read(&self.clusters)),
            copies: read(&self.copies),
        }
    }
}

/// Entry `a` with this status of Available, reserved for this ClusterDeployment of pool `pool`.
pub fn entry(available: &str, holder: Option<&str>, since: &str) -> Value {
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

/// The record of `a`: held by this ClusterDeployment of pool `pool`, renewed at this time, for so many seconds.
pub fn record(holder: &str, renewed: &str, seconds: Option<u32>) -> Value {
    json!({
        "metadata": {"name": "kcp-pool-a", "namespace": "d", "uid": "record", "resourceVersion": "1",
            "annotations": {"kubectl-kcp.dev/cluster-pool": "pool"}},
        "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": seconds},
    })
}

/// The same entry with another name, or the same record for that entry.
pub fn named(name: &str, mut object: Value) -> Value {
    let is_record = object["spec"]["holderIdentity"].is_string();
    let name = if is_record { name_of(name) } else { name.to_owned() };
    object["metadata"]["name"] = name.into();
    object
}

/// The same record, with the UID of a ClusterDeployment that was seen.
pub fn seen(mut record: Value, uid: &str) -> Value {
    record["metadata"]["annotations"]["kubectl-kcp.dev/cluster-deployment-uid"] = uid.into();
    record
}

/// The same record, while the ClusterDeployment is being created.
pub fn creating(mut record: Value) -> Value {
    record["metadata"]["annotations"]["kubectl-kcp.dev/creating"] = "true".into();
    record
}

/// The same cluster, deleted, with these finalizers left.
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

pub fn pool(spec: &Value) -> Pool {
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
