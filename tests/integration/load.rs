//! No review is lost, and none answered wrongly, while a server restarts and certificates are replaced.

use std::io::{Write as _, stderr};
use std::time::Duration;

use kcp_tests::load::{self, Plan};

use crate::shared::with_run;

/// `make load` is the same for a minute, at a rate that debug builds do not hold beside other tests.
#[test]
fn loses_no_review_to_a_restart_or_a_new_certificate() {
    with_run(async |run| {
        let plan = Plan {
            rate: 200,
            duration: Duration::from_secs(10),
            arguments: ["--shutdown-delay=3s", "--tls-reload-interval=500ms"]
                .map(str::to_owned)
                .to_vec(),
        };
        let report = load::run(run, &plan).await.unwrap();
        // libtest keeps what tests print to itself; the counts are for everybody.
        write!(stderr(), "{report}").unwrap();
        report.nothing_lost_or_wrong().unwrap();
    });
}
