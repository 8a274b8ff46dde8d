//! The output of `node remove`, and its script.

use std::process::Command;

use kcp_control_plane::change::decision::{Refusal, RefusedBy};
use kcp_rules::{anchor, api_proxy};

use super::{
    TEARDOWN,
    report::{RemovalDocument, RemovalReport, Result},
};
use crate::{
    commands::node::shell::fill,
    output::Report,
    terminal::{plain, table::Layout},
    testing::{assert_every_format, schema},
    verdict::Verdict::{Met, Negative},
};

fn refusal() -> Refusal {
    Refusal {
        remedies: vec!["do something".to_owned()],
        ..Refusal::new(RefusedBy::Command, vec!["etcd would lose quorum".to_owned()])
    }
}

#[test]
fn each_end_has_its_text_and_exit_code() {
    let script = "#!/bin/bash\n";
    for (name, removal, verdict) in [
        (
            "removed",
            Result::Removed {
                evicted: 4,
                removed_member: true,
            },
            Met,
        ),
        ("removed member", Result::RemovedMember, Met),
        (
            "dry run",
            Result::DryRun {
                pods: 4,
                has_member: true,
            },
            Met,
        ),
        ("refused", Result::Refused(refusal()), Negative),
        (
            "stopped",
            Result::Stopped {
                refusal: refusal(),
                removed_member: false,
            },
            Negative,
        ),
        (
            "stopped late",
            Result::Stopped {
                refusal: refusal(),
                removed_member: true,
            },
            Negative,
        ),
        (
            "timed out",
            Result::TimedOut {
                after: "10m".to_owned(),
                delays: vec!["PodDisruptionBudget shop/web allows no disruption of pod shop/a".to_owned()],
            },
            Negative,
        ),
    ] {
        let report = RemovalReport {
            node: "worker-7",
            removal: &removal,
            script: matches!(removal, Result::Removed { .. }).then_some(script),
            file: None,
        };
        assert_eq!(report.verdict(), verdict, "{name}");
        assert_every_format(&report);
        let hints = report.hints();
        let hints: Vec<String> = hints.iter().map(|hint| format!("hint: {hint}\n")).collect();
        let hints = hints.concat();
        let document = serde_json::to_string_pretty(&report.document()).unwrap();
        let summary = plain(&report.summary(Layout::default()));
        insta::assert_snapshot!(name, format!("{summary}{hints}{document}\n"));
        if let Result::Removed { .. } = removal {
            assert_eq!(report.table(Layout::default()), script);
        }
    }
    schema::checked_in::<RemovalDocument<'_>>("noderemoval.json");
}

#[test]
fn bash_accepts_the_script_for_the_host() {
    let script = fill(TEARDOWN, &[("node_name", "worker-7".to_owned())]).unwrap();
    assert!(script.contains("\nnode_name='worker-7'\n"), "{script}");
    assert!(
        script.contains("\nreset_host() {\n") && !script.contains("@@"),
        "{script}"
    );
    let output = Command::new("bash").args(["-n", "-c", &script]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let removed = "\nrm -rf --one-file-system /etc/kubernetes/";
    let (_, removed) = script.split_once(removed).unwrap();
    let removed = format!("/etc/kubernetes/{}", removed.lines().next().unwrap());
    let folders = [
        anchor::FOLDER,
        anchor::ADMISSION_FOLDER,
        api_proxy::FOLDER,
        "/etc/kubectl-kcp",
    ];
    assert_eq!(removed, folders.join(" "));
}
