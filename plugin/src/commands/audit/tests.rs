use std::time::Duration;

use kcp_control_plane::audit::{AuditOutcome, Audited};

use super::{AuditDocument, AuditReport};
use crate::{
    output::Report as _,
    terminal::{plain, table::Layout},
    testing::{assert_every_format, schema},
    verdict::Verdict,
};

fn checked(id: &'static str, outcome: AuditOutcome, evidence: &[&str]) -> Audited {
    Audited {
        id,
        outcome,
        requirement: "etcd has an odd number of voting members",
        evidence: evidence.iter().map(|line| (*line).to_owned()).collect(),
        remedy: (outcome != AuditOutcome::Pass)
            .then_some("run 1, 3 or 5 members: kubectl kcp scale NAME --replicas 3"),
    }
}

fn report() -> AuditReport {
    AuditReport {
        control_plane: Some(("d".to_owned(), "edge".to_owned())),
        server: "https://10.0.0.9:6443".to_owned(),
        power_off: Duration::from_secs(30 * 24 * 3600),
        checks: vec![
            checked(
                "static-pods-missing",
                AuditOutcome::Pass,
                &["Node n1: 4 static Pods"],
            ),
            checked("etcd-members-even", AuditOutcome::Fail, &["a", "b", "c", "d"]),
            checked(
                "etcd-alarms",
                AuditOutcome::Unknown,
                &["could not read etcd: no answer"],
            ),
        ],
    }
}

#[test]
fn the_checks_and_their_remedies_are_shown() {
    let layout = |width| Layout {
        width,
        ..Layout::default()
    };
    insta::assert_snapshot!("audit", plain(&report().table(layout(None))));
    insta::assert_snapshot!("audit_80", plain(&report().table(layout(Some(80)))));
    let wide = Layout {
        is_wide: true,
        no_headers: true,
        ..Layout::default()
    };
    let shown = plain(&report().table(wide));
    assert!(
        shown.starts_with("PASS") && shown.contains("a; b; c; d"),
        "{shown}"
    );
}

#[test]
fn the_heading_counts_the_checks() {
    let heading = |report: &AuditReport| {
        plain(&report.table(Layout::default()))
            .lines()
            .nth(1)
            .map(str::to_owned)
    };
    let mut report = report();
    assert_eq!(
        heading(&report).as_deref(),
        Some("Audit:       1 of 3 checks fail, 1 unknown")
    );
    report.checks.remove(1);
    assert_eq!(
        heading(&report).as_deref(),
        Some("Audit:       1 of 2 checks unknown")
    );
    report.checks.pop();
    assert_eq!(
        heading(&report).as_deref(),
        Some("Audit:       all 1 checks pass")
    );
}

#[test]
fn a_failure_outweighs_an_unknown_result() {
    let mut report = report();
    assert_eq!(report.verdict(), Verdict::Negative);
    assert_eq!(report.names(), ["check/etcd-members-even", "check/etcd-alarms"]);
    report.checks.remove(1);
    assert_eq!(report.verdict(), Verdict::Undecided);
    report.checks.pop();
    assert_eq!(report.verdict(), Verdict::Met);
    report.checks.clear();
    assert_eq!(report.verdict(), Verdict::Undecided);
}

#[test]
fn the_document_matches_its_schema() {
    let report = report();
    schema::conforms(&AuditDocument::new(&report));
    let plain = AuditReport {
        control_plane: None,
        ..super::tests::report()
    };
    schema::conforms(&AuditDocument::new(&plain));
    schema::checked_in::<AuditDocument<'_>>("resiliencyaudit.json");
    assert_every_format(&report);
}
