//! The output of `etcd recover`, and its script.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use kcp_control_plane::{
    snapshot::{Reading, Snapshot},
    testing::{
        objects::{minutes_ago, now},
        snapshot::{failure, observed},
    },
    verbs::etcd::recover::{
        drill::{SnapshotContent, drill},
        remains::{Remains, find},
        restore::{RestorableSnapshot, decide},
        steps::{Step, remainder},
    },
};

use super::{
    SnapshotCopy,
    drill::{DrillDocument, DrillReport},
    report::{RecoveryDocument, RecoveryOutcome, RecoveryReport},
    write_script,
};
use crate::{
    document::Versioned,
    output::Report as _,
    terminal::{plain, table::Layout},
    testing::{assert_every_format, schema},
    verdict::Verdict::{Met, Negative},
};

/// Nothing can be read from the workload cluster.
fn lost() -> Snapshot {
    let mut observed = observed();
    let unreachable = failure("workload cluster", "no answer within 5s");
    observed.workload = Reading::Failed(unreachable.clone());
    observed.etcd = Reading::Failed(unreachable);
    observed.machine(1).status.host_address = Some("10.0.0.1".to_owned());
    observed
}

/// `m1` is the only member.
fn recovered() -> Snapshot {
    let mut observed = observed();
    for number in [2, 3] {
        observed.kill(number);
        observed.nodes()[number - 1].ready = None;
    }
    observed.list(1).members.retain(|member| member.id == 1);
    observed
}

fn remains(survivor: Option<&str>) -> Remains {
    find(&lost(), survivor, now()).expect("hosts")
}

const AUTHORITY: &[u8] = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

fn copy() -> SnapshotCopy {
    SnapshotCopy {
        snapshot: RestorableSnapshot {
            place: "s3://b/d_c1-cp_20260821T110000Z.db".to_owned(),
            taken: Some(minutes_ago(60)),
            bytes: 20_512,
            revision: 1234,
            keys: 321,
            authority: Some(AUTHORITY.to_vec()),
            nodes: ["node-m1".to_owned()].into(),
        },
        file: PathBuf::from("/tmp/d_c1-cp_20260821T110000Z.db"),
        hash: "ab".repeat(32),
    }
}

#[test]
fn each_part_has_its_text_and_exit_code() {
    let (chosen, unchosen) = (remains(Some("m1")), remains(None));
    let copy = copy();
    let restored = decide(&lost(), &copy.snapshot, AUTHORITY, None, now()).expect("a host");
    let left = remainder(&recovered(), now()).expect("a quorum");
    let healthy = remainder(&observed(), now()).expect("a quorum");
    let script = "#!/bin/bash\n".to_owned();
    let done: Vec<String> = left.steps.iter().map(Step::describe).collect();
    let why = vec![
        "the time limit of 30m has passed".to_owned(),
        "1 of 3 Machines exist".to_owned(),
    ];
    let file = Some(Path::new("recover.sh"));
    for (name, outcome, verdict) in [
        (
            "script",
            RecoveryOutcome::Script {
                remains: &chosen,
                script: Some(&script),
                file: None,
                source: None,
            },
            Met,
        ),
        (
            "script in a file, without a survivor",
            RecoveryOutcome::Script {
                remains: &unchosen,
                script: None,
                file,
                source: None,
            },
            Met,
        ),
        (
            "restore",
            RecoveryOutcome::Script {
                remains: &restored,
                script: None,
                file,
                source: Some(&copy),
            },
            Met,
        ),
        ("dry run", RecoveryOutcome::DryRun(&left), Met),
        ("dry run, healthy", RecoveryOutcome::DryRun(&healthy), Met),
        ("healthy", RecoveryOutcome::Recovered { done: &[] }, Met),
        ("recovered", RecoveryOutcome::Recovered { done: &done }, Met),
        (
            "unfinished",
            RecoveryOutcome::Unfinished {
                done: &done[..1],
                why: &why,
            },
            Negative,
        ),
    ] {
        let observed = lost();
        let report = RecoveryReport {
            control_plane: &observed.control_plane,
            outcome,
        };
        assert_eq!(report.verdict(), verdict, "{name}");
        assert_every_format(&report);
        schema::conforms(&report.as_document());
        let document = serde_json::to_string_pretty(&Versioned(report.as_document())).expect("JSON");
        let summary = plain(&report.summary(Layout::default()));
        insta::assert_snapshot!(name, format!("{summary}{document}\n"));
        let text = report.table(Layout::default());
        assert_eq!(report.prints_script(), text == script, "{name}");
    }
    schema::checked_in::<RecoveryDocument<'_>>("etcdrecovery.json");
}

#[test]
fn the_script_names_the_hosts_that_stay() {
    let observed = lost();
    for (survivor, expected) in [(Some("m2"), "node-m2"), (None, "")] {
        let script = write_script(&observed, &remains(survivor), None).expect("a script");
        let nodes = "\nnodes='node-m1 node-m2 node-m3'";
        let value = format!("\nsurvivor='{expected}'");
        assert!(script.contains(nodes) && script.contains(&value), "{script}");
        let next = "\ncontinue_with='kubectl kcp etcd recover c1-cp -n d --continue'";
        assert!(script.contains(next) && !script.contains("=@@"), "{script}");
        let output = Command::new("bash").args(["-n", "-c", &script]).output();
        let output = output.expect("bash");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn each_result_of_a_drill_has_lines_and_a_document() {
    let observed = observed();
    let damaged = SnapshotContent::Damaged {
        why: "its hash does not match".to_owned(),
    };
    let mut needs = drill(&observed, Some(&damaged), now()).unwrap();
    let mut text = String::new();
    for (is_prepared, verdict) in [(false, Negative), (true, Met)] {
        if is_prepared {
            needs.retain(|need| need.remedy.is_none());
        }
        let report = DrillReport {
            control_plane: &observed.control_plane,
            needs: needs.clone(),
        };
        assert_eq!(report.verdict(), verdict);
        assert_every_format(&report);
        schema::conforms(&report.as_document());
        text += &plain(&report.table(Layout::default()));
    }
    insta::assert_snapshot!("drill", text);
    schema::checked_in::<DrillDocument<'_>>("etcdrecoverydrill.json");
}

#[test]
fn the_script_of_a_restore_names_the_snapshot_and_the_other_members() {
    let mut observed = lost();
    observed.machine(2).status.host_address = Some("10.0.0.2".to_owned());
    observed.machine(3).status.host_address = Some("fd00::3".to_owned());
    let copy = copy();
    let remains = decide(&observed, &copy.snapshot, AUTHORITY, None, now()).expect("a host");
    let script = write_script(&observed, &remains, Some(&copy)).expect("a script");
    let hash = format!("\nhash='{}'", copy.hash);
    for line in [
        "\nsurvivor='node-m1'",
        "\nsnapshot='d_c1-cp_20260821T110000Z.db'",
        &hash,
        "\nothers='{\"name\":\"node-m2\",\"peerURLs\":[\"https://10.0.0.2:2380\"]}\n\
         {\"name\":\"node-m3\",\"peerURLs\":[\"https://[fd00::3]:2380\"]}'",
    ] {
        assert!(script.contains(line), "no {line} in {script}");
    }
    let output = Command::new("bash").args(["-n", "-c", &script]).output();
    assert!(output.expect("bash").status.success());
}
