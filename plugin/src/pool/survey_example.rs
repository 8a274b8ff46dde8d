//! Namespaces in JSON, for tests.

use serde_json::{Value, json};

use crate::pool::{
    objects::{cluster_pool::tests::pool_object, deployments::Deployments, record::name_of},
    survey::Survey,
};

/// When the tests are.
pub(super) const NOW: &str = "2026-11-21T05:00:00Z";
/// An hour before.
pub(super) const LONG_AGO: &str = "2026-11-21T04:00:00Z";
/// A minute before.
pub(super) const JUST_NOW: &str = "2026-11-21T04:59:00Z";

/// The objects of namespace `d`.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) pools: Vec<Value>,
    pub(super) entries: Vec<Value>,
    pub(super) records: Vec<Value>,
    pub(super) clusters: Vec<Value>,
    pub(super) copies: Vec<Value>,
}

impl Objects {
    /// Pool `pool`, which names `a`, and this entry `a`.
    pub(super) fn entry(entry: Value) -> Self {
        Self {
            pools: vec![pool_object("pool", &json!({"inventory": [{"name": "a"}]}))],
            entries: vec![entry],
            ..Self::default()
        }
    }

    pub(super) fn record(mut self, record: Value) -> Self {
        self.records.push(record);
        self
    }

    pub(super) fn cluster(mut self, cluster: Value) -> Self {
        self.clusters.push(cluster);
        self
    }

    pub(super) fn survey(&self) -> Survey {
        fn read<T: serde::de::DeserializeOwned>(objects: &[Value]) -> Vec<T> {
            let read = |object: &Value| serde_json::from_value(object.clone()).unwrap();
            objects.iter().map(read).collect()
        }
        Survey {
            namespace: "d".to_owned(),
            pools: read(&self.pools),
            entries: read(&self.entries),
            records: read(&self.records),
            deployments: Deployments::of("d", read(&self.clusters)),
            copies: read(&self.copies),
        }
    }
}

/// Entry `a`, marked so, for this `ClusterDeployment` of pool `pool`.
pub(super) fn entry(available: &str, holder: Option<&str>, since: &str) -> Value {
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

/// The record that this `ClusterDeployment` of pool `pool` holds `a`, renewed then, for so many seconds.
pub(super) fn record(holder: &str, renewed: &str, seconds: Option<u32>) -> Value {
    json!({
        "metadata": {"name": "kcp-pool-a", "namespace": "d", "uid": "record", "resourceVersion": "1",
            "annotations": {"kubectl-kcp.dev/cluster-pool": "pool"}},
        "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": seconds},
    })
}

/// The same entry of another name, or the same record of that entry.
pub(super) fn named(name: &str, mut object: Value) -> Value {
    let is_record = object["spec"]["holderIdentity"].is_string();
    let name = if is_record { name_of(name) } else { name.to_owned() };
    object["metadata"]["name"] = name.into();
    object
}

/// The same record, which says that the cluster was seen.
pub(super) fn seen(mut record: Value, uid: &str) -> Value {
    record["metadata"]["annotations"]["kubectl-kcp.dev/cluster-deployment-uid"] = uid.into();
    record
}

/// The same record, which says that the cluster is being made.
pub(super) fn creating(mut record: Value) -> Value {
    record["metadata"]["annotations"]["kubectl-kcp.dev/creating"] = "true".into();
    record
}

/// The same cluster, deleted, with these finalizers left.
pub(super) fn deleted(mut cluster: Value, finalizers: &[&str]) -> Value {
    cluster["metadata"]["deletionTimestamp"] = LONG_AGO.into();
    cluster["metadata"]["finalizers"] = json!(finalizers);
    cluster
}
