//! Clusters on real machines, for minutes: Cluster API's unmodified bootstrap data, the anchor of kcp-webhook, and the scripts with
//! which hosts join and leave.

#![expect(clippy::print_stderr, reason = "the figures of a run belong in its output")]

mod anchor;
mod cluster_api;
mod discovery;
mod nodes;

use std::time::Instant;

/// Prints how long each part takes. No test asserts it.
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn lap(&mut self, what: &str) {
        eprintln!("{:>5} s  {what}", self.0.elapsed().as_secs());
        self.0 = Instant::now();
    }
}
