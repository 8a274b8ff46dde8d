use std::collections::BTreeSet;

use kcp_api::metadata::Time;
use kcp_control_plane::{
    snapshot::etcd::Alarms,
    testing::objects::{minutes_ago, now},
};

use crate::commands::status::screen::{
    Layout, ListRow, Screen, changes::changes, control_plane_screen, list,
};
use crate::{
    commands::status::screen::example::{self, Example},
    terminal::{plain, width::width},
};

fn screen(example: &Example, width: Option<usize>, is_wide: bool) -> Screen {
    control_plane_screen(
        &example.observed,
        &example.inspection,
        now(),
        Layout {
            width,
            is_wide,
            no_headers: false,
        },
    )
}

/// Replaces escape sequences with visible text, so that snapshots are readable.
fn visible(text: &str) -> String {
    text.replace('\u{1b}', "␛")
}

#[test]
fn every_screen() {
    for (name, example) in example::all() {
        let text = screen(&example, Some(80), false).text();
        insta::assert_snapshot!(format!("{name}_80"), plain(&text));
    }
    // Screens with full names, and one screen with its colours.
    let text = screen(&example::long_names(), Some(120), false).text();
    insta::assert_snapshot!("long_names_120", plain(&text));
    let text = screen(&example::member_dead(), Some(80), false).text();
    insta::assert_snapshot!("member_dead_80_colour", visible(&text));
}

#[test]
fn wide_screens() {
    for (name, example) in [
        ("node_dead", example::node_dead()),
        ("no_etcd", example::no_etcd()),
    ] {
        let text = screen(&example, Some(80), true).text();
        insta::assert_snapshot!(format!("{name}_wide"), plain(&text));
    }
}

#[test]
fn the_cause_comes_first_and_nothing_is_repeated() {
    for (example, first) in [
        (
            example::node_dead as fn() -> example::Example,
            "  fail    Machine/m2: the node is unreachable (nodes-not-ready)",
        ),
        (
            example::member_dead,
            "  fail    Machine/m2: etcd member does not respond: cannot connect: connection refused \
             (etcd-members-unresponsive)",
        ),
        (
            example::quorum_lost,
            "  fail    KubeadmControlPlane/c1-cp: quorum is lost: 1 of 3 voting members healthy, 2 needed for quorum (from \
             pods and Machine conditions) (etcd-no-quorum)",
        ),
        (
            example::mid_rollout,
            "  info    KubeadmControlPlane/c1-cp: rollout in progress, 1 of 3 Machines up to date \
             (machines-outdated)",
        ),
    ] {
        let text = plain(&screen(&example(), None, false).text());
        let sentences: Vec<&str> = text
            .lines()
            .skip_while(|line| *line != "Problems:" && *line != "In progress:")
            .skip(1)
            .take_while(|line| !line.is_empty())
            .collect();
        assert_eq!(sentences.first(), Some(&first));
        let unique: BTreeSet<&&str> = sentences.iter().collect();
        assert_eq!(unique.len(), sentences.len(), "{text}");
    }
}

#[test]
fn a_terminal_need_not_wrap() {
    for (name, example) in example::all() {
        for columns in [80, 100, 120] {
            let text = plain(&screen(&example, Some(columns), false).text());
            for line in text.lines() {
                // Commands and long names are not broken, so that users can paste them.
                let is_whole = line
                    .trim_start()
                    .trim_start_matches("hint: ")
                    .starts_with("kubectl ")
                    || line.split(' ').any(|word| width(word) > columns / 2);
                assert!(width(line) <= columns || is_whole, "{name} {columns}: {line}");
                assert!(!line.ends_with(' '), "{name} {columns}: {line:?}");
            }
        }
    }
}

#[test]
fn no_control_character_gets_through() {
    let example = example::control_characters();
    for text in [
        screen(&example, Some(80), false).text(),
        screen(&example, None, true).text(),
        list(
            [ListRow::new(&example.observed, &example.inspection)],
            None,
            now(),
            Layout::default(),
        )
        .text(),
    ] {
        let text = plain(&text);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
        assert!(!text.contains(['\u{202e}', '\u{9b}']), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("ok")), "{text}");
    }
}

