//! While a server restarts and certificates are replaced, each review gets its right answer.

use std::io::{Write as _, stderr};
use std::time::Duration;

use kcp_tests::load::{self, Plan};

use crate::shared::with_run;

/// `make load` runs this for a minute and at a higher rate than debug builds can serve beside other tests.
#[test]
fn loses_no_review_in_a_restart_or_to_a_new_certificate_or_ca() {
    with_run(async |run| {
        let plan = Plan {
            rate: 200,
            duration: Duration::from_secs(10),
            arguments: ["--shutdown-delay=3s", "--tls-reload-interval=500ms"]
                .map(str::to_owned)
                .to_vec(),
        };
        let report = load::run(run, &plan).await.unwrap();
        // libtest captures what tests print, but everyone should see the counts.
        write!(stderr(), "{report}").unwrap();
        report.nothing_lost_or_wrong().unwrap();
    });
}

/// The same through a CA that `kcp-webhook manage` replaces. `make load` runs it at a higher rate, too.
#[test]
fn loses_no_review_while_the_manager_replaces_its_ca() {
    with_run(async |run| {
        let plan = Plan {
            rate: 100,
            duration: Duration::from_secs(10),
            arguments: Vec::new(),
        };
        let report = load::run_managed(run, &plan).await.unwrap();
        write!(stderr(), "with kcp-webhook manage: {report}").unwrap();
        report.nothing_lost_or_wrong().unwrap();
    });
}
