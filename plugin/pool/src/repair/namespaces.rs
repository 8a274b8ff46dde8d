//! The namespaces that a repair of all namespaces looks at. Pure.

use std::collections::BTreeSet;

use crate::objects::{
    cluster_pool::Pool,
    copies::Copy,
    deployments::{ClusterDeployment, LEASE_FINALIZER},
    entry::Entry,
    record::Record,
};

/// What there is in all namespaces that may be of a lease.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    pub pools: Vec<Pool>,
    /// Copies too, in the namespaces of clusters.
    pub entries: Vec<Entry>,
    pub records: Vec<Record>,
    pub clusters: Vec<ClusterDeployment>,
}

impl Traces {
    /// Where there are pools, or where leases were taken whose pool may be gone by now.
    pub fn namespaces(self) -> BTreeSet<String> {
        let pools = self.pools.into_iter().map(|pool| pool.metadata.namespace);
        let records = self.records.into_iter().map(|record| record.metadata.namespace);
        let entries = self.entries.into_iter().flat_map(|entry| {
            let is_taken = entry.is_reserved() || entry.pool().is_some();
            let copy = Copy {
                metadata: entry.metadata,
            };
            let original = copy.pool_namespace().map(str::to_owned);
            original
                .into_iter()
                .chain(is_taken.then_some(copy.metadata.namespace))
        });
        let clusters = self.clusters.into_iter().filter_map(|cluster| {
            let is_ours = cluster.metadata.has_finalizer(LEASE_FINALIZER);
            let reference = cluster.pool_reference.filter(|_| is_ours)?;
            Some(reference.namespace)
        });
        pools
            .chain(records)
            .chain(entries)
            .chain(clusters)
            .filter(|namespace| !namespace.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Traces;
    use crate::testing::objects::{LONG_AGO, cluster, entry, pool_object, record};

    fn read<T: serde::de::DeserializeOwned>(object: Value) -> Vec<T> {
        vec![serde_json::from_value(object).unwrap()]
    }

    #[test]
    fn each_trace_of_a_lease_leads_to_its_namespace() {
        let none = Traces::default;
        let mut copy = entry("True", None, LONG_AGO);
        copy["metadata"]["namespace"] = "us".into();
        copy["metadata"]["labels"] = json!({"hive.openshift.io/clusterpool-namespace": "d"});
        let mut kept = cluster("us", "gone", Some("a"));
        kept["metadata"]["finalizers"] = json!(["kubectl-kcp.dev/pool-lease"]);
        for (case, traces, expected) in [
            ("nothing", none(), None),
            (
                "a pool",
                Traces {
                    pools: read(pool_object("pool", &json!({}))),
                    ..none()
                },
                Some("d"),
            ),
            (
                "a record",
                Traces {
                    records: read(record("us", LONG_AGO, None)),
                    ..none()
                },
                Some("d"),
            ),
            (
                "an entry of a pool",
                Traces {
                    entries: read(entry("True", Some("us"), LONG_AGO)),
                    ..none()
                },
                Some("d"),
            ),
            (
                "an entry that is reserved for nobody",
                Traces {
                    entries: read(entry("False", None, LONG_AGO)),
                    ..none()
                },
                Some("d"),
            ),
            (
                "a free entry",
                Traces {
                    entries: read(entry("True", None, LONG_AGO)),
                    ..none()
                },
                None,
            ),
            (
                "a copy",
                Traces {
                    entries: read(copy),
                    ..none()
                },
                Some("d"),
            ),
            (
                "a cluster with our finalizer",
                Traces {
                    clusters: read(kept),
                    ..none()
                },
                Some("d"),
            ),
            (
                "a cluster without it",
                Traces {
                    clusters: read(cluster("us", "gone", Some("a"))),
                    ..none()
                },
                None,
            ),
        ] {
            let namespaces: Vec<_> = traces.namespaces().into_iter().collect();
            assert_eq!(namespaces, Vec::from_iter(expected), "{case}");
        }
    }
}