#[test]
fn a_low_terminal_leaves_out_parts() {
    let screen = screen(&example::member_dead(), Some(80), false);
    let all = screen.text();
    let height = all.lines().count();
    assert_eq!(screen.fit(height), all);
    for lines in 3..height {
        let text = plain(&screen.fit(lines));
        assert!(text.lines().count() <= lines, "{lines}:\n{text}");
        assert!(
            text.contains("\nomitted, because the terminal is too small: "),
            "{text}"
        );
    }
    insta::assert_snapshot!("member_dead_24_lines", plain(&screen.fit(24)));
    insta::assert_snapshot!("member_dead_12_lines", plain(&screen.fit(12)));
}

fn rows(examples: &[Example]) -> impl Iterator<Item = ListRow> {
    let examples = examples.iter();
    examples.map(|example| ListRow::new(&example.observed, &example.inspection))
}

#[test]
fn several_control_planes() {
    let paris = example::member_dead().after(|observed| {
        let name = "paris-control-plane";
        observed.control_plane().metadata.name = Some(name.to_owned());
        name.clone_into(&mut observed.reference().name);
    });
    let examples = vec![
        example::healthy(),
        example::mid_rollout(),
        paris,
        example::unreadable(),
        example::no_etcd(),
        example::control_characters(),
        example::long_names(),
    ];
    for columns in [80, 120] {
        let layout = Layout {
            width: Some(columns),
            ..Layout::default()
        };
        let text = list(rows(&examples), None, now(), layout).text();
        assert!(plain(&text).lines().all(|line| width(line) <= columns), "{text}");
        insta::assert_snapshot!(format!("list_{columns}"), plain(&text));
    }
    let text = list(rows(&examples), Some("d"), now(), Layout::default()).text();
    insta::assert_snapshot!("list_of_a_namespace", plain(&text));
    let layout = Layout {
        width: Some(80),
        is_wide: true,
        no_headers: false,
    };
    insta::assert_snapshot!(
        "list_wide",
        plain(&list(rows(&examples), None, now(), layout).text())
    );
}

#[test]
fn no_control_plane() {
    for (namespace, text) in [
        (Some("d"), "No control planes found in d namespace.\n"),
        (None, "No control planes found.\n"),
    ] {
        assert_eq!(list([], namespace, now(), Layout::default()).text(), text);
    }
}

fn changed(before: &Example, after: &Example) -> Vec<String> {
    changes(
        Some((&before.observed, &before.inspection)),
        (&after.observed, &after.inspection),
    )
}

#[test]
fn the_first_poll_shows_the_current_state() {
    let dead = example::member_dead();
    assert_eq!(
        changes(None, (&dead.observed, &dead.inspection)),
        [
            "Degraded: 2 problems",
            "fail: EtcdMember/node-m2, Machine/m2: etcd member does not respond: cannot connect: connection refused \
             (etcd-members-unresponsive)",
            "fail: Machine/m2, Node/node-m2: etcd pod is not ready: CrashLoopBackOff (etcd-pods-not-ready)",
            "fail: KubeadmControlPlane/c1-cp, EtcdMember/node-m2: 2 of 3 voting members healthy, 2 needed for quorum: cannot \
             lose another member (etcd-voters-unhealthy)",
        ]
    );
}

