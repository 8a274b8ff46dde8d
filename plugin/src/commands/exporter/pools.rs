//! The metrics of one pool, as a pure function of what `pool status` knows about it.

use std::collections::BTreeMap;

use kcp_pool::{
    lease::queue::Place,
    status::{EntryUse, EntryUseState, PoolState},
};

use crate::commands::exporter::metrics::{Metric, Sample, Samples, only, samples, seconds, signed, time};

type PoolSamples = fn(&PoolState) -> Vec<Sample>;

/// The metrics of each pool, in the order of their output.
pub(super) const POOL_METRICS: &[Metric<PoolSamples>] = &[
    Metric {
        name: POOL_READ,
        help: "1 if the exporter could read the pool in the last round, 0 if not; the pool then has no other metric",
        samples: |_| vec![Sample::new([], 1)],
    },
    Metric {
        name: "kcp_pool_entries",
        help: "Entries of the inventory in each state of pool status; absent if the clusters could not be listed",
        samples: |pool| {
            let sample =
                |state: EntryUseState| Sample::new([("state", state.as_str())], signed(pool.count(state)));
            let states = pool.clusters.iter().flat_map(|_| EntryUseState::ALL);
            states.map(sample).collect()
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
        help: "Lessees in the queue of the pool; absent if the queue could not be read",
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
        help: "ClusterClaims that wait for a cluster; absent if they could not be listed",
        samples: |pool| {
            let waiting = |_| Sample::new([], signed(pool.waiting_claims().count()));
            pool.claims.iter().map(waiting).collect()
        },
    },
    Metric {
        name: "kcp_pool_problems",
        help: "Problems that pool status reports, by kind; incomplete while kcp_pool_unread_kinds is above 0",
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
        help: "Kinds of objects that the exporter is not allowed to read, and Secrets that it could not read; metrics that depend \
               on them are absent or unknown",
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

/// The only metric of a pool that could not be read.
const POOL_READ: &str = "kcp_pool_read";

/// The samples of a pool that could not be read.
pub(super) fn unread_pool() -> Samples {
    only(POOL_METRICS, POOL_READ, Sample::new([], 0))
}

/// The samples of a pool, by the index of their metric in [`POOL_METRICS`].
pub(super) fn of_pool(pool: &PoolState) -> Samples {
    samples(POOL_METRICS, |metric| (metric.samples)(pool))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::Timestamp;
    use kcp_pool::{
        status::PoolState,
        testing::{
            objects::{JUST_NOW, LONG_AGO},
            states::{busy, claims, state},
        },
    };

    use super::{POOL_METRICS, POOL_READ, Samples, of_pool, unread_pool};

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
        pool.queue = Some(Vec::new());
        assert_eq!(found(&pool, "kcp_pool_lessees_waiting"), ["0"]);
        assert_eq!(
            found(&pool, "kcp_pool_waiting_since_timestamp_seconds"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn what_could_not_be_read_has_no_sample() {
        let names = |samples: Samples| -> BTreeSet<_> {
            let names = samples.into_iter();
            names.map(|(index, _)| POOL_METRICS[index].name).collect()
        };
        let all: BTreeSet<_> = POOL_METRICS.iter().map(|metric| metric.name).collect();
        let known = || state(&busy(), &claims());
        for (pool, absent) in [
            (known(), &[][..]),
            (
                PoolState {
                    clusters: None,
                    ..known()
                },
                &["kcp_pool_entries"],
            ),
            (
                PoolState {
                    claims: None,
                    ..known()
                },
                &["kcp_pool_claims_waiting"],
            ),
            (
                PoolState {
                    queue: None,
                    ..known()
                },
                &[
                    "kcp_pool_lessees_waiting",
                    "kcp_pool_waiting_since_timestamp_seconds",
                ],
            ),
        ] {
            let expected = &all - &absent.iter().copied().collect();
            assert_eq!(names(of_pool(&pool)), expected, "{absent:?}");
        }
        assert_eq!(names(unread_pool()), BTreeSet::from([POOL_READ]));
    }
}
