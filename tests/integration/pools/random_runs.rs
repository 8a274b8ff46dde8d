//! Eight lessees, four entries, and faults chosen by fixed seeds.

use std::io::{Write as _, stderr};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use kcp_tests::pools::counts::Counts;
use kcp_tests::pools::random_run::{Tolerance, random_run};

use crate::shared::with_pools;

/// Seeds 1 to this.
const SEEDS: u64 = 40;

/// Concurrent runs. Each has eight commands, most of which wait for others.
const AT_ONCE: usize = 6;

#[test]
#[ignore = "takes minutes: make test-long"]
fn forty_randomized_runs_violate_no_invariant() {
    with_pools(async |server| {
        let runs = stream::iter(1..=SEEDS).map(|seed| random_run(server, seed, Tolerance::DecidesAlways));
        let counts = runs
            .buffer_unordered(AT_ONCE)
            .try_fold(Counts::default(), async |mut sum, counts| {
                sum += counts;
                Ok(sum)
            });
        let counts = counts.await.unwrap();
        // libtest captures what tests print, but everyone should see the counts.
        writeln!(stderr(), "{counts}").unwrap();
        assert_eq!(counts.runs, SEEDS);
        // Without enough faults the runs prove nothing.
        for (count, least) in [
            (counts.killed, 50),
            (counts.cut, 20),
            (counts.timed_out, 20),
            (counts.dead, 10),
            (counts.leased, 200),
            (counts.exhausted, 20),
            (counts.shifted, 500),
            (counts.reclaimed, 3),
            (counts.renewed, 20),
            (counts.wrong_ids, 40),
            (counts.clusters, 50),
            (counts.recreated, 5),
            (counts.restored, 5),
            (counts.claimed, 40),
            (counts.claims_left, 10),
            (counts.sets, 5),
            (counts.cleaned, 20),
        ] {
            assert!(count >= least, "{counts}");
        }
    });
}
