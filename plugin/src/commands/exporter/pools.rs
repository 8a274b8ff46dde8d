//! The metrics of one pool, as a pure function of what `pool status` knows about it.

use std::collections::BTreeMap;

use kcp_pool::{
    lease::queue::Place,
    status::{EntryUse, EntryUseState, PoolState},
};

use crate::commands::exporter::metrics::{Metric, Sample, Samples, samples, seconds, signed, time};

type PoolSamples = fn(&PoolState) -> Vec<Sample>;

/// The metrics of each pool, in the order of their output.
pub(super) const POOL_METRICS: &[Metric<PoolSamples>] = &[
    Metric {
        name: "kcp_pool_entries",
        help: "Entries of the inventory in each state of pool status",
        samples: |pool| {
            let sample =
                |state: EntryUseState| Sample::new([("state", state.as_str())], signed(pool.count(state)));
            EntryUseState::ALL.map(sample).into()
        },
    },
    Metric {
        name: "kcp_pool_entries_cordoned",
        help: "Entries that are cordoned, in any state",
        samples: |pool| {
            let cordoned = pool.entries.iter().filter(|entry| entry.cordon_reason.is_some());
            vec![Sample::new([], signed(cordoned.count()))]
        },
    },
    Metric {
        name: "kcp_pool_lease_start_timestamp_seconds",
        help: "When the holder leased the entry, in seconds since 1970",
        samples: |pool| {
            let entries = pool.entries.iter();
            entries.filter_map(|entry| lease_start(pool, entry)).collect()
        },
    },
    Metric {
        name: "kcp_pool_lessees_waiting",
        help: "Lessees in the queue of the pool",
        samples: |pool| {
            let waiting = pool.queue.iter();
            waiting
                .map(|queue| Sample::new([], signed(queue.len())))
                .collect()
        },
    },
    Metric {
        name: "kcp_pool_waiting_since_timestamp_seconds",
        help: "When the lessee that has waited longest began to wait, in seconds since 1970; absent if nobody waits",
        samples: |pool| {
            time(
                pool.queue
                    .iter()
                    .flatten()
                    .map(|Place { since, .. }| *since)
                    .min(),
            )
        },
    },
    Metric {
        name: "kcp_pool_claims_waiting",
        help: "ClusterClaims that wait for a cluster",
        samples: |pool| vec![Sample::new([], signed(pool.waiting_claims().count()))],
    },
    Metric {
        name: "kcp_pool_problems",
        help: "Problems that pool status reports, by kind",
        samples: |pool| {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for problem in pool.problems() {
                *counts.entry(problem.kind).or_default() += 1;
            }
            let counts = counts.into_iter();
            counts
                .map(|(kind, count)| Sample::new([("kind", kind)], signed(count)))
                .collect()
        },
    },
    Metric {
        name: "kcp_pool_unread_kinds",
        help: "Kinds of objects that the exporter is not allowed to read; what depends on them has no sample or is unknown",
        samples: |pool| vec![Sample::new([], signed(pool.unread_kinds.len()))],
    },
];

/// `None` without a lease for this pool. Another pool may list the entry, too.
fn lease_start(pool: &PoolState, entry: &EntryUse) -> Option<Sample> {
    let is_of_pool = entry.leased_for_pool.as_ref() == Some(&pool.name);
    let lease = entry.lease.as_ref().filter(|_| is_of_pool)?;
    let labels = [("entry", entry.name.as_str()), ("holder", lease.holder.as_str())];
    Some(Sample::new(labels, seconds(lease.acquired)))
}

/// The samples of a pool, by the index of their metric in [`POOL_METRICS`].
pub(super) fn of_pool(pool: &PoolState) -> Samples {
    samples(POOL_METRICS, |metric| (metric.samples)(pool))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kcp_pool::{
        status::PoolState,
        testing::{
            objects::{JUST_NOW, LONG_AGO},
            states::{busy, claims, state},
        },
    };

    use super::{POOL_METRICS, of_pool};

    #[test]
    fn a_pool_has_its_queue_and_the_start_of_each_lease() {
        let mut pool = state(&busy(), &claims());
        let found = |pool: &PoolState, name: &str| {
            let samples = of_pool(pool).into_iter();
            let found = samples.filter(|(index, _)| POOL_METRICS[*index].name == name);
            found.map(|(_, sample)| sample.text()).collect::<Vec<_>>()
        };
        let seconds = |time: &str| time.parse::<Timestamp>().unwrap().as_second();
        let (late, early) = (seconds(JUST_NOW), seconds(LONG_AGO));
        assert_eq!(found(&pool, "kcp_pool_lessees_waiting"), ["2"]);
        assert_eq!(
            found(&pool, "kcp_pool_waiting_since_timestamp_seconds"),
            [early.to_string()]
        );
        assert_eq!(found(&pool, "kcp_pool_claims_waiting"), ["2"]);
        let leases = found(&pool, "kcp_pool_lease_start_timestamp_seconds");
        assert_eq!(leases[0], format!("entry=host-1 holder=paris {late}"));
        let entries = found(&pool, "kcp_pool_entries");
        assert!(
            entries.contains(&"state=held 1".to_owned()) && entries.contains(&"state=free 1".to_owned()),
            "{entries:?}"
        );
        pool.queue = None;
        assert_eq!(found(&pool, "kcp_pool_lessees_waiting"), Vec::<String>::new());
        pool.queue = Some(Vec::new());
        assert_eq!(found(&pool, "kcp_pool_lessees_waiting"), ["0"]);
        assert_eq!(
            found(&pool, "kcp_pool_waiting_since_timestamp_seconds"),
            Vec::<String>::new()
        );
    }
}
