//! Metrics of the entries of pools, by the state of their leases.

use std::collections::BTreeMap;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

/// The namespace and name of a pool.
pub(crate) type PoolName = (String, String);

/// The namespace and name under which all pools beyond a limit are counted. No Kubernetes object has this name.
pub(crate) const OTHER_POOLS: &str = "_others";

/// The number of a pool's entries in each state, according to their lease records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolEntries {
    /// Entries whose lease has not ended, including entries that a cluster uses.
    pub(crate) held: u32,
    /// Entries whose cluster no longer exists, and that are still reserved for the holder.
    pub(crate) cluster_gone: u32,
    /// Entries whose lease has ended, but that are not free yet.
    pub(crate) expired: u32,
    /// Entries that must be cleaned before the next lease.
    pub(crate) cleaning: u32,
    /// Entries that are excluded from new leases. They may also be leased, and are then counted twice.
    pub(crate) cordoned: u32,
}

impl PoolEntries {
    /// Adds the numbers of entries of another pool.
    pub(crate) const fn merge(&mut self, other: Self) {
        self.held += other.held;
        self.cluster_gone += other.cluster_gone;
        self.expired += other.expired;
        self.cleaning += other.cleaning;
        self.cordoned += other.cordoned;
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    namespace: String,
    pool: String,
    state: &'static str,
}

/// The metric of pool entries, with one series for each pool and state.
#[derive(Default)]
pub(super) struct PoolGauges(Family<PoolLabels, Gauge>);

impl PoolGauges {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "kcp_webhook_pool_entries",
            "Entries of each pool by state, according to their lease records: held, gone (still reserved, although the \
            holder's cluster no longer exists), expired, cleaning, and cordoned; a cordoned entry can count in another state, too",
            self.0.clone(),
        );
    }

    /// Replaces the numbers of entries of all pools.
    pub(super) fn set(&self, pools: BTreeMap<PoolName, PoolEntries>) {
        self.0.clear();
        for ((namespace, pool), entries) in pools {
            for (state, count) in [
                ("held", entries.held),
                ("gone", entries.cluster_gone),
                ("expired", entries.expired),
                ("cleaning", entries.cleaning),
                ("cordoned", entries.cordoned),
            ] {
                let labels = PoolLabels {
                    namespace: namespace.clone(),
                    pool: pool.clone(),
                    state,
                };
                self.0.get_or_create(&labels).set(count.into());
            }
        }
    }
}
