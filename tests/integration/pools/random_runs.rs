//! Eight lessees, four entries, and faults by fixed seeds.

use std::io::{Write as _, stderr};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use kcp_tests::pools::counts::Counts;
use kcp_tests::pools::random_run::{Tolerance, random_run};

use crate::shared::with_pools;

/// The first is 1.
const SEEDS: u64 = 40;

/// Each has eight commands at a time, most of which wait for others now and then.
const AT_ONCE: usize = 6;

#[test]
fn forty_randomized_runs_keep_every_promise() {
    with_pools(async |server| {
        let runs = stream::iter(1..=SEEDS).map(|seed| random_run(server, seed, Tolerance::DecidesAlways));
        let counts = runs
            .buffer_unordered(AT_ONCE)
            .try_fold(Counts::default(), async |mut sum, counts| {
                sum += counts;
                Ok(sum)
            });
        let counts = counts.await.unwrap();
        // libtest keeps what tests print to itself; the counts are for everybody.
        writeln!(stderr(), "{counts}").unwrap();
        assert_eq!(counts.runs, SEEDS);
        // A change that keeps faults from happening must not pass for one that withstands them.
        for (count, least) in [
            (counts.killed, 50),
            (counts.cut, 20),
            (counts.timed_out, 20),
            (counts.dead, 10),
            (counts.leased, 200),
            (counts.exhausted, 20),
        ] {
            assert!(count >= least, "{counts}");
        }
    });
}