#[test]
fn prints_a_member_that_fails_and_recovers() {
    let (healthy, dead) = (example::healthy(), example::member_dead());
    assert_eq!(changed(&healthy, &healthy), Vec::<String>::new());
    let blocked = "is blocked by etcd-voters-unhealthy, etcd-members-unresponsive, etcd-pods-not-ready";
    assert_eq!(
        changed(&healthy, &dead),
        [
            "Healthy -> Degraded: 2 problems",
            "3/3 Machines, 2 ready, 3 up to date",
            "Machine m2 is no longer ready",
            "etcd member node-m2 does not respond",
            &format!("scale up {blocked}"),
            &format!("rollout {blocked}"),
            "fail: EtcdMember/node-m2, Machine/m2: etcd member does not respond: cannot connect: connection refused \
             (etcd-members-unresponsive)",
            "fail: Machine/m2, Node/node-m2: etcd pod is not ready: CrashLoopBackOff (etcd-pods-not-ready)",
            "fail: KubeadmControlPlane/c1-cp, EtcdMember/node-m2: 2 of 3 voting members healthy, 2 needed for quorum: cannot \
             lose another member (etcd-voters-unhealthy)",
        ]
    );
    assert_eq!(
        changed(&dead, &healthy),
        [
            "Degraded -> Healthy",
            "3/3 Machines, 3 ready, 3 up to date",
            "Machine m2 is ready",
            "etcd member node-m2 responds again",
            "scale up is allowed now",
            "rollout is allowed now",
            "resolved: EtcdMember/node-m2, Machine/m2: etcd-members-unresponsive",
            "resolved: Machine/m2, Node/node-m2: etcd-pods-not-ready",
            "resolved: KubeadmControlPlane/c1-cp, EtcdMember/node-m2: etcd-voters-unhealthy",
        ]
    );
}

#[test]
fn prints_the_changes_of_a_rollout() {
    let (healthy, rollout) = (example::healthy(), example::mid_rollout());
    let lines = changed(&healthy, &rollout);
    for expected in [
        "4/3 Machines, 3 ready, 1 up to date",
        "Machine m4 appeared",
        "Machine m2 is outdated: version v1.33.6, desired v1.34.1",
        "etcd member node-m4 appeared",
    ] {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected} is not in {lines:#?}"
        );
    }
    let lines = changed(&rollout, &healthy);
    for expected in [
        "Machine m4 no longer exists",
        "Machine m2 is up to date",
        "etcd member node-m4 was removed",
    ] {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected} is not in {lines:#?}"
        );
    }
}

#[test]
fn a_finding_with_another_time_is_the_same() {
    let after = |minutes| {
        example::healthy().after(|observed| {
            let machine = observed.machine(3);
            machine.metadata.creation_timestamp = Some(Time(minutes_ago(minutes)));
            machine.status.node_name = None;
        })
    };
    let (before, after) = (after(20), after(21));
    assert_ne!(before.inspection.checks, after.inspection.checks);
    assert_eq!(changed(&before, &after), Vec::<String>::new());
}

#[test]
fn prints_changes_of_the_leader_and_of_alarms() {
    let before = example::external_etcd();
    let after = before.after(|observed| {
        observed.survey().alarms = Alarms::Listed(Vec::new());
        for number in 1..=3 {
            observed.status(number).leader = Some(2);
        }
    });
    let of_etcd = |lines: Vec<String>| -> Vec<String> {
        let lines = lines.into_iter();
        lines.filter(|line| line.starts_with("etcd ")).collect()
    };
    assert_eq!(
        of_etcd(changed(&before, &after)),
        [
            "etcd leader 10.0.1.1:2379 -> 10.0.1.2:2379",
            "etcd alarm NOSPACE of 10.0.1.3:2379 disarmed",
        ]
    );
    assert_eq!(
        of_etcd(changed(&after, &before)),
        [
            "etcd leader 10.0.1.2:2379 -> 10.0.1.1:2379",
            "etcd alarm NOSPACE of 10.0.1.3:2379 raised"
        ]
    );
}

#[test]
fn the_summary_shows_the_age_and_the_place_of_the_last_etcd_snapshot() {
    for (place, expected) in [
        ("", "Snapshot:      12m ago, from etcd member node-m2"),
        (
            r#","place":"s3://backups/edge.db""#,
            "Snapshot:      12m ago, from etcd member node-m2, in s3://backups/edge.db",
        ),
    ] {
        let with_record = example::healthy().after(|observed| {
            let record = format!(
                r#"{{"uid":"{}","completed":"{}","member":"node-m2","bytes":20512{place}}}"#,
                kcp_api::Object::uid(&observed.control_plane),
                minutes_ago(12)
            );
            let annotation = ("kubectl-kcp.dev/etcd-snapshot".to_owned(), record);
            observed.control_plane().metadata.annotations = Some([annotation].into());
        });
        let text = plain(&screen(&with_record, Some(80), false).text());
        let line = text.lines().find(|line| line.starts_with("Snapshot:"));
        assert_eq!(line, Some(expected));
    }
}
